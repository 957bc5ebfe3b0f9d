"""Record batches to columns, by compiled code, with every length checked.

Three steps. `split_batches` walks the headers of a span, verifies each CRC, drops control batches
and those of aborted transactions, decompresses the others into one buffer for many of them.
`index_records` (compiled) walks the records of such a unit and notes where each field lies.
`gather` (compiled) copies fields into one buffer with 64-bit offsets, the layout of Arrow's large
binary, so that no column has a limit of 2 GiB.

Exactness: anything that does not add up raises CorruptSpanError: wrong CRC, lengths beyond the
batch, bytes left over, offsets that do not rise, counts other than the log's. Offsets of a chunk
come from the span, never from the batch's own base offset, which is 0 there; in a segment each
batch says its own, and what lies between two is a hole. A transactional batch is aborted when it
lies in an aborted range of its producer, which has one transaction at a time in a partition; all
others below the plan's end are committed. Nothing here knows of Arrow, Spark or Iceberg.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

import crc32c
import numba
import numpy as np
import numpy.typing as npt

from iceberg_export.errors import CorruptSpanError
from iceberg_export.plan.splits import PlannedSpan
from protocol import compression, records
from protocol.errors import ProtocolError

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Function = TypeVar("Function", bound=Callable[..., Any])

CRC_START = 21
"""What the CRC of a batch covers begins at its attributes."""

BATCH_BYTES_MAX = 1 << 30
"""Bound on what one batch may decompress to."""

UNIT_BYTES = 8 * 1024 * 1024
"""Decompressed records that are decoded together."""

_ROOM_BYTES = 2 * UNIT_BYTES
"""Of their buffer. Memory that nothing is put in costs nothing."""

_RATIO = 16
"""Room for a compressed batch, in its own size; one that needs more is tried again with more."""

NULL = -1
"""Length of a null key or value."""


def compiled(function: Function) -> Function:
    """Compile for machine integers; keep the result on disk where that is possible."""
    try:
        return cast("Function", numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        # Numba finds no folder to write to (a read-only image): compile in each process.
        return cast("Function", numba.njit(nogil=True)(function))


class Payload(NamedTuple):
    """Where the records of one batch lie, decompressed, and what its header says of them."""

    start: int
    end: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_timestamp: int
    """Newest timestamp when the topic stamps records on append, else -1."""
    append_stamped: bool


class Unit(NamedTuple):
    """Batches that lie one behind the other in `data`."""

    data: Bytes
    payloads: list[Payload]

    @property
    def offset_count(self) -> int:
        return sum(payload.last_offset_delta + 1 for payload in self.payloads)


class Columns(NamedTuple):
    """The fields of n records, in order; positions are into `data`."""

    data: Bytes
    offsets: Ints
    timestamps: Ints
    timestamp_types: Ints
    key_starts: Ints
    key_lengths: Ints
    """NULL when there is no key."""
    value_starts: Ints
    value_lengths: Ints
    """NULL when there is no value (a tombstone)."""
    header_counts: Ints
    header_key_starts: Ints
    header_key_lengths: Ints
    header_value_starts: Ints
    header_value_lengths: Ints


class Tally(NamedTuple):
    """What became of the offsets of a span: their sum is the span's own count."""

    rows: int = 0
    control: int = 0
    """Offsets of control batches, dropped."""
    aborted: int = 0
    """Offsets of batches whose transaction was aborted, dropped."""
    holes: int = 0
    """Offsets that no record has: what compaction and merging left out."""
    outside: int = 0
    """Records outside the offsets wanted."""

    @property
    def offsets(self) -> int:
        return sum(self)

    def plus(self, other: "Tally") -> "Tally":
        return Tally(*map(sum, zip(self, other, strict=True)))


class Dropped:
    """Offsets of a span that hold no record for anybody, those within batches left aside."""

    __slots__ = ("aborted", "control", "holes")

    def __init__(self) -> None:
        self.control = 0
        self.aborted = 0
        self.holes = 0
        """Between batches."""


def _corrupt(span: PlannedSpan, at: int, what: str) -> CorruptSpanError:
    return CorruptSpanError(
        f"chunk {span.key}, byte {span.start + at} (partition {span.partition}, "
        f"offsets {span.base_offset} to {span.next_offset - 1}): {what}"
    )


class _Units:
    """Decompresses batches one behind the other; a new buffer when one is full."""

    def __init__(self, bytes_ahead: int) -> None:
        self._data = np.empty(min(_ROOM_BYTES, _RATIO * bytes_ahead), np.uint8)
        self._size = 0
        self._payloads: list[Payload] = []

    def add(self, header: records.BatchHeader, data: memoryview, offset: int) -> Unit | None:
        """Take the batch whose first offset is `offset`; a unit that ended before it, if one did.

        Raises ProtocolError.
        """
        is_plain = header.codec == compression.Codec.NONE
        need = min(BATCH_BYTES_MAX, len(data) * (1 if is_plain else _RATIO))
        ended = None
        taken = compression.NO_ROOM
        while taken == compression.NO_ROOM:
            room = len(self._data) - self._size
            if need > room or self._size >= UNIT_BYTES:
                ended = self.end() or ended
                room = max(_ROOM_BYTES, need)
                self._data = np.empty(room, np.uint8)
            taken = compression.decompress_into(
                header.codec, data, self._data.data[self._size :], bytes_max=BATCH_BYTES_MAX
            )
            if taken == compression.NO_ROOM and room >= BATCH_BYTES_MAX:
                raise ProtocolError(f"data inflates to more than {BATCH_BYTES_MAX} bytes")
            need = min(BATCH_BYTES_MAX, _RATIO * room)
        stamped = header.is_log_append_time
        payload = Payload(
            self._size,
            self._size + taken,
            header.record_count,
            offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp if stamped else -1,
            append_stamped=stamped,
        )
        self._payloads.append(payload)
        self._size += taken
        return ended

    def end(self) -> Unit | None:
        """What was taken since the last unit."""
        unit = Unit(self._data, self._payloads) if self._payloads else None
        self._size = 0
        self._payloads = []
        return unit


def split_batches(
    span: PlannedSpan, data: memoryview, dropped: Dropped | None = None
) -> Iterator[Unit]:
    """The committed data batches of a span, many at a time, with the offsets of the log.

    Counts the others in `dropped`. Raises CorruptSpanError.
    """
    counts = Dropped() if dropped is None else dropped
    units = _Units(len(data))
    at = 0
    offset = span.base_offset
    while at < len(data):
        header = _read_header(span, data, at)
        end, taken = at + header.size, header.last_offset_delta + 1
        if crc32c.crc32c(data[at + CRC_START : end]) != header.crc:
            raise _corrupt(span, at, "the checksum (CRC-32C) does not match")
        hole = _hole_before(span, at, header.base_offset, offset)
        counts.holes += hole
        offset += hole
        if header.is_control:
            counts.control += taken
        elif header.is_transactional and _is_aborted(span, header.producer_id, offset):
            counts.aborted += taken
        else:
            try:
                ended = units.add(header, data[at + records.HEADER_BYTES : end], offset)
            except ProtocolError as error:
                raise _corrupt(span, at, f"cannot be decompressed: {error}") from error
            if ended is not None:
                yield ended
        offset += taken
        at = end
    if offset != span.next_offset:
        raise _corrupt(
            span, 0, f"holds {offset - span.base_offset} offsets, the log says {span.records}"
        )
    if (last := units.end()) is not None:
        yield last


def _read_header(span: PlannedSpan, data: memoryview, at: int) -> records.BatchHeader:
    """That of the whole batch at byte `at`."""
    if len(data) - at < records.HEADER_BYTES:
        raise _corrupt(span, at, f"{len(data) - at} bytes are no record batch")
    header = records.read_header(data, at)
    taken = header.last_offset_delta + 1
    if (
        header.magic != records.MAGIC
        or header.size < records.HEADER_BYTES
        or at + header.size > len(data)
        or taken < 1
    ):
        raise _corrupt(span, at, "not a whole record batch of format 2")
    if not 0 <= header.record_count <= taken:
        raise _corrupt(span, at, f"{header.record_count} records cannot take {taken} offsets")
    return header


def _hole_before(span: PlannedSpan, at: int, base_offset: int, offset: int) -> int:
    """Offsets between the batch at byte `at` and `offset`, up to which the span has been read."""
    if not span.is_absolute:
        return 0
    if base_offset < offset:
        raise _corrupt(span, at, f"offset {base_offset} comes after {offset - 1}")
    return base_offset - offset


def _is_aborted(span: PlannedSpan, producer_id: int, offset: int) -> bool:
    """The transactional batch at `offset` is of a transaction that was aborted."""
    return any(
        one.producer_id == producer_id and one.first_offset <= offset < one.last_offset
        for one in span.aborted
    )


# Rows of the table of batches that the compiled passes are given: the fields of `Payload`.
_START, _END, _COUNT, _BASE, _LAST_DELTA, _BASE_TIMESTAMP, _APPEND_TIMESTAMP, _STAMPED = range(8)
# Rows of the table of records that they fill; starts are followed by lengths.
_OFFSET, _TIMESTAMP, _TYPE, _KEY, _KEY_LENGTH, _VALUE, _VALUE_LENGTH, _HEADERS = range(8)
_HEADERS_AT, _RECORD_END = 8, 9


@compiled
def _varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """A zig-zag varint of up to 64 bits and the place after it; place -1 when malformed."""
    if at < end and data[at] < 0x80:
        byte: Any = np.int64(data[at])
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(64):
        part = np.uint64(data[at])
        at += 1
        value |= (part & np.uint64(0x7F)) << shift
        if part < np.uint64(0x80):
            half: Any = np.int64(value >> np.uint64(1))
            return half ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, -1


@compiled
def _field(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Length (-1 null) and start of a length-prefixed field; start -1 when malformed."""
    length, start = _varint(data, at, end)
    if start < 0 or length < -1 or length > end - start:
        return -1, -1
    return length, start


@compiled
def _index(data: Bytes, batches: Ints, rows: Ints) -> int:
    """Note where every field of every record is, headers left aside.

    Returns how many headers there are in all; below 0: `~batch` is bad.
    """
    total = 0
    row = 0
    for batch in range(batches.shape[1]):
        at = batches[_START, batch]
        end = batches[_END, batch]
        delta_before = -1
        for _ in range(batches[_COUNT, batch]):
            length, body = _varint(data, at, end)
            if body < 0 or length < 1 or length > end - body:
                return ~batch
            at = body + length
            # One byte of attributes, which mean nothing in this format.
            timestamp_delta, place = _varint(data, body + 1, at)
            if place < 0:
                return ~batch
            delta, place = _varint(data, place, at)
            if place < 0 or delta <= delta_before or delta > batches[_LAST_DELTA, batch]:
                return ~batch
            delta_before = delta
            rows[_OFFSET, row] = batches[_BASE, batch] + delta
            rows[_TYPE, row] = batches[_STAMPED, batch]
            if batches[_STAMPED, batch]:
                rows[_TIMESTAMP, row] = batches[_APPEND_TIMESTAMP, batch]
            else:
                rows[_TIMESTAMP, row] = batches[_BASE_TIMESTAMP, batch] + timestamp_delta
            for field in (_KEY, _VALUE):
                size, start = _field(data, place, at)
                if start < 0:
                    return ~batch
                rows[field, row] = start
                rows[field + 1, row] = size
                place = start + max(size, 0)
            headers, place = _varint(data, place, at)
            # A header takes two bytes at least: this bounds what a lying count can cost.
            if place < 0 or headers < 0 or headers > (at - place) // 2:
                return ~batch
            if headers == 0 and place != at:
                return ~batch
            rows[_HEADERS, row] = headers
            rows[_HEADERS_AT, row] = place
            rows[_RECORD_END, row] = at
            total += headers
            row += 1
        if at != end:
            return ~batch
    return total


@compiled
def _index_headers(data: Bytes, rows: Ints, fields: Ints) -> int:
    """Note where keys and values of all headers are. Returns -1, or a row whose headers are bad."""
    header = 0
    for row in range(rows.shape[1]):
        if rows[_HEADERS, row] == 0:
            continue
        place = rows[_HEADERS_AT, row]
        end = rows[_RECORD_END, row]
        for _ in range(rows[_HEADERS, row]):
            for field in (0, 2):
                size, start = _field(data, place, end)
                if start < 0 or (field == 0 and size < 0):
                    return row
                fields[field, header] = start
                fields[field + 1, header] = size
                place = start + max(size, 0)
            header += 1
        if place != end:
            return row
    return -1


@compiled
def _copy(data: Bytes, starts: Ints, ends: Ints, out: Bytes) -> None:
    """Copy each field (null: nothing) to where `ends` says that it ends."""
    at = 0
    for row in range(len(starts)):
        end = ends[row]
        start = starts[row]
        # Unsigned, since a place below 0 would count from the end: not having to look, the compiler
        # copies many bytes at a time. Slices took three times as long.
        for place in range(end - at):
            out[np.uint64(at + place)] = data[np.uint64(start + place)]
        at = end


def gather(data: Bytes, starts: Ints, lengths: Ints) -> tuple[Ints, Bytes]:
    """(n + 1 offsets, bytes): the fields one after another."""
    places = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=places[1:])
    out = np.empty(int(places[-1]), np.uint8)
    _copy(data, starts, places[1:], out)
    return places, out


def index_records(unit: Unit) -> Columns:
    """Where the fields of all records of these batches lie. Raises CorruptSpanError."""
    data, payloads = unit
    batches = np.ascontiguousarray(np.array(payloads, np.int64).T)
    sizes = batches[_END] - batches[_START]
    # Each record takes seven bytes at least; a lying count must not make us allocate for it.
    lying = batches[_COUNT] * 7 > sizes
    if bool(lying.any()):
        raise CorruptSpanError(_bad_batch(payloads[int(lying.argmax())]))
    rows = np.empty((10, int(batches[_COUNT].sum())), np.int64)
    header_count = _index(data, batches, rows)
    if header_count < 0:
        raise CorruptSpanError(_bad_batch(payloads[~header_count]))
    header_fields = np.empty((4, header_count), np.int64)
    bad_row = _index_headers(data, rows, header_fields)
    if bad_row >= 0:
        bad = int(np.searchsorted(np.cumsum(batches[_COUNT]), bad_row, side="right"))
        raise CorruptSpanError(_bad_batch(payloads[bad]))
    return Columns(data, *rows[:_HEADERS_AT], *header_fields)


def _bad_batch(payload: Payload) -> str:
    return (
        f"the batch at offset {payload.base_offset} has records that cannot be read, "
        "although its checksum matches"
    )
