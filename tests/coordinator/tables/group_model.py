"""Groups as plain dicts: what the machine's table must agree with.

No bounds, no columns; one function per command. `group_state` shows the table in the same form.
"""

from dataclasses import dataclass, field
from typing import Any

from coordinator.commands.entries import Done, Outcome, Rejected
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
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
from coordinator.tables.groups import Groups, shard_of
from protocol.errors import ErrorCode
from protocol.types import Incarnation, Position, TopicId


@dataclass
class ModelGroup:
    kind: GroupKind
    epoch: int
    body: bytes
    changed: Position
    empty_since_ms: int
    members: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    offsets: dict[tuple[TopicId, int], tuple[int, int, str, int]] = field(default_factory=dict)


@dataclass
class Model:
    topics: dict[TopicId, int]
    """Topics that exist, with their numbers of partitions."""
    live: set[Incarnation]
    holders: dict[int, Incarnation] = field(default_factory=dict)
    groups: dict[str, ModelGroup] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)

    def close(self, incarnation: Incarnation) -> None:
        self.live.discard(incarnation)
        self.holders = {
            shard: holder for shard, holder in self.holders.items() if holder != incarnation
        }

    def apply(
        self, command: GroupCommand, writer: Incarnation, position: Position, time_ms: int
    ) -> object:
        """An error code, or a tuple where the outcome has one, or None for Done."""
        match command:
            case ClaimShards(shards):
                for shard in shards:
                    self.holders.setdefault(shard, writer)
                return tuple(shard for shard in shards if self.holders[shard] == writer)
            case ReleaseShards(shards, successor):
                for shard in shards:
                    if self.holders.get(shard) == writer:
                        del self.holders[shard]
                        if successor in self.live:
                            self.holders[shard] = successor
                return None
            case SetGroupConfigs():
                return self._set_configs(command)
        if self.holders.get(shard_of(command.group_id)) != writer:
            return ErrorCode.NOT_COORDINATOR
        group = self.groups.get(command.group_id)
        if isinstance(command, ChangeGroup):
            return self._change(command, group, position, time_ms)
        if isinstance(command, CommitOffsets):
            return self._commit(command, group, position, time_ms)
        return self._tidy(command, group, time_ms)

    def _set_configs(self, command: SetGroupConfigs) -> ErrorCode | None:
        if not command.group_id:
            return ErrorCode.INVALID_GROUP_ID
        changed = dict(self.configs.get(command.group_id, {})) | dict(command.configs)
        kept = {name: value for name, value in changed.items() if value is not None}
        self.configs.pop(command.group_id, None)
        if kept:
            self.configs[command.group_id] = kept
        return None

    def _tidy(
        self,
        command: DeleteGroup | DeleteOffsets | ExpireOffsets,
        group: ModelGroup | None,
        time_ms: int,
    ) -> ErrorCode | None:
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        match command:
            case DeleteGroup(_, only_without_offsets):
                if group.members or (only_without_offsets and group.offsets):
                    return ErrorCode.NON_EMPTY_GROUP
                del self.groups[command.group_id]
            case DeleteOffsets(_, partitions):
                for place in partitions:
                    group.offsets.pop(place, None)
            case ExpireOffsets(_, retention_ms, partitions):
                for place in partitions:
                    since_ms = group.offsets.get(place, (0, 0, "", 1 << 62))[3]
                    if not group.members:
                        since_ms = max(since_ms, group.empty_since_ms)
                    if time_ms - since_ms >= retention_ms or place[0] not in self.topics:
                        group.offsets.pop(place, None)
        return None

    def _change(
        self, command: ChangeGroup, group: ModelGroup | None, position: Position, time_ms: int
    ) -> ErrorCode | None:
        if command.epoch_before != (GROUP_NEW if group is None else group.epoch):
            return ErrorCode.ILLEGAL_GENERATION
        if command.epoch < command.epoch_before or command.epoch < 0:
            return ErrorCode.INVALID_REQUEST
        if group is None and not command.group_id:
            return ErrorCode.INVALID_GROUP_ID
        before = dict(group.members) if group is not None else {}
        members = dict(before)
        for member_id in command.removed:
            if member_id not in before:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if members.pop(member_id, None) is None:
                return ErrorCode.INVALID_REQUEST
        for member_id, epoch, body in command.put:
            members[member_id] = (epoch, body)
        if group is None:
            group = ModelGroup(command.kind, 0, b"", position, time_ms)
            self.groups[command.group_id] = group
        if before and not members:
            group.empty_since_ms = time_ms
        group.kind, group.epoch, group.body = command.kind, command.epoch, command.body
        group.members, group.changed = members, position
        return None

    def _commit(
        self, command: CommitOffsets, group: ModelGroup | None, position: Position, time_ms: int
    ) -> object:
        nobody = (command.member_id, command.epoch) == ("", EPOCH_NONE)
        if group is None and not nobody:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group is None and not command.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is not None and not (nobody and not group.members):
            if command.member_id not in group.members:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if group.members[command.member_id][0] != command.epoch:
                consumer = group.kind is GroupKind.CONSUMER
                return ErrorCode.STALE_MEMBER_EPOCH if consumer else ErrorCode.ILLEGAL_GENERATION
        errors = []
        for topic_id, partition, offset, leader_epoch, metadata in command.offsets:
            if topic_id not in self.topics:
                errors.append(ErrorCode.UNKNOWN_TOPIC_ID)
            elif partition >= self.topics[topic_id]:
                errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                errors.append(ErrorCode.NONE)
                if group is None:
                    group = ModelGroup(GroupKind.CLASSIC, 0, b"", position, time_ms)
                    self.groups[command.group_id] = group
                group.offsets[topic_id, partition] = (offset, leader_epoch, metadata, time_ms)
        return tuple(errors)

    def state(self) -> object:
        """As `group_state` gives it."""
        groups = {
            group_id: (
                group.kind,
                group.epoch,
                group.body,
                group.changed,
                None if group.members else group.empty_since_ms,
                list(group.members.items()),
                dict(sorted(group.offsets.items())),
            )
            for group_id, group in sorted(self.groups.items())
        }
        holders = [self.holders.get(shard) for shard in range(GROUP_SHARDS)]
        size = sum(
            len(group_id)
            + len(group.body)
            + sum(1 + len(name) + len(body) for name, (_, body) in group.members.items())
            + sum(len(metadata) for _, _, metadata, _ in group.offsets.values())
            for group_id, group in self.groups.items()
        ) + sum(
            len(group_id) + sum(len(name) + len(value) for name, value in configs.items())
            for group_id, configs in self.configs.items()
        )
        rows = sum(len(group.offsets) for group in self.groups.values())
        configs = {
            group_id: sorted(configs.items()) for group_id, configs in sorted(self.configs.items())
        }
        return holders, groups, configs, len(groups), rows, size


def group_state(groups: Groups) -> Any:
    """Everything that can be asked of the table, as values that can be compared."""
    rows = {row.group_id: row for shard in range(GROUP_SHARDS) for row in groups.of_shard(shard)}
    shown = {}
    for group_id, row in sorted(rows.items()):
        assert groups.get(group_id) is row
        places = [
            ((topic_id, partition), tuple(committed))
            for topic_id in row.offsets.topics()
            for partition, committed in row.offsets.of_topic(topic_id)
        ]
        offsets = dict(sorted(places))
        assert len(places) == len(offsets) == len(row.offsets)
        assert all(row.offsets.get(*place) == found for place, found in offsets.items())
        shown[group_id] = (
            row.kind,
            row.epoch,
            row.body,
            row.changed,
            None if row.members else row.empty_since_ms,
            [(member_id, tuple(member)) for member_id, member in row.members.items()],
            offsets,
        )
    holders = [groups.holder(shard) for shard in range(GROUP_SHARDS)]
    configs = {
        group_id: list(groups.configs(group_id).items())
        for group_id in sorted(groups.groups_with_configs())
    }
    return holders, shown, configs, len(groups), groups.offset_rows, groups.size


def found(outcome: Outcome) -> object:
    """An outcome as the model gives it."""
    match outcome:
        case Done():
            return None
        case Rejected(error):
            return error
        case ShardsClaimed(shards):
            return shards
        case OffsetsCommitted(errors):
            return errors
        case _:
            raise AssertionError(outcome)
