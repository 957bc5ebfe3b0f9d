"""Spans to Arrow tables with the columns of `iceberg_export.table.schema`, in order of offset.

Batches are decoded many at a time (`decode.UNIT_BYTES` of decompressed records), since a compiled
call has a fixed cost and topics may have batches of one record. Memory: one unit and the table of one
of its pieces, whatever producers sent.

A batch that nobody can read has one row, at its last offset, however many offsets it claims: its
value is the batch as it lies in the log, its headers say the range. It is the same row wherever the
batch lies, so it can be compared. Pure; leaves out files and partitions of the table (`write_files`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import names
from iceberg_export.plan.splits import PlannedSpan
from iceberg_export.records.decode import (
    NULL,
    Columns,
    Dropped,
    Ints,
    Tally,
    Unreadable,
    gather,
    read_records,
    split_batches,
)
from protocol import records

HEADER_TYPE = pa.struct(
    [pa.field("key", pa.large_string(), nullable=False), pa.field("value", pa.large_binary())]
)
ROW_SCHEMA = pa.schema(
    [
        pa.field(names.PARTITION, pa.int32(), nullable=False),
        pa.field(names.OFFSET, pa.int64(), nullable=False),
        pa.field(names.TIMESTAMP, pa.timestamp("us", tz="UTC")),
        pa.field(names.TIMESTAMP_TYPE, pa.int32()),
        pa.field(names.KEY, pa.large_binary()),
        pa.field(names.HEADERS, pa.large_list(pa.field("element", HEADER_TYPE, nullable=False))),
        pa.field(names.TIMESTAMP_RAW, pa.int64()),
        pa.field(names.VALUE, pa.large_binary()),
    ]
)


def _bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's validity bitmap; None when nothing is null."""
    if bool(valid.all()):
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _binary(columns: Columns, starts: Any, lengths: Any, kind: pa.DataType) -> pa.Array:
    places, data = gather(columns.data, starts, lengths)
    buffers = [_bitmap(lengths != NULL), pa.py_buffer(places), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(starts), buffers)


def _nullable(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_], kind: pa.DataType) -> Any:
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), pa.py_buffer(values)])


def _header_keys(columns: Columns) -> pa.Array:
    """As a Java client reads them: UTF-8, what is malformed replaced."""
    keys = _binary(
        columns, columns.header_key_starts, columns.header_key_lengths, pa.large_string()
    )
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        raw = keys.view(pa.large_binary()).to_pylist()
        return pa.array([key.decode("utf-8", "replace") for key in raw], pa.large_string())
    return keys


def _headers(columns: Columns) -> pa.Array:
    element = pa.StructArray.from_arrays(
        [
            _header_keys(columns),
            _binary(
                columns,
                columns.header_value_starts,
                columns.header_value_lengths,
                pa.large_binary(),
            ),
        ],
        fields=list(HEADER_TYPE),
    )
    places = np.zeros(len(columns.header_counts) + 1, np.int64)
    np.cumsum(columns.header_counts, out=places[1:])
    return pa.LargeListArray.from_arrays(
        pa.array(places), element, type=ROW_SCHEMA.field(names.HEADERS).type
    )


def to_table(columns: Columns, partition: int) -> pa.Table:
    """Returns the records of one partition as a table of ROW_SCHEMA."""
    timestamps = columns.timestamps
    in_range = (timestamps >= 0) & (timestamps <= names.TIMESTAMP_MS_MAX)
    raw = ~in_range & (timestamps != -1)
    # Masked before they are scaled: what a column cannot hold could overflow 64 bits.
    micros = np.where(in_range, timestamps, 0) * 1000
    count = len(timestamps)
    return pa.Table.from_arrays(
        [
            pa.array(np.full(count, partition, np.int32)),
            pa.array(columns.offsets),
            _nullable(micros, in_range, ROW_SCHEMA.field(names.TIMESTAMP).type),
            pa.array(columns.timestamp_types.astype(np.int32)),
            _binary(columns, columns.key_starts, columns.key_lengths, pa.large_binary()),
            _headers(columns),
            _nullable(np.where(raw, timestamps, 0), raw, pa.int64()),
            _binary(columns, columns.value_starts, columns.value_lengths, pa.large_binary()),
        ],
        schema=ROW_SCHEMA,
    )


class TimestampLimits(NamedTuple):
    """What a table's timestamp column is trusted with; the rest lies in the raw column."""

    ms_min: int
    ms_max: int


def limit_timestamps(rows: pa.Table, limits: TimestampLimits) -> pa.Table:
    """Timestamps beyond the limits in `kafka_timestamp_raw`, so that one producer with a wild
    clock does not make thousands of table partitions."""
    micros = rows.column(names.TIMESTAMP).cast(pa.int64())
    least, greatest = pc.min_max(micros).values()
    low, high = limits.ms_min * 1000, limits.ms_max * 1000
    if not least.is_valid or (least.as_py() >= low and greatest.as_py() <= high):
        return rows
    wild = pc.or_(pc.less(micros, low), pc.greater(micros, high))
    wild = wild.fill_null(False)  # noqa: FBT003 - Arrow's signature.
    raw = pc.if_else(wild, pc.divide(micros, 1000), rows.column(names.TIMESTAMP_RAW))
    in_range = pc.if_else(
        wild, pa.scalar(None, ROW_SCHEMA.field(names.TIMESTAMP).type), rows.column(names.TIMESTAMP)
    )
    rows = rows.set_column(
        ROW_SCHEMA.get_field_index(names.TIMESTAMP), ROW_SCHEMA.field(names.TIMESTAMP), in_range
    )
    return rows.set_column(
        ROW_SCHEMA.get_field_index(names.TIMESTAMP_RAW), ROW_SCHEMA.field(names.TIMESTAMP_RAW), raw
    )


def single_array(column: pa.ChunkedArray) -> pa.Array:
    """Returns the column in one piece."""
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def header_places(headers: pa.Array, name: str) -> Ints:
    """Returns where among all headers that of this name is, for each row; -1 where there is none. Of several
    in a row it is the last."""
    offsets = headers.offsets.to_numpy()
    keys = headers.values.field("key")
    hits = np.flatnonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])]
    # What is assigned last stays.
    places = np.full(len(headers), -1, np.int64)
    places[np.searchsorted(offsets, hits, side="right") - 1] = hits
    return places


class SpanRows(NamedTuple):
    """Some of a span: its records, or rows of batches that cannot be read."""

    rows: pa.Table
    tally: Tally
    reasons: Sequence[str] = ()
    """Why the batches cannot be read, one for each row; () of records."""
    hidden: str = ""
    """Why the first of the batches that have offsets wanted cannot be read, also where its row is
    not wanted."""


FIRST_OFFSET_HEADER = "frazil.batch.first.offset"
LAST_OFFSET_HEADER = "frazil.batch.last.offset"
_WAITING_MAX = 1000
"""Batches that cannot be read, of which one table is made."""


def span_rows(span: PlannedSpan, data: memoryview) -> Iterator[SpanRows]:
    """Yields the wanted, committed records of a span, in order, and tallies of its offsets.

    The tallies add up to the span's offsets. Raises CorruptSpanError.
    """
    dropped = Dropped()
    found = 0
    waiting: list[Unreadable] = []
    for piece in _pieces(span, data, dropped):
        if isinstance(piece, Unreadable):
            waiting.append(piece)
            found += piece.offset_count
            if len(waiting) < _WAITING_MAX:
                continue
        if waiting:
            yield unreadable_rows(span, waiting)
            waiting = []
        if not isinstance(piece, Unreadable):
            found += len(piece.offsets)
            yield _record_rows(span, piece)
    if waiting:
        yield unreadable_rows(span, waiting)
    rest = Tally(control=dropped.control, aborted=dropped.aborted, holes=dropped.holes)
    within = span.records - rest.offsets - found
    assert within >= 0
    yield SpanRows(ROW_SCHEMA.empty_table(), rest._replace(holes=rest.holes + within))


def _pieces(
    span: PlannedSpan, data: memoryview, dropped: Dropped
) -> Iterator[Columns | Unreadable]:
    for part in split_batches(span, data, dropped):
        if isinstance(part, Unreadable):
            yield part
        else:
            yield from read_records(part)
        # What is inflated next must not find the last buffer still held.
        del part


def _record_rows(span: PlannedSpan, columns: Columns) -> SpanRows:
    table = to_table(columns, span.partition)
    total = table.num_rows
    offsets = columns.offsets
    if total and (offsets[0] < span.offset_from or offsets[-1] >= span.offset_to):
        first, after = np.searchsorted(offsets, [span.offset_from, span.offset_to])
        table = table.slice(int(first), int(after - first))
    return SpanRows(table, Tally(table.num_rows, outside=total - table.num_rows))


def unreadable_rows(span: PlannedSpan, batches: Sequence[Unreadable]) -> SpanRows:
    """A row for each batch whose last offset is wanted: so each has one, whatever is asked for."""
    wanted = [one for one in batches if span.offset_from <= one.last_offset < span.offset_to]
    offsets = sum(one.offset_count for one in batches)
    inside = sum(one.offset_count for one in wanted)
    table = unreadable_table(wanted, span.partition)
    tally = Tally(len(wanted), outside=offsets - inside, unreadable=inside - len(wanted))
    touched = (
        _sentence(one)
        for one in batches
        if one.base_offset < span.offset_to and span.offset_from <= one.last_offset
    )
    return SpanRows(table, tally, [_sentence(one) for one in wanted], next(touched, ""))


def _sentence(one: Unreadable) -> str:
    return (
        f"the batch of offsets {one.base_offset} to {one.last_offset} cannot be read, "
        f"although its checksum matches: {one.reason}"
    )


def unreadable_table(batches: Sequence[Unreadable], partition: int) -> pa.Table:
    """Returns the rows of batches that cannot be read, of ROW_SCHEMA."""
    times = [one.header.max_timestamp for one in batches]
    held = [0 <= time <= names.TIMESTAMP_MS_MAX for time in times]
    raw = [None if ok or time == -1 else time for time, ok in zip(times, held, strict=True)]
    micros = [time * 1000 if ok else None for time, ok in zip(times, held, strict=True)]
    columns: dict[str, list[Any]] = {
        names.PARTITION: [partition] * len(batches),
        names.OFFSET: [one.last_offset for one in batches],
        names.TIMESTAMP: micros,
        names.TIMESTAMP_TYPE: [int(one.header.is_log_append_time) for one in batches],
        names.KEY: [None] * len(batches),
        names.HEADERS: [
            [
                {"key": FIRST_OFFSET_HEADER, "value": b"%d" % one.base_offset},
                {"key": LAST_OFFSET_HEADER, "value": b"%d" % one.last_offset},
            ]
            for one in batches
        ],
        names.TIMESTAMP_RAW: raw,
        names.VALUE: [_in_place(one) for one in batches],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in ROW_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=ROW_SCHEMA)


def _in_place(one: Unreadable) -> bytes:
    """The batch as a consumer would get it: the same bytes from a chunk and from a segment."""
    batch = bytearray(one.batch)
    records.patch(batch, 0, one.base_offset)
    return bytes(batch)


def without_content(rows: pa.Table) -> pa.Table:
    """Returns rows without key and value, and without headers but for those of a batch that cannot be read,
    which are ours: where they came from is left."""
    headers = rows.column(names.HEADERS).to_pylist()
    ours = [
        one if one and one[0]["key"] == FIRST_OFFSET_HEADER and len(one) == 2 else []
        for one in headers
    ]
    empty = {
        names.KEY: pa.nulls(rows.num_rows, ROW_SCHEMA.field(names.KEY).type),
        names.VALUE: pa.nulls(rows.num_rows, ROW_SCHEMA.field(names.VALUE).type),
        names.HEADERS: pa.array(ours, ROW_SCHEMA.field(names.HEADERS).type),
    }
    for name, column in empty.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, ROW_SCHEMA.field(name), column)
    return rows


def is_among(rows: pa.Table, offsets: Mapping[int, Ints]) -> pa.Array:
    """Returns which rows have a partition and offset of `offsets`."""
    partitions = np.asarray(rows.column(names.PARTITION))
    numbers = np.asarray(rows.column(names.OFFSET))
    found = np.zeros(rows.num_rows, np.bool_)
    for partition, some in offsets.items():
        found |= (partitions == partition) & np.isin(numbers, some)
    return pa.array(found)
