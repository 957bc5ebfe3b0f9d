"""The phases of a classic group's rebalance, and its timers. Pure.

    Empty ──join──▶ PreparingRebalance ──all joined, or late──▶ CompletingRebalance ──▶ Stable
      ▲                 ▲  │ nobody left                          │ leader's assignment, written
      └─────────────────┼──┘                                      │
                        └── joins, leaves, expiries ◀─────────────┴───────── and of Stable

Written are: the generation together with the leader's assignment, so that no member hears of an
assignment that a successor of this agent would not know; a generation without members; a static
member's new id. Nothing else: what is in between is lost with the coordinator, as in Kafka, and
the members' heartbeats of a generation that was not written are answered ILLEGAL_GENERATION.

Timers are deadlines. A heartbeat moves its member's deadline and nothing else; `deadline_ms` is a
lower bound of all deadlines, found anew when it is reached.

Where this is not Kafka (ClassicGroup, GroupMetadataManager): a token whose member is parked again
is answered REBALANCE_IN_PROGRESS, where Kafka never answers; who was to join and is refused or
leaves does not hold up a rebalance, nor begin one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from broker.config.group_settings import GroupSettings
from broker.groups.classic.members import NEVER_MS, ClassicMember, ClassicMembers
from broker.groups.classic.rows import GroupBody, encode_group, encode_member
from broker.groups.classic.views import Owners
from broker.groups.group.change_commands import TooLargeError, group_write
from broker.groups.group.effects import Answer, Effects, Write
from coordinator.commands.encoding import CodecError
from coordinator.commands.group_commands import GROUP_NEW, ChangeGroup, GroupKind, GroupMember
from coordinator.tables.groups import MEMBERS_MAX
from protocol.errors import ErrorCode
from protocol.messages import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse

NEW_MEMBER_MS: Final = 5 * 60_000
"""How long a first join is parked: its sender cannot send heartbeats, and may be gone."""
POSTPONE_MS_MIN: Final = 1_000
"""When nobody has joined in time; a rebalance timeout may be 0."""


class State(Enum):
    """Values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class _Due(Enum):
    """What a timer is for, in the order of those that are due at the same time."""

    MEMBER = 1
    PENDING = 2
    JOIN = 3
    SYNC = 4


class ClassicPhases:
    """The state machine of a classic group, with its timers; `ClassicGroup` feeds it requests."""

    kind: Final = GroupKind.CLASSIC

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        *,
        row_epoch: int = GROUP_NEW,
        row_ids: Iterable[str] = (),
        row_generation: int | None = None,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        members: Iterable[ClassicMember] = (),
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.generation = generation
        self.group_protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.members = ClassicMembers()
        for member in members:
            self.members.add(member)
        if leader_id is not None and leader_id in self.members:
            self.members.leader_id = leader_id
        self._state = State.EMPTY
        self._pending: dict[str, int] = {}
        """Deadlines of members that were given an id and have not joined with it (KIP-394)."""
        self._unsynced: set[str] = set()
        """Members of the generation that have not asked for their assignment."""

        self._join_at_ms = NEVER_MS
        self._sync_at_ms = NEVER_MS
        self._wake_ms = NEVER_MS
        """Not later than any deadline."""
        self._initial = False
        """The newest rebalance began with an empty group, which waits for more members to come."""
        self._newcomer = False
        """One has come since it began to wait."""
        self._delay_ms = 0
        self._delay_left_ms = 0

        self._row_epoch = row_epoch
        self._row_ids = tuple(row_ids)
        self._row_generation = row_generation
        """What the log has of the group; the generation is that of all its members, if of one."""
        self._answers: list[Answer] = []
        self._write: Write | None = None
        self._held: list[Answer] = []
        """Made after the Write; given when it is written."""
        self._then: Callable[[int], None] | None = None
        """What is done when the Write is written; None: nothing is being written."""

        self._owners: Owners | None = None
        self._topics: frozenset[str] | None = None
        self._topics_known = False

    def resume(self, now_ms: int, *, stable: bool) -> None:
        """Go on with members that nobody has heard of for a while. Not stable: they rebalance."""
        if not len(self.members):
            return
        for member in self.members:
            self._hear(member, now_ms)
        if self.protocol_name is None:
            self.protocol_name = self.members.select_protocol()
        self._state = State.STABLE
        # As Kafka after the maximum was lowered: who comes first stays.
        if not stable or len(self.members) > self.size_max():
            self._prepare(now_ms)

    def state(self) -> str:
        return self._state.value

    def has_members(self) -> bool:
        """Those who were only given an id count."""
        return bool(len(self.members) or self._pending)

    def member_size(self, member_id: str) -> int:
        """Of its id and metadata."""
        member = self.members.get(member_id)
        if member is None:
            return len(member_id) if member_id in self._pending else 0
        metadata = sum([len(name) + len(each) for name, each in member.protocols])
        return len(member_id) + metadata

    def size_max(self) -> int:
        """How many members there may be."""
        return min(self.settings.max_size, MEMBERS_MAX)

    # The log, the clock.

    def save(self, answers: Iterable[Answer] = ()) -> Effects:
        """Write the whole group as it is; the answers are given when it is written.

        While it rebalances the row is such that whoever takes over lets it rebalance, too.
        Raises CodecError when a member fits into no entry.
        """
        ahead = int(self._state is State.PREPARING)
        assignments = {member.member_id: member.assignment for member in self.members}
        self._begin_write(self._change(assignments, ahead=ahead), lambda now_ms: None)
        self._held += answers
        return self._effects()

    def written(self, now_ms: int) -> Effects:
        """The Write that an earlier call returned is applied."""
        assert self._then is not None
        then, self._then = self._then, None
        then(now_ms)
        self._answers += self._held
        self._held = []
        return self._effects()

    def abandon(self, code: ErrorCode) -> list[Answer]:
        """An answer with this error for every parked token; the object is dead afterwards."""
        self._then = None
        answers = [Answer(token, type(response)(error_code=code)) for token, response in self._held]
        for member in self.members:
            self._answer_join(member, code)
            self._answer_sync(member, code)
        answers += self._answers
        self._held, self._answers = [], []
        self._state = State.DEAD
        self._wake_ms = NEVER_MS
        return answers

    def tick(self, now_ms: int) -> Effects:
        """Do what is due."""
        if now_ms < self._wake_ms:
            return []
        due = [timer for timer in self._timers() if timer[0] <= now_ms]
        for _, what, member_id in sorted(due, key=lambda timer: (timer[0], timer[1].value)):
            if self._then is not None:
                break  # The rest is still due when it is written.
            self._expire(what, member_id, now_ms)
        self._wake_ms = min((timer[0] for timer in self._timers()), default=NEVER_MS)
        return self._effects()

    def deadline_ms(self) -> int | None:
        """When `tick` must be called next; an earlier call does nothing."""
        return None if self._wake_ms >= NEVER_MS else self._wake_ms

    def _timers(self) -> Iterator[tuple[int, _Due, str]]:
        for member in self.members:
            if member.deadline_ms < NEVER_MS:
                yield member.deadline_ms, _Due.MEMBER, member.member_id
        for member_id, deadline_ms in self._pending.items():
            yield deadline_ms, _Due.PENDING, member_id
        if self._join_at_ms < NEVER_MS:
            yield self._join_at_ms, _Due.JOIN, ""
        if self._sync_at_ms < NEVER_MS:
            yield self._sync_at_ms, _Due.SYNC, ""

    def _expire(self, what: _Due, member_id: str, now_ms: int) -> None:
        """Let a timer fire, unless what fired before it has moved it."""
        match what:
            case _Due.MEMBER:
                member = self.members.get(member_id)
                if member is not None and member.deadline_ms <= now_ms:
                    self._expire_member(member, now_ms)
            case _Due.PENDING:
                if self._pending.get(member_id, NEVER_MS) <= now_ms:
                    del self._pending[member_id]
                    self._complete_if_joined(now_ms)
            case _Due.JOIN:
                if self._join_at_ms <= now_ms:
                    self._expire_join(now_ms)
            case _Due.SYNC:
                if self._sync_at_ms <= now_ms:
                    self._expire_sync(now_ms)

    def _expire_member(self, member: ClassicMember, now_ms: int) -> None:
        if not member.may_expire():
            member.deadline_ms = NEVER_MS  # It gets a new one with the answer it waits for.
            return
        self._remove(member)
        if self._state in (State.STABLE, State.COMPLETING):
            self._prepare(now_ms)
        else:
            self._complete_if_joined(now_ms)

    def _expire_join(self, now_ms: int) -> None:
        if self._initial and self._newcomer and self._delay_left_ms > 0:
            self._newcomer = False
            delay_ms = min(self.settings.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms = max(self._delay_left_ms - self._delay_ms, 0)
            self._delay_ms = delay_ms
            self._join_at_ms = self._wake_at(now_ms + delay_ms)
        else:
            self._complete_join(now_ms)

    def _expire_sync(self, now_ms: int) -> None:
        """Members that never fetched their assignment are not there (KIP-597)."""
        self._sync_at_ms = NEVER_MS
        if late := [member for member in self.members if member.member_id in self._unsynced]:
            for member in late:
                self._remove(member)
            self._prepare(now_ms)

    def _wake_at(self, deadline_ms: int) -> int:
        self._wake_ms = min(self._wake_ms, deadline_ms)
        return deadline_ms

    def _hear(self, member: ClassicMember, now_ms: int) -> None:
        """A member is there: it has its session timeout again from now on."""
        member.deadline_ms = self._wake_at(now_ms + member.session_timeout_ms)

    # The join phase.

    def _prepare_or_complete(self, now_ms: int) -> None:
        if self._state is State.PREPARING:
            if not self._initial:
                self._complete_if_joined(now_ms)
        else:
            self._prepare(now_ms)

    def _prepare(self, now_ms: int, error: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
        """Begin a rebalance: all have to join again."""
        assert self._state is not State.PREPARING
        if self._state is State.COMPLETING:
            self._forget_assignment(error, now_ms)
        self._unsynced.clear()
        self._sync_at_ms = NEVER_MS
        self._initial = self._state is State.EMPTY
        self._state = State.PREPARING
        if self._initial:
            self._newcomer = False
            self._delay_ms = self.settings.initial_rebalance_delay_ms
            timeout_ms = self.members.rebalance_timeout_ms()
            self._delay_left_ms = max(timeout_ms - self._delay_ms, 0)
            self._join_at_ms = self._wake_at(now_ms + self._delay_ms)
        elif self._all_joined():
            self._complete_join(now_ms)
        else:
            self._await_joins(now_ms)

    def _await_joins(self, now_ms: int) -> None:
        timeout_ms = max(self.members.rebalance_timeout_ms(), 0)
        self._join_at_ms = self._wake_at(now_ms + timeout_ms)

    def _all_joined(self) -> bool:
        return self.members.awaiting_join == len(self.members) and not self._pending

    def _complete_if_joined(self, now_ms: int) -> None:
        """For who has gone: a rebalance may have waited for nobody else."""
        if self._state is State.PREPARING and self._all_joined():
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """The next generation is of those who have joined, and of static members."""
        assert self._state is State.PREPARING
        self._join_at_ms = NEVER_MS
        for member in list(self.members):
            if member.join_token is None and member.instance_id is None:
                self._remove(member)
        if not self.members.elect() and len(self.members):
            # Static members are left to their sessions.
            timeout_ms = max(self.members.rebalance_timeout_ms(), POSTPONE_MS_MIN)
            self._join_at_ms = self._wake_at(now_ms + timeout_ms)
            return
        self.generation = max(self.generation, self._row_epoch) + 1
        self._forget_views()
        if len(self.members):
            self._await_assignment(now_ms)
        else:
            self._become_empty()

    def _become_empty(self) -> None:
        self._state = State.EMPTY
        self.protocol_name = None
        self._begin_write(self._change({}), lambda now_ms: None)

    def _await_assignment(self, now_ms: int) -> None:
        self._state = State.COMPLETING
        self.protocol_name = self.members.select_protocol()
        for member in self.members:
            token = self.members.unpark_join(member)
            if token is not None:
                self._answer(token, self._joined(member))
            member.is_new = False
            self._hear(member, now_ms)
            self._unsynced.add(member.member_id)
        timeout_ms = max(self.members.rebalance_timeout_ms(), 0)
        self._sync_at_ms = self._wake_at(now_ms + timeout_ms)

    # The sync phase.

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Write what the leader decided; its members hear of it when it is written."""
        assert self._state is State.COMPLETING

        def then(written_ms: int) -> None:
            for member in self.members:
                member.assignment = assignments.get(member.member_id, b"")
            self._forget_views()
            self._state = State.STABLE
            for member in self.members:
                if member.sync_token is not None:
                    self._answer(member.sync_token, self._synced(member))
                    member.sync_token = None
                    self._hear(member, written_ms)

        try:
            write = self._change(assignments)
        except CodecError:
            # As Kafka's RECORD_TOO_LARGE: it can be written neither now nor later.
            self._prepare(now_ms, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._begin_write(write, then)

    def _forget_assignment(self, error: ErrorCode, now_ms: int) -> None:
        """The generation ends without one; who waits for it hears why."""
        for member in self.members:
            member.assignment = b""
            if member.sync_token is not None:
                self._answer_sync(member, error)
                self._hear(member, now_ms)
        self._forget_views()

    def _received_sync(self, member: ClassicMember) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._sync_at_ms = NEVER_MS

    def _forget_views(self) -> None:
        """What was read from the members' bytes may not be so any more."""
        self._owners = None
        self._topics_known = False

    # Writes and answers.

    def _change(self, assignments: Mapping[str, bytes], *, ahead: int = 0) -> Write:
        """The log is to have the group as it is, with these assignments. Raises CodecError."""
        members = self.members
        return self._group_write(
            self.generation + ahead,
            put=[self._row(member, assignments.get(member.member_id, b"")) for member in members],
            removed=[member_id for member_id in self._row_ids if member_id not in members],
        )

    def _change_member(self, old: ClassicMember, new: ClassicMember) -> Write:
        """The log is to have a member under a new id, at once or not at all. Raises CodecError."""
        write = self._group_write(
            self.generation, put=[self._row(new, new.assignment)], removed=[old.member_id]
        )
        if len(write.commands) > 1:
            raise TooLargeError("a member's new id does not fit into one entry")
        return write

    def _group_write(self, epoch: int, *, put: list[GroupMember], removed: list[str]) -> Write:
        body = GroupBody(self.group_protocol_type, self.protocol_name, self.members.leader_id)
        return group_write(
            self.group_id,
            kind=GroupKind.CLASSIC,
            epoch_before=self._row_epoch,
            epoch=epoch,
            body=encode_group(body),
            put=put,
            removed=removed,
        )

    def _row(self, member: ClassicMember, assignment: bytes) -> GroupMember:
        body = encode_member(replace(member, assignment=assignment))
        return GroupMember(member.member_id, self.generation, body)

    def _begin_write(self, write: Write, then: Callable[[int], None]) -> None:
        assert self._then is None
        self._write = write
        self._then = then
        last = write.commands[-1]
        assert isinstance(last, ChangeGroup)
        self._row_epoch = last.epoch
        self._row_ids = self.members.ids()
        self._row_generation = self.generation

    def _effects(self) -> Effects:
        """What this call has come to."""
        effects: Effects = [*self._answers]
        self._answers = []
        if self._write is not None:
            effects.append(self._write)
            self._write = None
        return effects

    def _answer(self, token: int, response: Any) -> None:
        """At once, or when what this call has begun to write is written."""
        (self._answers if self._then is None else self._held).append(Answer(token, response))

    def _joined(self, member: ClassicMember) -> JoinGroupResponse:
        """The current generation; only the leader hears who else is in it."""
        leads = member.member_id == self.members.leader_id
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.group_protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader_id or "",
            member_id=member.member_id,
            members=self._told_members() if leads else [],
        )

    def _told_members(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name) or b"",
            )
            for member in self.members
        ]

    def _synced(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.group_protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _answer_join(
        self, member: ClassicMember, error: ErrorCode, *, member_id: str | None = None
    ) -> None:
        """Refuse a parked join, if there is one."""
        token = self.members.unpark_join(member)
        if token is not None:
            told_id = member.member_id if member_id is None else member_id
            self._answer(token, JoinGroupResponse(error_code=error, member_id=told_id))

    def _answer_sync(self, member: ClassicMember, error: ErrorCode) -> None:
        """Refuse a parked sync, if there is one."""
        token, member.sync_token = member.sync_token, None
        if token is not None:
            self._answer(token, SyncGroupResponse(error_code=error))

    def _validate(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Is this a member, under this id?"""
        if instance_id is not None:
            known_id = self.members.id_of(instance_id)
            if known_id is not None and known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _remove(self, member: ClassicMember) -> None:
        """A member is gone. If it still asks, it is to join as a new one."""
        self._answer_join(member, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
        self._answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._unsynced.discard(member.member_id)
        self.members.remove(member)
