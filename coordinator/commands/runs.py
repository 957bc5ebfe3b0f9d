"""Rows of partitions, by hand: offsets, places, producers, and what jobs say of partitions.

But for producers they are in *runs* of one topic: the topics' ids; the number of runs; of each run the index of the topic, the number of rows, the
rows. Of an offset and of a place (topic and partition), a row says how far its partition lies
behind the one that would follow, so ascending partitions cost a byte, flags included; an offset is
the difference from the one before in its run. A hundred partitions cost about seven bytes each.
Rows of jobs say how far their partition is from the one before.

Rows are tuples that begin with the topic id and the partition; whoever declares them says how
they are made.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Annotated, Any, Final, TypeVar

from coordinator.commands.encoding import (
    I32,
    TOPIC_ID_BYTES,
    U31,
    U63,
    CodecError,
    put_number,
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
from coordinator.commands.layout import (
    Layout,
    layouts_of,
    optional,
    signed,
    tuple_of,
)
from protocol.types import TopicId

# Flags of an offset, below the distance of its partition.
_LEADER_EPOCH = 1
"""Another one than that of the offset before in the run; the first one's differs from -1."""
_METADATA = 2
"""Others than those of the offset before; the first one's are not empty."""
_FLAG_BITS = 2


RowT = TypeVar("RowT", bound=tuple[Any, ...])
Place = tuple[TopicId, int]
_Offset = tuple[TopicId, int, int, int, str]
_OffsetT = TypeVar("_OffsetT", bound=_Offset)
_Producers = tuple[TopicId, int, tuple[int, ...]]
_ProducersT = TypeVar("_ProducersT", bound=_Producers)
_read_epoch: Final = signed(32).read
_TOPIC: Final = optional(Layout(put_topic_id, read_topic_id))

# Offsets.


def offsets_of(make: Callable[[_Offset], _OffsetT]) -> Layout[tuple[_OffsetT, ...]]:
    """Rows of topic id, partition, offset, leader epoch and metadata."""

    def put(out: bytearray, offsets: tuple[_OffsetT, ...]) -> None:
        for run in _put_runs(out, offsets):
            _put_run_of_offsets(out, run)

    def read(data: bytes, at: int) -> tuple[tuple[_OffsetT, ...], int]:
        topics, run_count, at = read_topics(data, at)
        offsets: list[_OffsetT] = []
        for _ in range(run_count):
            topic_id, count, at = _read_run(data, at, topics)
            rows, at = _read_run_of_offsets(data, at, topic_id, count, make)
            offsets += rows
        return tuple(offsets), at

    return Layout(put, read)


def _put_run_of_offsets(out: bytearray, run: Iterable[_Offset]) -> None:
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
    data: bytes, at: int, topic_id: TopicId, count: int, make: Callable[[_Offset], _OffsetT]
) -> tuple[list[_OffsetT], int]:
    """The offsets of a run, and the place behind it. One-byte numbers are read in line."""
    offsets: list[_OffsetT] = []
    append = offsets.append
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
    return offsets, at


# Places.


def _put_places(out: bytearray, places: tuple[Place, ...]) -> None:
    for run in _put_runs(out, places):
        partition_next = 0
        for _, partition in run:
            if not 0 <= partition <= U31:
                raise CodecError(f"partition {partition}")
            put_zigzag(out, partition - partition_next)
            partition_next = partition + 1


def _read_places(data: bytes, at: int) -> tuple[tuple[Place, ...], int]:
    topics, run_count, at = read_topics(data, at)
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


Places = Annotated[tuple[Place, ...], Layout(_put_places, _read_places)]


# Producers.


def producers_of(make: Callable[[_Producers], _ProducersT]) -> Layout[tuple[_ProducersT, ...]]:
    """Rows of topic id, partition and producer ids. They are in no runs: a row has its topic's id,
    or 0 if it is that of the row before. Ids are distances from one to the next."""

    def put(out: bytearray, rows: tuple[_ProducersT, ...]) -> None:
        put_varint(out, len(rows))
        topic_before: TopicId | None = None
        for topic_id, partition, producer_ids in rows:
            _TOPIC.put(out, topic_id if topic_id != topic_before else None)
            topic_before = topic_id
            put_number(out, partition, U31)
            put_varint(out, len(producer_ids))
            before = 0
            for producer_id in producer_ids:
                put_zigzag(out, _producer(producer_id) - before)
                before = producer_id

    def read(data: bytes, at: int) -> tuple[tuple[_ProducersT, ...], int]:
        count, at = read_number(data, at, len(data))
        rows = []
        topic_before: TopicId | None = None
        for _ in range(count):
            topic_id, at = _TOPIC.read(data, at)
            topic_id = topic_before = topic_id or topic_before
            if topic_id is None:
                raise CodecError("a partition of no topic")
            partition, at = read_number(data, at, U31)
            id_count, at = read_number(data, at, len(data))
            producer_id = 0
            producer_ids = []
            for _ in range(id_count):
                distance, at = read_zigzag(data, at)
                producer_id = _producer(producer_id + distance)
                producer_ids.append(producer_id)
            rows.append(make((topic_id, partition, tuple(producer_ids))))
        return tuple(rows), at

    return Layout(put, read)


def _producer(producer_id: int) -> int:
    if not 0 <= producer_id <= U63:
        raise CodecError(f"producer {producer_id}")
    return producer_id


# Rows of jobs.


def rows_of(
    kind: Callable[..., RowT], rest: Callable[[], Layout[Any]] | None = None
) -> Layout[tuple[RowT, ...]]:
    """Rows of a NamedTuple.

    What follows its topic id and partition is laid out by the types of its fields, or by what
    `rest` returns: a layout for the rows of one command, which may go on from one to the next.
    `rest` puts the row, and reads a tuple of the fields that follow.
    """
    rest_of_a_command = rest or _fields_that_follow(kind)

    def put(out: bytearray, rows: tuple[RowT, ...]) -> None:
        put_rest = rest_of_a_command().put
        for run in _put_runs(out, rows):
            before = 0
            for row in run:
                partition = row[1]
                if not 0 <= partition <= U31:
                    raise CodecError(f"partition {partition}")
                put_zigzag(out, partition - before)
                before = partition
                put_rest(out, row)

    def read(data: bytes, at: int) -> tuple[tuple[RowT, ...], int]:
        read_rest = rest_of_a_command().read
        topics, run_count, at = read_topics(data, at)
        rows = []
        for _ in range(run_count):
            topic_id, count, at = _read_run(data, at, topics)
            partition = 0
            for _ in range(count):
                distance, at = read_zigzag(data, at)
                partition += distance
                if not 0 <= partition <= U31:
                    raise CodecError(f"partition {partition}")
                fields, at = read_rest(data, at)
                rows.append(kind(topic_id, partition, *fields))
        return tuple(rows), at

    return Layout(put, read)


def _fields_that_follow(kind: Callable[..., RowT]) -> Callable[[], Layout[Any]]:
    assert isinstance(kind, type)
    layouts = [*layouts_of(kind).items()][2:]
    layout = tuple_of({f".{name}": layout for name, layout in layouts})
    return lambda: layout


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


def read_topics(data: bytes, at: int) -> tuple[list[TopicId], int, int]:
    """The topics, how many runs (or spans) there are, and the place of the first."""
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
