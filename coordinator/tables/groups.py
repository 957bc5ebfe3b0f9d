"""The table of groups: claims of shards, groups with their members, committed offsets, configs.

A command about a group changes nothing unless its writer holds the group's shard
(NOT_COORDINATOR); configs of a group id may be set by any agent. A command is judged before it
touches anything. Decisions of the protocols are none of this: the coordinator made them, and
`broker.groups` says how.

Invariants: a shard is held by a live incarnation or by nobody; a group is in the table of its id's
shard, in order of creation; `offset_rows`, `pending_rows` and `size` count what all groups have.

Left out: the transactions whose offsets wait here for the end (`transactions`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, assert_never

from crc32c import crc32c

from coordinator.commands.encoding import STRING_BYTES_MAX
from coordinator.commands.entries import DONE, Done, Rejected, too_many
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    GroupKind,
    OffsetsCommitted,
    ReleaseShards,
    SetGroupConfigs,
    ShardsClaimed,
)
from coordinator.commands.layout import Int64
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from coordinator.tables.group_offsets import GroupOffsets, OffsetRow
from coordinator.tables.incarnations import Incarnations
from coordinator.tables.objects import Moment
from coordinator.tables.topics import Topic, Topics
from protocol.errors import ErrorCode
from protocol.types import Incarnation, Position, TopicId

__all__ = [
    "GROUP_SHARDS",
    "GroupOffsets",
    "GroupRow",
    "Groups",
    "MemberRow",
    "OffsetRow",
    "shard_of",
]

GROUPS_MAX = 100_000
MEMBERS_MAX = 5_000
"""Of one group."""
OFFSET_ROWS_MAX = 2_000_000
"""Of the whole cluster, those of deleted topics and those that wait included."""
PENDING_OFFSETS_MAX = 200_000
"""Offsets of the whole cluster that wait for the ends of transactions."""
GROUP_ID_BYTES_MAX = STRING_BYTES_MAX
CONFIGURED_GROUPS_MAX = 10_000
GROUP_CONFIGS_MAX = 100
"""Of one group id."""
GROUP_COMMAND_ROWS_MAX = 1_000
"""Members, offsets or configs in one command (docs/design/log-and-sessions.md §10, small steps)."""
GROUPS_SIZE_MAX = 512 * 1024 * 1024
"""Bytes of bodies, and characters of ids, metadata and configs, of the whole cluster."""

_Fenced = ChangeGroup | DeleteGroup | CommitOffsets | DeleteOffsets | ExpireOffsets
"""Commands that only the holder of the group's shard may write."""

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
_NOT_HELD = Rejected(ErrorCode.NOT_COORDINATOR, "the group's shard is not held by the writer")
_NO_GROUP = Rejected(ErrorCode.GROUP_ID_NOT_FOUND, "there is no group of this id")


def shard_of(group_id: str) -> int:
    """The shard of a group id; the same on every agent, for ever."""
    return crc32c(group_id.encode()) % GROUP_SHARDS


class MemberRow(NamedTuple):
    epoch: Int64
    """Classic: the generation it is in; KIP-848: its member epoch."""
    body: bytes


@dataclass(slots=True, eq=False)
class GroupRow:
    """A group. To be read only, but by `apply`."""

    group_id: str
    changed: Position
    """Of the newest ChangeGroup, or of the commit that created the group."""
    empty_since_ms: int
    """The machine's time since when there are no members; says nothing while there are."""
    kind: GroupKind = GroupKind.CLASSIC
    epoch: int = 0
    """Classic: the generation; KIP-848: the group epoch."""
    body: bytes = b""
    members: dict[str, MemberRow] = field(default_factory=dict)
    """By member id. A member that is replaced keeps its place."""
    offsets: GroupOffsets = field(default_factory=GroupOffsets)


class Groups:
    """Groups that exist, and who coordinates them."""

    def __init__(self, incarnations: Incarnations, topics: Topics) -> None:
        self._incarnations = incarnations
        self._topics = topics
        self._holders: list[Incarnation | None] = [None] * GROUP_SHARDS
        self._shards: list[dict[str, GroupRow]] = [{} for _ in range(GROUP_SHARDS)]
        self._configs: dict[str, dict[str, str]] = {}
        self._count = 0
        self.offset_rows = 0
        """Committed offsets of all groups, and such as wait."""
        self.pending_rows = 0
        """Offsets of all groups that wait for the ends of transactions."""
        self.size = 0
        """What GROUPS_SIZE_MAX bounds."""

    def __len__(self) -> int:
        """Groups."""
        return self._count

    def get(self, group_id: str) -> GroupRow | None:
        return self._shards[shard_of(group_id)].get(group_id)

    def of_shard(self, shard: int) -> Iterator[GroupRow]:
        """The groups of a shard in order of creation."""
        return iter(self._shards[shard].values())

    def holder(self, shard: int) -> Incarnation | None:
        """The live incarnation that holds the shard; None: it is free."""
        return self._holders[shard]

    def held_by(self, incarnation: Incarnation) -> tuple[int, ...]:
        """Shards, ascending."""
        return tuple([shard for shard, holder in enumerate(self._holders) if holder == incarnation])

    def configs(self, group_id: str) -> Mapping[str, str]:
        """What was set for the group id, sorted by name, whether or not there is a group."""
        return self._configs.get(group_id, _NO_CONFIGS)

    def groups_with_configs(self) -> list[str]:
        """Group ids in the order in which they first got configs."""
        return list(self._configs)

    def close(self, incarnation: Incarnation) -> None:
        """For `apply`: the incarnation has ended; its shards are free."""
        for shard in self.held_by(incarnation):
            self._holders[shard] = None

    def begin_era(self, moment: Moment) -> None:
        """No group has members any more (`Machine.begin_era`); its committed offsets are what they were.

        A member may have read what is lost, and would commit where it stands: other records will have those
        offsets, and the group would never see them. Told that it is unknown, it joins again and goes on from
        what is committed.
        """
        for shard in self._shards:
            for group in shard.values():
                if not group.members:
                    continue
                members = [_member_size(id_, row.body) for id_, row in group.members.items()]
                self.size -= len(group.body) + sum(members)
                group.members.clear()
                group.empty_since_ms = moment.time_ms
                # As one that has offsets and never had members; its epoch never comes again.
                group.kind, group.body = GroupKind.CLASSIC, b""
                group.epoch += 1
                group.changed = moment.position

    def apply(
        self, command: GroupCommand, *, writer: Incarnation, moment: Moment
    ) -> Done | Rejected | ShardsClaimed | OffsetsCommitted:
        """For `apply`: judge the command of a live writer, then carry it out."""
        match command:
            case (
                CommitOffsets() | ChangeGroup() | DeleteGroup() | DeleteOffsets() | ExpireOffsets()
            ):
                if (rejected := self.validate_holder(command.group_id, writer)) is not None:
                    return rejected
                return self._apply_fenced(command, moment)
            case ClaimShards():
                return self._claim(command, writer)
            case ReleaseShards():
                return self._release(command, writer)
            case SetGroupConfigs():
                return self._set_configs(command)
            case _:
                assert_never(command)

    def _apply_fenced(self, command: _Fenced, moment: Moment) -> Done | Rejected | OffsetsCommitted:
        match command:
            case CommitOffsets():
                return self._commit_offsets(command, moment)
            case ChangeGroup():
                return self._change(command, moment)
            case DeleteGroup():
                return self._delete(command)
            case DeleteOffsets():
                return self._delete_offsets(command)
            case ExpireOffsets():
                return self._expire_offsets(command, moment.time_ms)
            case _:
                assert_never(command)

    # Claims.

    def _claim(self, command: ClaimShards, writer: Incarnation) -> ShardsClaimed:
        for shard in command.shards:
            if self._holders[shard] is None:
                self._holders[shard] = writer
        held = [shard for shard in command.shards if self._holders[shard] == writer]
        return ShardsClaimed(tuple(held))

    def _release(self, command: ReleaseShards, writer: Incarnation) -> Done:
        live = self._incarnations.get(command.successor) is not None
        for shard in command.shards:
            if self._holders[shard] == writer:
                self._holders[shard] = command.successor if live else None
        return DONE

    # Groups.

    def _change(self, command: ChangeGroup, moment: Moment) -> Done | Rejected:
        group = self.get(command.group_id)
        if (rejected := self._validate_change(command, group)) is not None:
            return rejected
        members, growth = _after_change(command, group)
        if members > max(MEMBERS_MAX, len(group.members) if group is not None else 0):
            reason = f"a group has at most {MEMBERS_MAX} members"
            return Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
        if growth > 0 and self.size + growth > GROUPS_SIZE_MAX:
            return _too_much()
        if group is None:
            group = self._create(command.group_id, moment)
        self.size += growth
        had_members = bool(group.members)
        for member_id in command.removed:
            del group.members[member_id]
        for member_id, epoch, body in command.put:
            group.members[member_id] = MemberRow(epoch, body)
        if had_members and not group.members:
            group.empty_since_ms = moment.time_ms
        group.kind = command.kind
        group.epoch = command.epoch
        group.body = command.body
        group.changed = moment.position
        return DONE

    def _validate_change(self, command: ChangeGroup, group: GroupRow | None) -> Rejected | None:
        epoch = group.epoch if group is not None else GROUP_NEW
        if epoch != command.epoch_before:
            reason = f"the group is at epoch {epoch}, not {command.epoch_before} (new: {GROUP_NEW})"
            return Rejected(ErrorCode.ILLEGAL_GENERATION, reason)
        if command.epoch < max(command.epoch_before, 0):
            reason = f"epoch {command.epoch} after {command.epoch_before}"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if (
            rejected := too_many(len(command.put) + len(command.removed), GROUP_COMMAND_ROWS_MAX)
        ) is not None:
            return rejected
        if group is None and (rejected := self._validate_new(command.group_id)) is not None:
            return rejected
        members = group.members if group is not None else {}
        for member_id in command.removed:
            if member_id not in members:
                return Rejected(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no member '{member_id}'")
        if len({*command.removed}) != len(command.removed):
            return Rejected(ErrorCode.INVALID_REQUEST, "a member is removed twice")
        return None

    def _validate_new(self, group_id: str) -> Rejected | None:
        """Why there cannot be one more group, of this id."""
        if not 0 < len(group_id.encode()) <= GROUP_ID_BYTES_MAX:
            reason = f"a group id has 1 to {GROUP_ID_BYTES_MAX} bytes"
            return Rejected(ErrorCode.INVALID_GROUP_ID, reason)
        if self._count >= GROUPS_MAX:
            return Rejected(ErrorCode.POLICY_VIOLATION, f"there are {GROUPS_MAX} groups already")
        return None

    def _create(self, group_id: str, moment: Moment) -> GroupRow:
        group = GroupRow(group_id, *moment)
        self._shards[shard_of(group_id)][group_id] = group
        self._count += 1
        return group

    def _delete(self, command: DeleteGroup) -> Done | Rejected:
        group = self.get(command.group_id)
        if group is None:
            return _NO_GROUP
        if group.members:
            return Rejected(ErrorCode.NON_EMPTY_GROUP, "the group has members")
        rows, pending, size = group.offsets.counts()
        if command.only_without_offsets and rows:
            return Rejected(ErrorCode.NON_EMPTY_GROUP, "the group has offsets")
        del self._shards[shard_of(command.group_id)][command.group_id]
        self._count -= 1
        self.offset_rows -= rows
        self.pending_rows -= pending
        self.size -= len(group.group_id) + len(group.body) + size
        return DONE

    # Offsets.

    def _commit_offsets(
        self, command: CommitOffsets, moment: Moment
    ) -> OffsetsCommitted | Rejected:
        group = self.get(command.group_id)
        if (rejected := self._validate_commit(command, group)) is not None:
            return rejected
        errors, accepted = self._sort_out(command.offsets)
        if not accepted:
            return OffsetsCommitted(errors)
        if (rejected := self._validate_room(command.group_id, group, accepted)) is not None:
            return rejected
        if group is None:
            group = self._create_by_commit(command.group_id, moment)
        offsets = group.offsets
        counts = offsets.counts()
        time_ms = moment.time_ms
        for committed in accepted:
            offsets.put(committed, time_ms)
        self._count_again(offsets, counts)
        return OffsetsCommitted(errors)

    def _create_by_commit(self, group_id: str, moment: Moment) -> GroupRow:
        self.size += len(group_id)
        return self._create(group_id, moment)

    def _count_again(self, offsets: GroupOffsets, before: tuple[int, int, int]) -> None:
        """`before`: what `counts` of the offsets gave before they changed."""
        rows, pending, size = offsets.counts()
        self.offset_rows += rows - before[0]
        self.pending_rows += pending - before[1]
        self.size += size - before[2]

    def _validate_commit(
        self, command: CommitOffsets | CommitTransactionOffsets, group: GroupRow | None
    ) -> Rejected | None:
        if (rejected := too_many(len(command.offsets), GROUP_COMMAND_ROWS_MAX)) is not None:
            return rejected
        by_no_member = command.member_id == "" and command.epoch == EPOCH_NONE
        if group is None:
            return self._validate_new(command.group_id) if by_no_member else _NO_GROUP
        # In transactions an old client says nothing about members (KIP-447).
        if by_no_member and (isinstance(command, CommitTransactionOffsets) or not group.members):
            return None
        member = group.members.get(command.member_id)
        if member is None:
            reason = f"there is no member '{command.member_id}'"
            return Rejected(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        if member.epoch == command.epoch:
            return None
        reason = f"the member is at epoch {member.epoch}, not {command.epoch}"
        if group.kind is GroupKind.CONSUMER:
            return Rejected(ErrorCode.STALE_MEMBER_EPOCH, reason)
        return Rejected(ErrorCode.ILLEGAL_GENERATION, reason)

    def _sort_out(
        self, offsets: tuple[CommittedOffset, ...]
    ) -> tuple[tuple[ErrorCode, ...], list[CommittedOffset]]:
        """An error for each of the offsets, and those that can be committed."""
        errors: list[ErrorCode] = []
        accepted: list[CommittedOffset] = []
        topic_id: TopicId | None = None
        topic: Topic | None = None
        for committed in offsets:
            if committed.topic_id != topic_id:
                topic_id = committed.topic_id
                topic = self._topics.by_id(topic_id)
            if topic is None:
                errors.append(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not 0 <= committed.partition < topic.partition_count:
                errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                errors.append(ErrorCode.NONE)
                accepted.append(committed)
        return tuple(errors), accepted

    def _validate_room(
        self, group_id: str, group: GroupRow | None, accepted: list[CommittedOffset]
    ) -> Rejected | None:
        """Whether the offsets find room. What they replace is looked at only near a bound."""
        growth = sum([len(committed.metadata) for committed in accepted])
        if group is None:
            growth += len(group_id)
        if (
            self.offset_rows + len(accepted) <= OFFSET_ROWS_MAX
            and self.size + growth <= GROUPS_SIZE_MAX
        ):
            return None
        new: set[tuple[TopicId, int]] = set()
        for committed in accepted:
            place = (committed.topic_id, committed.partition)
            before = group.offsets.get(*place) if group is not None else None
            if before is None:
                new.add(place)
            else:
                growth -= len(before.metadata)
        if new and self.offset_rows + len(new) > OFFSET_ROWS_MAX:
            reason = f"a cluster has at most {OFFSET_ROWS_MAX} committed offsets"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        if growth > 0 and self.size + growth > GROUPS_SIZE_MAX:
            return _too_much()
        return None

    # Offsets in transactions.

    def validate_pending(
        self, command: CommitTransactionOffsets
    ) -> tuple[tuple[ErrorCode, ...], list[CommittedOffset]] | Rejected:
        """An error for each of the offsets and those that may wait, or why none of them may."""
        group = self.get(command.group_id)
        if (rejected := self._validate_commit(command, group)) is not None:
            return rejected
        errors, accepted = self._sort_out(command.offsets)
        if (
            self.pending_rows + len(accepted) > PENDING_OFFSETS_MAX
            or self.offset_rows + len(accepted) > OFFSET_ROWS_MAX
        ):
            reason = f"at most {PENDING_OFFSETS_MAX} offsets wait for the ends of transactions"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        growth = sum([len(committed.metadata) for committed in accepted])
        if self.size + growth + len(command.group_id) > GROUPS_SIZE_MAX:
            return _too_much()
        return errors, accepted

    def validate_holder(self, group_id: str, writer: Incarnation) -> Rejected | None:
        """Why the writer may not change the group."""
        return None if self._holders[shard_of(group_id)] == writer else _NOT_HELD

    def put_pending(
        self,
        command: CommitTransactionOffsets,
        accepted: list[CommittedOffset],
        moment: Moment,
    ) -> None:
        """These wait from now on; `validate_pending` accepted them."""
        if not accepted:
            return
        group = self.get(command.group_id)
        if group is None:
            group = self._create_by_commit(command.group_id, moment)
        counts = group.offsets.counts()
        for committed in accepted:
            group.offsets.put_pending(command.producer_id, committed)
        self._count_again(group.offsets, counts)

    def end_pending(self, group_id: str, producer_id: int, *, commit: bool, time_ms: int) -> None:
        """The producer's transaction ends: what waited of it is committed, or forgotten."""
        group = self.get(group_id)
        if group is None:
            return
        counts = group.offsets.counts()
        for pending in group.offsets.take_pending(producer_id):
            if commit and self._topics.by_id(pending.committed.topic_id) is not None:
                group.offsets.put_ended(pending, time_ms)
        self._count_again(group.offsets, counts)

    # Offsets that go.

    def _delete_offsets(self, command: DeleteOffsets) -> Done | Rejected:
        group = self.get(command.group_id)
        if group is None:
            return _NO_GROUP
        if (rejected := too_many(len(command.partitions), GROUP_COMMAND_ROWS_MAX)) is not None:
            return rejected
        self._forget(group, command.partitions)
        return DONE

    def _expire_offsets(self, command: ExpireOffsets, time_ms: int) -> Done | Rejected:
        group = self.get(command.group_id)
        if group is None:
            return _NO_GROUP
        if (rejected := too_many(len(command.partitions), GROUP_COMMAND_ROWS_MAX)) is not None:
            return rejected
        old_ms = time_ms - command.retention_ms
        empty_since_ms = 0 if group.members else group.empty_since_ms
        expired = []
        for topic_id, partition in command.partitions:
            row = group.offsets.get(topic_id, partition)
            is_old = row is not None and max(row.committed_ms, empty_since_ms) <= old_ms
            waits = group.offsets.has_pending(topic_id, partition)
            if (is_old and not waits) or self._topics.by_id(topic_id) is None:
                expired.append((topic_id, partition))
        self._forget(group, tuple(expired))
        return DONE

    def _forget(self, group: GroupRow, partitions: tuple[tuple[TopicId, int], ...]) -> None:
        counts = group.offsets.counts()
        for topic_id, partition in partitions:
            group.offsets.remove(topic_id, partition)
        self._count_again(group.offsets, counts)

    # Configs.

    def _set_configs(self, command: SetGroupConfigs) -> Done | Rejected:
        if not 0 < len(command.group_id.encode()) <= GROUP_ID_BYTES_MAX:
            reason = f"a group id has 1 to {GROUP_ID_BYTES_MAX} bytes"
            return Rejected(ErrorCode.INVALID_GROUP_ID, reason)
        if (rejected := too_many(len(command.configs), GROUP_COMMAND_ROWS_MAX)) is not None:
            return rejected
        before = self._configs.get(command.group_id, {})
        after = changed_configs(before, command.configs)
        growth = _configs_size(command.group_id, after) - _configs_size(command.group_id, before)
        if len(after) > max(len(before), GROUP_CONFIGS_MAX):
            reason = f"a group has at most {GROUP_CONFIGS_MAX} configs"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        if after and not before and len(self._configs) >= CONFIGURED_GROUPS_MAX:
            reason = f"{CONFIGURED_GROUPS_MAX} groups have configs already"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        if growth > 0 and self.size + growth > GROUPS_SIZE_MAX:
            return _too_much()
        self.size += growth
        if after:
            self._configs[command.group_id] = after
        else:
            self._configs.pop(command.group_id, None)
        return DONE


def changed_configs(
    before: Mapping[str, str], changes: tuple[tuple[str, str | None], ...]
) -> dict[str, str]:
    """Configs after changes, of which a null removes one; sorted by name."""
    after = dict(before)
    for name, value in changes:
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    return dict(sorted(after.items()))


def _after_change(command: ChangeGroup, group: GroupRow | None) -> tuple[int, int]:
    """How many members the group will have, and by how much the table grows.

    Looks at the members that the command names and at no other.
    """
    members = group.members if group is not None else {}
    growth = len(command.body)
    growth += len(command.group_id) if group is None else -len(group.body)
    count = len(members) - len(command.removed)
    sizes: dict[str, int] = {}
    """Of the members named so far; 0: it is not there (any more)."""
    for member_id in command.removed:
        growth -= _member_size(member_id, members[member_id].body)
        sizes[member_id] = 0
    for member_id, _, body in command.put:
        if (before := sizes.get(member_id)) is None:
            row = members.get(member_id)
            before = _member_size(member_id, row.body) if row is not None else 0
        count += not before
        sizes[member_id] = _member_size(member_id, body)
        growth += sizes[member_id] - before
    return count, growth


def _member_size(member_id: str, body: bytes) -> int:
    """Never 0, which means above that there is no such member."""
    return 1 + len(member_id) + len(body)


def _configs_size(group_id: str, configs: Mapping[str, str]) -> int:
    if not configs:
        return 0
    return len(group_id) + sum([len(name) + len(value) for name, value in configs.items()])


def _too_much() -> Rejected:
    reason = f"groups take at most {GROUPS_SIZE_MAX} bytes in a cluster"
    return Rejected(ErrorCode.POLICY_VIOLATION, reason)
