"""Partitions and objects in a snapshot.

A friend of `partitions`, `partition` and `objects`: it reads their fields and sets all of them.
Partitions that got records are written in slices of many, topic after topic in their order: a
column of heads, then what all of them have of each kind, joined. Columns are copied as they lie
in memory, slots of objects and all, so a partition costs a few microseconds whatever it holds.
Partitions that got no records are not written: whether they exist as objects says nothing.
"""

from array import array
from collections.abc import Callable, Generator, Iterator
from itertools import accumulate, islice, pairwise
from struct import Struct
from typing import Final, NamedTuple

from coordinator.commands.layout import (
    Layout,
    UInt63,
    converted,
    fields_of,
    layout_of,
    list_of,
    member_of,
    optional,
)
from coordinator.snapshot.rows import (
    BYTES,
    COLUMN,
    FLAG,
    INCARNATION,
    INT,
    UINT,
    Fields,
    read,
    read_fields,
    write,
    write_fields,
)
from coordinator.snapshot.stream import BlockReader, BlockWriter, SnapshotError
from coordinator.tables.aborted import RANGE_BYTES
from coordinator.tables.objects import _KIND_BITS, Objects, _Writer
from coordinator.tables.partition import Partition
from coordinator.tables.partitions import Partitions, _Rows
from coordinator.tables.rows import PAGE_BYTES, ROW_BYTES, paged_rows
from coordinator.tables.topics import TOPIC_PARTITIONS_MAX
from protocol.types import TopicId
from storage.formats.spans import ObjectKind
from txn.producers import WINDOW_BYTES_MAX

# Partition, rows, pages, windows, open transactions, aborted ranges; log start, end offset, last
# stable offset, clean to, bytes of data and in segments.
_HEAD: Final = Struct("<6I6q")
_SLICE_PARTITIONS_MAX: Final = 512
_SLICE_BYTES: Final = 1024 * 1024
"""A slice ends behind the partition with which its rows reach so many."""
_PAIR: Final = Struct("<qq")

assert WINDOW_BYTES_MAX < 1 << 8  # The length of a window is a byte here.


class _TopicHead(NamedTuple):
    topic_id: TopicId
    partition_count: UInt63
    written: UInt63
    is_deleted: bool


_TOPIC_HEAD: Final[Layout[_TopicHead]] = layout_of(_TopicHead)
_COUNTS: Final[Fields] = dict.fromkeys(
    [
        "_count",
        "row_count",
        "page_count",
        "paged_row_count",
        "data_bytes",
        "segment_bytes",
        "window_count",
        "aborted_count",
    ],
    INT,
)
"""Of all partitions."""


# Objects.

_OBJECTS: Final[Fields] = {
    "unreferenced_count": UINT,
    "doomed_count": UINT,
    "_free": converted(list_of(UINT), laid=tuple, made=list),
}
_WRITER: Final = optional(
    fields_of(
        _Writer,
        incarnation=INCARNATION,
        kind=member_of(ObjectKind),
        first=UINT,
        referenced=UINT,
        closed=FLAG,
        lengths=COLUMN,
        references=COLUMN,
        doomed=converted(BYTES, laid=bytes, made=lambda found: array("I", found)),
        unreferenced=COLUMN,
    )
)


def dump_objects(out: BlockWriter, objects: Objects) -> None:
    write_fields(out, (objects, _OBJECTS))
    write(out, objects._writers, len(objects._writers), _WRITER)


def restore_objects(parts: BlockReader, objects: Objects) -> None:
    read_fields(parts, (objects, _OBJECTS))
    objects._writers = list(read(parts, _WRITER))
    objects._slots = {
        (writer.incarnation, writer.kind): index << _KIND_BITS | writer.kind
        for index, writer in enumerate(objects._writers)
        if writer is not None
    }


# Partitions.


def dump_partitions(out: BlockWriter, partitions: Partitions) -> None:
    write_fields(out, (partitions, _COUNTS))
    tables = (*partitions._topics.items(), *partitions._deleted.items())
    heads = [
        _TopicHead(topic_id, len(table.partitions), table.written, topic_id in partitions._deleted)
        for topic_id, table in tables
    ]
    write(out, heads, len(heads), _TOPIC_HEAD)
    rows: list[Partition] = []
    size = 0
    for _, table in tables:
        for row in table.partitions:
            if row is None or row.end_offset == 0:
                continue
            rows.append(row)
            size += len(row._rows)
            if len(rows) == _SLICE_PARTITIONS_MAX or size >= _SLICE_BYTES:
                _dump_slice(out, rows)
                rows, size = [], 0
    if rows:
        _dump_slice(out, rows)


def _dump_slice(out: BlockWriter, rows: list[Partition]) -> None:
    out.block(b"".join([_head(row) for row in rows]))
    out.block(b"".join([row._rows for row in rows]))
    out.block(b"".join([row._pages or b"" for row in rows]))
    out.block(b"".join([row._aborted or b"" for row in rows]))
    opened = [pair for row in rows for pair in row.open_transactions.items()]
    out.block(b"".join([_PAIR.pack(*pair) for pair in opened]))
    windows = [pair for row in rows if row.windows for pair in row.windows.items()]
    out.block(_numbers(len(windows)).pack(*[producer_id for producer_id, _ in windows]))
    out.block(bytes([len(window) for _, window in windows]))
    out.block(b"".join([window for _, window in windows]))


def _head(row: Partition) -> bytes:
    return _HEAD.pack(
        row.partition,
        len(row._rows) // ROW_BYTES,
        len(row._pages or b"") // PAGE_BYTES,
        len(row.windows or ()),
        len(row.open_transactions),
        len(row._aborted or b"") // RANGE_BYTES,
        row.log_start,
        row.end_offset,
        row.last_stable,
        row.clean_to,
        row.data_bytes,
        row.segment_bytes,
    )


def _numbers(count: int) -> Struct:
    return Struct(f"<{count}q")


def restore_partitions(
    parts: BlockReader, partitions: Partitions, objects: Objects
) -> Generator[None, None, None]:
    """In steps of a slice."""
    read_fields(parts, (partitions, _COUNTS))
    partitions._topics, partitions._deleted = {}, {}
    places: list[tuple[TopicId, _Rows, int]] = []
    for topic_id, partition_count, written, is_deleted in read(parts, _TOPIC_HEAD):
        if partition_count > TOPIC_PARTITIONS_MAX:
            raise SnapshotError(f"a topic of {partition_count} partitions in the snapshot")
        table = _Rows(partition_count)
        table.written = written
        (partitions._deleted if is_deleted else partitions._topics)[topic_id] = table
        places.append((topic_id, table, written))
    left = sum([written for _, _, written in places])
    tables = (place[:2] for place in places for _ in range(place[2]))
    while left:
        left -= _restore_slice(parts, tables, objects)
        yield


def _restore_slice(
    parts: BlockReader, tables: Iterator[tuple[TopicId, _Rows]], objects: Objects
) -> int:
    """How many partitions it had. `tables` gives the topic of each partition that was written."""
    heads = list(_HEAD.iter_unpack(parts.block()))
    rows, pages, ranges, opened = (memoryview(parts.block()) for _ in range(4))
    windows = _read_windows(parts)
    rows_at = pages_at = ranges_at = opened_at = 0
    for head, (topic_id, table) in zip(heads, tables, strict=False):
        number, row_count, page_count, window_count, open_count, range_count, *fields = head
        row = table.partitions[number] = Partition(topic_id, number, objects)
        (
            row.log_start,
            row.end_offset,
            row.last_stable,
            row.clean_to,
            row.data_bytes,
            row.segment_bytes,
        ) = fields
        end = rows_at + row_count * ROW_BYTES
        row._rows = bytearray(rows[rows_at:end])
        rows_at = end
        if page_count:
            end = pages_at + page_count * PAGE_BYTES
            row._pages = bytearray(pages[pages_at:end])
            row.paged_row_count = paged_rows(row._pages)
            pages_at = end
        if range_count:
            end = ranges_at + range_count * RANGE_BYTES
            row._aborted = bytearray(ranges[ranges_at:end])
            ranges_at = end
        if open_count:
            end = opened_at + open_count * _PAIR.size
            row.open_transactions = dict(_PAIR.iter_unpack(opened[opened_at:end]))
            opened_at = end
        if window_count:
            row.windows = dict(islice(windows, window_count))
    if (rows_at, pages_at, ranges_at, opened_at) != tuple(map(len, (rows, pages, ranges, opened))):
        raise SnapshotError("a slice of partitions has more than its heads say")
    return len(heads)


def _read_windows(parts: BlockReader) -> Iterator[tuple[int, bytes]]:
    """Producer ids and windows of a slice, partition by partition."""
    ids = parts.block()
    lengths = parts.bytes()
    joined = parts.bytes()
    ends = accumulate(lengths, initial=0)
    pieces = [joined[start:end] for start, end in pairwise(ends)]
    return zip(_numbers(len(lengths)).unpack(ids), pieces, strict=True)


def participants(partitions: Partitions) -> Callable[[TopicId, int], Partition]:
    """What gives the rows of partitions that take part in transactions.

    Of a deleted topic the row may be purged: then it is one that only transactions know, the same
    for all of them, and nothing is done to it any more.
    """
    purged: dict[tuple[TopicId, int], Partition] = {}

    def row_of(topic_id: TopicId, number: int) -> Partition:
        row = partitions.get(topic_id, number) or partitions.find(topic_id, number)
        if row is None:
            orphan = Partition(topic_id, number, partitions._objects)
            row = purged.setdefault((topic_id, number), orphan)
        return row

    return row_of
