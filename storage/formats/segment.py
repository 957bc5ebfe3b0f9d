"""Segments, version 1: long spans of few partitions, made by jobs out of many short ones.

Here rows are merged: batches get their absolute offsets and leader epochs for good, so reading
them needs no patch; batches of aborted transactions are left out, since nobody may see them and
the log keeps no list of them for segments; the ends of transactions become the control batches
that clients were given all along. Batches are copied as they are, but for a newest timestamp that is
not that of their records: those that come out of a chunk are opened once to find that out.

The last batch ends where the span ends: if none does, one without records is put there, as
Kafka's cleaner does. Merging what was merged gives the same as merging all at once.

The object is laid out as `storage.formats.job_objects` says; its table names of every span the partition, the
offsets, the bytes with their CRC-32C and the newest timestamp. Pure.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from protocol import records
from protocol.types import Buffer, TopicId
from storage.formats.batches import marker_batch
from storage.formats.chunk import checksum_of
from storage.formats.job_objects import Builder, Format, Table, check_adjacent
from storage.formats.spans import Marker, ObjectId, ObjectKind, Span
from storage.formats.walk import Aborted, Merged, Output, data_of_rows, leave_chunk, walk

FORMAT: Final = Format(ObjectKind.SEGMENT, b"\x00FRAZILs", 1, struct.Struct(">16siqqQQIq"))


def merge_rows(
    rows: Sequence[Span | Marker],
    data: Iterable[Buffer],
    aborted: Iterable[tuple[int, int, int]] = (),
) -> Merged:
    """Adjacent rows of one partition as one span of a segment.

    `data` has the bytes of every span (of markers nothing), which are only read. `aborted` are
    the ranges (producer id, first and last offset) of aborted transactions that touch the rows;
    none of the rows may belong to a transaction that is open. Raises DamagedSpanError.
    """
    assert rows
    dropped = Aborted(aborted)
    output = Output()
    for row, content in data_of_rows(rows, data):
        if content is None:
            assert isinstance(row, Marker)
            batch = marker_batch(row)
            output.add(batch, records.read_header(batch))
        else:
            assert isinstance(row, Span)
            _copy(row, content, dropped, output)
    return output.finish(rows[-1].next_offset)


def _copy(span: Span, content: Buffer, dropped: Aborted, output: Output) -> None:
    if span.object_id.kind == ObjectKind.SEGMENT:
        view = memoryview(content).toreadonly()
        for start, end, header in walk(span, view):
            if not dropped.holds(header):
                output.take(view, start, end, header)
        return
    view = memoryview(bytearray(content))
    for start, end, header in walk(span, view):
        if not dropped.holds(header):
            records.patch(view, start, header.base_offset, header.leader_epoch)
            output.take(view, start, end, leave_chunk(span, view, start, header))


class SegmentSpan(NamedTuple):
    """One span, as the segment's table names it."""

    topic_id: TopicId
    partition: int
    base_offset: int
    next_offset: int
    start: int
    length: int
    checksum: int
    """CRC-32C of the bytes."""
    timestamp_max: int


class SegmentBuilder(Builder):
    """Gathers spans for one segment."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def add(
        self,
        topic_id: TopicId,
        partition: int,
        *,
        base_offset: int,
        next_offset: int,
        parts: Sequence[Buffer],
        timestamp_max: int,
    ) -> int:
        """Put a span's batches into the segment; its first byte there."""
        assert base_offset < next_offset
        start = self._data_end
        length = sum(map(len, parts))
        assert length >= records.HEADER_BYTES
        span = SegmentSpan(
            topic_id,
            partition,
            base_offset,
            next_offset,
            start,
            length,
            checksum_of(parts),
            timestamp_max,
        )
        self._put(span, parts, length=length)
        return start


class Segment(NamedTuple):
    """The decoded table of a segment."""

    cluster_id: str
    object_id: ObjectId
    spans: tuple[SegmentSpan, ...]


def parse_segment(data: Buffer) -> Segment:
    """Decodes a whole segment; checks everything but the data (`damaged_spans`).

    Raises JobObjectFormatError.
    """
    return _segment(FORMAT.parse(data))


def parse_segment_end(end: Buffer, *, object_length: int) -> Segment | int:
    """As `parse_segment`, by the last bytes of the object; or how many of them it takes."""
    table = FORMAT.parse_end(end, object_length=object_length)
    return table if isinstance(table, int) else _segment(table)


def _segment(table: Table) -> Segment:
    spans = tuple(SegmentSpan(*row) for row in table.rows)  # type: ignore[arg-type]
    check_adjacent([(span.start, span.length) for span in spans], data_end=table.data_end)
    return Segment(table.cluster_id, table.object_id, spans)


def damaged_spans(data: Buffer, segment: Segment) -> list[SegmentSpan]:
    """The spans whose bytes do not match their checksum."""
    view = memoryview(data)
    return [
        span
        for span in segment.spans
        if crc32c(view[span.start : span.start + span.length]) != span.checksum
    ]
