"""Commands about groups, and about configs of topics, as bytes in an entry.

    ClaimShards       the shards as bits of a number
    ReleaseShards     the shards, the successor
    ChangeGroup       group id, kind, epoch before, epoch, body, members, ids of removed members
    DeleteGroup       group id, 1: only without offsets
    CommitOffsets     group id, member id, epoch, offsets
    DeleteOffsets     group id, places
    ExpireOffsets     group id, retention, places
    SetGroupConfigs   group id, changes: name, then 0 for null or 1 and the value
    SetTopicConfigs   topic id, changes

Offsets and places are laid out by `row_codec`.
"""

from collections.abc import Callable
from typing import Any, Final

from coordinator.commands.encoding import (
    CONFIGS_MAX,
    U63,
    CodecError,
    bounded,
    put_bytes,
    put_number,
    put_string,
    put_topic_id,
    put_varint,
    read_bytes,
    read_number,
    read_string,
    read_topic_id,
)
from coordinator.commands.entries import Command
from coordinator.commands.group_commands import (
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupKind,
    GroupMember,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
)
from coordinator.commands.row_codec import (
    put_epoch,
    put_offsets,
    put_places,
    read_epoch,
    read_offsets,
    read_places,
)
from protocol.types import Incarnation

# Claims.


def _put_shards(out: bytearray, shards: tuple[int, ...]) -> None:
    if not all(0 <= shard < GROUP_SHARDS for shard in shards) or [*shards] != sorted({*shards}):
        raise CodecError(f"shards {shards}")
    put_varint(out, sum(1 << shard for shard in shards))


def _read_shards(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    mask, at = read_number(data, at, (1 << GROUP_SHARDS) - 1)
    return tuple([shard for shard in range(GROUP_SHARDS) if mask >> shard & 1]), at


def _put_claim(out: bytearray, command: ClaimShards) -> None:
    _put_shards(out, command.shards)


def _read_claim(data: bytes, at: int) -> tuple[ClaimShards, int]:
    shards, at = _read_shards(data, at)
    return ClaimShards(shards), at


def _put_release(out: bytearray, command: ReleaseShards) -> None:
    _put_shards(out, command.shards)
    put_number(out, command.successor, U63)


def _read_release(data: bytes, at: int) -> tuple[ReleaseShards, int]:
    shards, at = _read_shards(data, at)
    successor, at = read_number(data, at, U63)
    return ReleaseShards(shards, Incarnation(successor)), at


# Groups.


def _put_change(out: bytearray, command: ChangeGroup) -> None:
    put_string(out, command.group_id)
    out.append(command.kind)
    put_epoch(out, command.epoch_before)
    put_epoch(out, command.epoch)
    put_bytes(out, command.body)
    put_varint(out, len(command.put))
    for member_id, epoch, body in command.put:
        put_string(out, member_id)
        put_epoch(out, epoch)
        put_bytes(out, body)
    put_varint(out, len(command.removed))
    for member_id in command.removed:
        put_string(out, member_id)


def _read_change(data: bytes, at: int) -> tuple[ChangeGroup, int]:
    group_id, at = read_string(data, at)
    kind = _KINDS.get(data[at])
    if kind is None:
        raise CodecError(f"a group of kind {data[at]}")
    epoch_before, at = read_epoch(data, at + 1)
    epoch, at = read_epoch(data, at)
    body, at = read_bytes(data, at)
    count, at = read_number(data, at, len(data))
    put = []
    for _ in range(count):
        member_id, at = read_string(data, at)
        member_epoch, at = read_epoch(data, at)
        member_body, at = read_bytes(data, at)
        put.append(GroupMember(member_id, member_epoch, member_body))
    count, at = read_number(data, at, len(data))
    removed = []
    for _ in range(count):
        member_id, at = read_string(data, at)
        removed.append(member_id)
    command = ChangeGroup(
        group_id=group_id,
        kind=kind,
        epoch_before=epoch_before,
        epoch=epoch,
        body=body,
        put=tuple(put),
        removed=tuple(removed),
    )
    return command, at


_KINDS: Final = {kind.value: kind for kind in GroupKind}


def _put_delete(out: bytearray, command: DeleteGroup) -> None:
    put_string(out, command.group_id)
    out.append(command.only_without_offsets)


def _read_delete(data: bytes, at: int) -> tuple[DeleteGroup, int]:
    group_id, at = read_string(data, at)
    if data[at] > 1:
        raise CodecError(f"{data[at]} is neither yes nor no")
    return DeleteGroup(group_id, bool(data[at])), at + 1


# Offsets.


def _put_commit(out: bytearray, command: CommitOffsets) -> None:
    put_string(out, command.group_id)
    put_string(out, command.member_id)
    put_epoch(out, command.epoch)
    put_offsets(out, command.offsets)


def _read_commit(data: bytes, at: int) -> tuple[CommitOffsets, int]:
    group_id, at = read_string(data, at)
    member_id, at = read_string(data, at)
    epoch, at = read_epoch(data, at)
    offsets, at = read_offsets(data, at)
    return CommitOffsets(group_id, member_id, epoch, offsets), at


def _put_delete_offsets(out: bytearray, command: DeleteOffsets) -> None:
    put_string(out, command.group_id)
    put_places(out, command.partitions)


def _read_delete_offsets(data: bytes, at: int) -> tuple[DeleteOffsets, int]:
    group_id, at = read_string(data, at)
    partitions, at = read_places(data, at)
    return DeleteOffsets(group_id, partitions), at


def _put_expire(out: bytearray, command: ExpireOffsets) -> None:
    put_string(out, command.group_id)
    put_number(out, command.retention_ms, U63)
    put_places(out, command.partitions)


def _read_expire(data: bytes, at: int) -> tuple[ExpireOffsets, int]:
    group_id, at = read_string(data, at)
    retention_ms, at = read_number(data, at, U63)
    partitions, at = read_places(data, at)
    return ExpireOffsets(group_id, retention_ms, partitions), at


# Configs.


def _put_changes(out: bytearray, changes: tuple[tuple[str, str | None], ...]) -> None:
    put_varint(out, bounded(len(changes), CONFIGS_MAX, "configs"))
    for name, value in changes:
        put_string(out, name)
        out.append(value is not None)
        if value is not None:
            put_string(out, value)


def _read_changes(data: bytes, at: int) -> tuple[tuple[tuple[str, str | None], ...], int]:
    count, at = read_number(data, at, CONFIGS_MAX)
    changes: list[tuple[str, str | None]] = []
    for _ in range(count):
        name, at = read_string(data, at)
        value: str | None = None
        if data[at] > 1:
            raise CodecError(f"{data[at]} is neither yes nor no")
        if data[at]:
            value, at = read_string(data, at + 1)
        else:
            at += 1
        changes.append((name, value))
    return tuple(changes), at


def _put_group_configs(out: bytearray, command: SetGroupConfigs) -> None:
    put_string(out, command.group_id)
    _put_changes(out, command.configs)


def _read_group_configs(data: bytes, at: int) -> tuple[SetGroupConfigs, int]:
    group_id, at = read_string(data, at)
    changes, at = _read_changes(data, at)
    return SetGroupConfigs(group_id, changes), at


def _put_topic_configs(out: bytearray, command: SetTopicConfigs) -> None:
    put_topic_id(out, command.topic_id)
    _put_changes(out, command.configs)


def _read_topic_configs(data: bytes, at: int) -> tuple[SetTopicConfigs, int]:
    topic_id, at = read_topic_id(data, at)
    changes, at = _read_changes(data, at)
    return SetTopicConfigs(topic_id, changes), at


GROUP_ENCODERS: Final[dict[type[Command], tuple[int, Callable[[bytearray, Any], None]]]] = {
    ClaimShards: (11, _put_claim),
    ReleaseShards: (12, _put_release),
    ChangeGroup: (13, _put_change),
    DeleteGroup: (14, _put_delete),
    CommitOffsets: (15, _put_commit),
    DeleteOffsets: (16, _put_delete_offsets),
    ExpireOffsets: (17, _put_expire),
    SetGroupConfigs: (18, _put_group_configs),
    SetTopicConfigs: (19, _put_topic_configs),
}

GROUP_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[Command, int]]]] = {
    11: _read_claim,
    12: _read_release,
    13: _read_change,
    14: _read_delete,
    15: _read_commit,
    16: _read_delete_offsets,
    17: _read_expire,
    18: _read_group_configs,
    19: _read_topic_configs,
}
