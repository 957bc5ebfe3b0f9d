"""Members of a KIP-848 group as values, and the owners of partitions. Pure.

A member *owns* what it is assigned, and what it has been told to revoke and has not given up yet.
A partition is owned by one member at most; it is assigned only when nobody owns it, so no member
is told that it may read what another may still be reading (KIP-848, "Reconciliation").

Invariant of `Partitions`: no topic is without partitions, so equal values mean the same.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from coordinator.commands.layout import Int64
from protocol.types import TopicId

Partitions = Mapping[TopicId, frozenset[int]]
NOTHING: Final[Partitions] = {}
_NONE: Final[frozenset[int]] = frozenset()

EPOCH_LEAVE: Final = -1
EPOCH_AWAY: Final = -2
"""Of a static member that has said that it will be back (KIP-848, static membership)."""


class MemberState(IntEnum):
    """Numbers and names of Kafka (`MemberState`)."""

    STABLE = 0
    """It has what the target of its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it may go on to the epoch of the target."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """Written by an agent that knows more states than this one."""


class Subscription(NamedTuple):
    names: frozenset[str] = frozenset()
    regex: str = ""
    """Empty: none."""


class ClassicMember(NamedTuple):
    """The extra fields of a member that speaks the classic protocol (JoinGroup)."""

    session_timeout_ms: Int64
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata, in the member's order."""


class Member(NamedTuple):
    member_id: str
    epoch: int = 0
    """0: it has not been given an epoch yet; EPOCH_AWAY."""
    previous_epoch: int = 0
    """What it had before the newest step; it may still be known to it, if the answer was lost."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscription: Subscription = Subscription()
    server_assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING
    """Partitions pending revocation."""
    target: Partitions = NOTHING
    classic: ClassicMember | None = None
    """None: it speaks KIP-848."""

    def is_settled(self, epoch: int) -> bool:
        """Kafka's isReconciledTo."""
        return self.state is MemberState.STABLE and self.epoch == epoch


def share(some: Partitions, others: Partitions) -> bool:
    """Whether there is a partition in both."""
    return any(not numbers.isdisjoint(others.get(topic, _NONE)) for topic, numbers in some.items())


def within(some: Partitions, others: Partitions) -> bool:
    """Whether every partition of `some` is in `others`."""
    return all(numbers <= others.get(topic, _NONE) for topic, numbers in some.items())


def union(some: Partitions, others: Partitions) -> Partitions:
    if not some or not others:
        return some or others
    both = dict(some)
    for topic, numbers in others.items():
        both[topic] = both.get(topic, _NONE) | numbers
    return both


class Owners:
    """Which member owns a partition."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[TopicId, dict[int, str]] = {}

    def of(self, topic: TopicId, partition: int) -> str | None:
        owners = self._topics.get(topic)
        return owners.get(partition) if owners is not None else None

    def take(self, member: Member) -> None:
        """What the member owns is owned by nobody else."""
        for partitions in (member.assigned, member.revoking):
            for topic, numbers in partitions.items():
                owners = self._topics.setdefault(topic, {})
                assert owners.keys().isdisjoint(numbers), (
                    f"two owners: {member.member_id}, {owners}"
                )
                owners.update(dict.fromkeys(numbers, member.member_id))

    def release(self, member: Member) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic, numbers in partitions.items():
                owners = self._topics[topic]
                for number in numbers:
                    del owners[number]
                if not owners:
                    del self._topics[topic]
