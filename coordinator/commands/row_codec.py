"""Epochs, places and offsets as commands have them, for their codecs.

Offsets and places (topic and partition) are in *runs* of one topic: the topics' ids; the number of
runs; of each run the index of the topic, the number of rows, the rows. A row says how far its
partition lies behind the one that would follow, so ascending partitions cost a byte, flags
included; an offset is the difference from the one before in its run. A hundred partitions cost
about seven bytes each.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from coordinator.commands.encoding import (
    I32,
    TOPIC_ID_BYTES,
    U31,
    U63,
    CodecError,
    put_string,
    put_topic_id,
    put_varint,
    put_zigzag,
    read_number,
    read_string,
    read_topic_id,
    read_varint,
    read_zigzag,
)
from coordinator.commands.group_commands import CommittedOffset
from protocol.types import TopicId

# Flags of an offset, below the distance of its partition.
_LEADER_EPOCH = 1
"""Another one than that of the offset before in the run; the first one's differs from -1."""
_METADATA = 2
"""Others than those of the offset before; the first one's are not empty."""
_FLAG_BITS = 2


def put_epoch(out: bytearray, epoch: int) -> None:
    if epoch not in I32:
        raise CodecError(f"epoch {epoch}")
    put_zigzag(out, epoch)


def read_epoch(data: bytes, at: int) -> tuple[int, int]:
    epoch, at = read_zigzag(data, at)
    if epoch not in I32:
        raise CodecError(f"epoch {epoch}")
    return epoch, at


# Offsets.


def put_offsets(out: bytearray, offsets: tuple[CommittedOffset, ...]) -> None:
    for run in put_runs(out, offsets):
        _put_run_of_offsets(out, run)


def read_offsets(data: bytes, at: int) -> tuple[tuple[CommittedOffset, ...], int]:
    topics, run_count, at = read_topics(data, at)
    offsets: list[CommittedOffset] = []
    for _ in range(run_count):
        topic_id, count, at = read_run(data, at, topics)
        at = _read_run_of_offsets(data, at, topic_id, count, offsets)
    return tuple(offsets), at


def _put_run_of_offsets(out: bytearray, run: list[CommittedOffset]) -> None:
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


def _read_run_of_offsets(
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
            leader_epoch, at = read_epoch(data, at)
        if head & _METADATA:
            metadata, at = read_string(data, at)
        if not (0 <= partition <= U31 and -U63 - 1 <= offset <= U63):
            raise CodecError(f"offset {offset} of partition {partition}")
        append(make((topic_id, partition, offset, leader_epoch, metadata)))
    return at


# Places.


def put_places(out: bytearray, places: tuple[tuple[TopicId, int], ...]) -> None:
    for run in put_runs(out, places):
        partition_next = 0
        for _, partition in run:
            if not 0 <= partition <= U31:
                raise CodecError(f"partition {partition}")
            put_zigzag(out, partition - partition_next)
            partition_next = partition + 1


def read_places(data: bytes, at: int) -> tuple[tuple[tuple[TopicId, int], ...], int]:
    topics, run_count, at = read_topics(data, at)
    places = []
    for _ in range(run_count):
        topic_id, count, at = read_run(data, at, topics)
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


def put_runs(out: bytearray, rows: Iterable[Any]) -> Iterator[list[Any]]:
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


def read_topics(data: bytes, at: int) -> tuple[list[TopicId], int, int]:
    """The topics, how many runs there are, and the place of the first."""
    count, at = read_number(data, at, len(data) // TOPIC_ID_BYTES)
    topics = []
    for _ in range(count):
        topic_id, at = read_topic_id(data, at)
        topics.append(topic_id)
    run_count, at = read_number(data, at, len(data))
    return topics, run_count, at


def read_run(data: bytes, at: int, topics: list[TopicId]) -> tuple[TopicId, int, int]:
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
