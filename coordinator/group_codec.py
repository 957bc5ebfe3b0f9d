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

Offsets and places are in *runs* of one topic: the topics' ids; the number of runs; of each run the
index of the topic, the number of rows, the rows. A row says how far its partition lies behind the
one that would follow, so ascending partitions cost a byte, flags included; an offset is the
difference from the one before in its run. A hundred partitions cost about seven bytes each.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from coordinator.commands import Command
from coordinator.encoding import (
    CONFIGS_MAX,
    I32,
    TOPIC_ID_BYTES,
    U31,
    U63,
    CodecError,
    bounded,
    put_bytes,
    put_number,
    put_string,
    put_topic_id,
    put_varint,
    put_zigzag,
    read_bytes,
    read_number,
    read_string,
    read_topic_id,
    read_varint,
    read_zigzag,
)
from coordinator.group_commands import (
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupKind,
    GroupMember,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
)
from protocol.types import Incarnation, TopicId

# Flags of an offset, below the distance of its partition.
_LEADER_EPOCH = 1
"""Another one than that of the offset before in the run; the first one's differs from -1."""
_METADATA = 2
"""Others than those of the offset before; the first one's are not empty."""
_FLAG_BITS = 2


def _put_epoch(out: bytearray, epoch: int) -> None:
    if epoch not in I32:
        raise CodecError(f"epoch {epoch}")
    put_zigzag(out, epoch)


def _read_epoch(data: bytes, at: int) -> tuple[int, int]:
    epoch, at = read_zigzag(data, at)
    if epoch not in I32:
        raise CodecError(f"epoch {epoch}")
    return epoch, at


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
    _put_epoch(out, command.epoch_before)
    _put_epoch(out, command.epoch)
    put_bytes(out, command.body)
    put_varint(out, len(command.put))
    for member_id, epoch, body in command.put:
        put_string(out, member_id)
        _put_epoch(out, epoch)
        put_bytes(out, body)
    put_varint(out, len(command.removed))
    for member_id in command.removed:
        put_string(out, member_id)


def _read_change(data: bytes, at: int) -> tuple[ChangeGroup, int]:
    group_id, at = read_string(data, at)
    kind = _KINDS.get(data[at])
    if kind is None:
        raise CodecError(f"a group of kind {data[at]}")
    epoch_before, at = _read_epoch(data, at + 1)
    epoch, at = _read_epoch(data, at)
    body, at = read_bytes(data, at)
    count, at = read_number(data, at, len(data))
    put = []
    for _ in range(count):
        member_id, at = read_string(data, at)
        member_epoch, at = _read_epoch(data, at)
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
    _put_epoch(out, command.epoch)
    for run in _put_runs(out, command.offsets):
        _put_offsets(out, run)


def _read_commit(data: bytes, at: int) -> tuple[CommitOffsets, int]:
    group_id, at = read_string(data, at)
    member_id, at = read_string(data, at)
    epoch, at = _read_epoch(data, at)
    topics, run_count, at = _read_topics(data, at)
    offsets: list[CommittedOffset] = []
    for _ in range(run_count):
        topic_id, count, at = _read_run(data, at, topics)
        at = _read_offsets(data, at, topic_id, count, offsets)
    return CommitOffsets(group_id, member_id, epoch, tuple(offsets)), at


def _put_offsets(out: bytearray, run: list[CommittedOffset]) -> None:
    partition_next = offset_before = 0
    leader_epoch_before, metadata_before = -1, ""
    for _, partition, offset, leader_epoch, metadata in run:
        if not (0 <= partition <= U31 and -U63 - 1 <= offset <= U63 and leader_epoch in I32):
            raise CodecError(f"offset {offset} of partition {partition}, epoch {leader_epoch}")
        flags = (_LEADER_EPOCH if leader_epoch != leader_epoch_before else 0) | (
            _METADATA if metadata != metadata_before else 0
        )
        put_varint(out, _zigzagged(partition - partition_next) << _FLAG_BITS | flags)
        put_zigzag(out, offset - offset_before)
        if flags & _LEADER_EPOCH:
            put_zigzag(out, leader_epoch)
        if flags & _METADATA:
            put_string(out, metadata)
        partition_next, offset_before = partition + 1, offset
        leader_epoch_before, metadata_before = leader_epoch, metadata


def _read_offsets(
    data: bytes, at: int, topic_id: TopicId, count: int, offsets: list[CommittedOffset]
) -> int:
    """Appends the offsets of a run; the place after it. One-byte numbers are read in line."""
    append, make = offsets.append, CommittedOffset._make
    partition = -1
    offset = 0
    leader_epoch, metadata = -1, ""
    for _ in range(count):
        head = data[at]
        at += 1
        if head >= 0x80:
            head, at = read_varint(data, at - 1)
        distance, at = read_varint(data, at)
        partition += 1 + _unzigzagged(head >> _FLAG_BITS) if head >> _FLAG_BITS else 1
        offset += distance >> 1 ^ -(distance & 1)
        if head & _LEADER_EPOCH:
            leader_epoch, at = _read_epoch(data, at)
        if head & _METADATA:
            metadata, at = read_string(data, at)
        if not (0 <= partition <= U31 and -U63 - 1 <= offset <= U63):
            raise CodecError(f"offset {offset} of partition {partition}")
        append(make((topic_id, partition, offset, leader_epoch, metadata)))
    return at


def _put_delete_offsets(out: bytearray, command: DeleteOffsets) -> None:
    put_string(out, command.group_id)
    _put_places(out, command.partitions)


def _read_delete_offsets(data: bytes, at: int) -> tuple[DeleteOffsets, int]:
    group_id, at = read_string(data, at)
    partitions, at = _read_places(data, at)
    return DeleteOffsets(group_id, partitions), at


def _put_expire(out: bytearray, command: ExpireOffsets) -> None:
    put_string(out, command.group_id)
    put_number(out, command.retention_ms, U63)
    _put_places(out, command.partitions)


def _read_expire(data: bytes, at: int) -> tuple[ExpireOffsets, int]:
    group_id, at = read_string(data, at)
    retention_ms, at = read_number(data, at, U63)
    partitions, at = _read_places(data, at)
    return ExpireOffsets(group_id, retention_ms, partitions), at


def _put_places(out: bytearray, places: tuple[tuple[TopicId, int], ...]) -> None:
    for run in _put_runs(out, places):
        partition_next = 0
        for _, partition in run:
            if not 0 <= partition <= U31:
                raise CodecError(f"partition {partition}")
            put_zigzag(out, partition - partition_next)
            partition_next = partition + 1


def _read_places(data: bytes, at: int) -> tuple[tuple[tuple[TopicId, int], ...], int]:
    topics, run_count, at = _read_topics(data, at)
    places = []
    for _ in range(run_count):
        topic_id, count, at = _read_run(data, at, topics)
        partition_next = 0
        for _ in range(count):
            distance, at = read_zigzag(data, at)
            partition = partition_next + distance
            if not 0 <= partition <= U31:
                raise CodecError(f"partition {partition}")
            places.append((topic_id, partition))
            partition_next = partition + 1
    return tuple(places), at


# Runs of one topic.


def _put_runs(out: bytearray, rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Writes the topics and the heads of the runs; yields each run when its rows are due."""
    runs = [(topic_id, list(run)) for topic_id, run in groupby(rows, key=lambda row: row[0])]
    topics: dict[TopicId, int] = {}
    for topic_id, _ in runs:
        topics.setdefault(topic_id, len(topics))
    put_varint(out, len(topics))
    for topic_id in topics:
        put_topic_id(out, topic_id)
    put_varint(out, len(runs))
    for topic_id, run in runs:
        put_varint(out, topics[topic_id])
        put_varint(out, len(run))
        yield run


def _read_topics(data: bytes, at: int) -> tuple[list[TopicId], int, int]:
    """The topics, how many runs there are, and the place of the first."""
    count, at = read_number(data, at, len(data) // TOPIC_ID_BYTES)
    topics = []
    for _ in range(count):
        topic_id, at = read_topic_id(data, at)
        topics.append(topic_id)
    run_count, at = read_number(data, at, len(data))
    return topics, run_count, at


def _read_run(data: bytes, at: int, topics: list[TopicId]) -> tuple[TopicId, int, int]:
    """The topic, how many rows the run has, and the place of the first."""
    index, at = read_varint(data, at)
    if index >= len(topics):
        raise CodecError(f"topic {index} of {len(topics)}")
    count, at = read_number(data, at, len(data))
    return topics[index], count, at


def _zigzagged(value: int) -> int:
    return value << 1 if value >= 0 else ~value << 1 | 1


def _unzigzagged(value: int) -> int:
    return value >> 1 ^ -(value & 1)


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
