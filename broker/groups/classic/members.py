"""The members of a classic group: the leader, the protocols that all support, parked requests. Pure.

Invariants: an instance id is that of one member; there is a leader if there are members;
`awaiting_join` counts members whose join is parked; `_supporters` counts members by the protocols
that they name, each once. A group takes a member only if one protocol is supported by all
(`supports`), so `select_protocol` always finds one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

NEVER_MS: Final = 1 << 62
"""A deadline that is never reached."""

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, in a member's order of preference."""


@dataclass(slots=True, kw_only=True, eq=False)
class ClassicMember:
    """A member of a classic group, with what it waits for."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    deadline_ms: int = field(default=NEVER_MS, init=False)
    """When it is given up, unless it is heard of; see `may_expire`."""
    is_new: bool = field(default=False, init=False)
    """In its first join, without an id that it could send heartbeats with."""
    join_token: int | None = field(default=None, init=False)
    sync_token: int | None = field(default=None, init=False)

    def may_expire(self) -> bool:
        """Who waits for us cannot be late; but a first join waits for five minutes at most."""
        return self.is_new or (self.join_token is None and self.sync_token is None)

    def metadata(self, protocol_name: str | None) -> bytes | None:
        """None: it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return None


class ClassicMembers:
    """Members in the order in which they came."""

    def __init__(self) -> None:
        self._by_id: dict[str, ClassicMember] = {}
        self._by_instance: dict[str, str] = {}
        self._supporters: dict[str, int] = {}
        self.awaiting_join = 0
        self.leader_id: str | None = None

        self.get = self._by_id.get
        """The member of an id, or None; bound once, since heartbeats ask 3000 times a second."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def ids(self) -> tuple[str, ...]:
        return tuple(self._by_id)

    def id_of(self, instance_id: str) -> str | None:
        """The member id that a static member has now."""
        return self._by_instance.get(instance_id)

    def rebalance_timeout_ms(self) -> int:
        """The longest of all, 0 without members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def leader(self) -> ClassicMember | None:
        return None if self.leader_id is None else self._by_id[self.leader_id]

    # Who is in.

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self._by_id
        assert member.join_token is None
        if member.instance_id is not None:
            assert member.instance_id not in self._by_instance
            self._by_instance[member.instance_id] = member.member_id
        self._by_id[member.member_id] = member
        self._count(member.protocols, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: ClassicMember) -> None:
        """It waits for nothing any more."""
        assert member.join_token is None
        assert member.sync_token is None
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        self._count(member.protocols, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._by_id), None)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """The static member `old` is `new` now; a leader stays leader."""
        assert old.instance_id == new.instance_id
        leads = self.leader_id == old.member_id
        self.remove(old)
        self.add(new)
        if leads:
            self.leader_id = new.member_id

    def update(
        self,
        member: ClassicMember,
        *,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """What a member says of itself when it joins again."""
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    # Who waits.

    def park_join(self, member: ClassicMember, token: int) -> int | None:
        """The token that it was parked with before, which somebody has to answer."""
        before = member.join_token
        member.join_token = token
        self.awaiting_join += before is None
        return before

    def unpark_join(self, member: ClassicMember) -> int | None:
        token = member.join_token
        member.join_token = None
        self.awaiting_join -= token is not None
        return token

    # What they agree upon.

    def supports(self, names: Iterable[str]) -> bool:
        """Is one of these protocols supported by all members?"""
        count = len(self._by_id)
        return any(self._supporters.get(name, 0) == count for name in names)

    def select_protocol(self) -> str:
        """What most members prefer among what all support.

        Kafka leaves a tie to chance; here the earliest member decides it.
        """
        count = len(self._by_id)
        assert count
        votes: dict[str, int] = {}
        for member in self:
            for name, _ in member.protocols:
                if self._supporters[name] == count:
                    votes[name] = votes.get(name, 0) + 1
                    break
        assert votes
        return max(votes, key=votes.__getitem__)

    def elect(self) -> bool:
        """Let a member lead that has joined, if the leader has not. False: nobody has."""
        leader = self.leader()
        if leader is None:
            return False
        if leader.join_token is None:
            joined = next((member for member in self if member.join_token is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    def _count(self, protocols: Protocols, change: int) -> None:
        for name in {name for name, _ in protocols}:
            count = self._supporters.get(name, 0) + change
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]


def agree(members: Iterable[ClassicMember]) -> bool:
    """Is there a protocol that all of them support? Always, but in the middle of a write."""
    common: set[str] | None = None
    for member in members:
        names = {name for name, _ in member.protocols}
        common = names if common is None else common & names
    return common is None or bool(common)
