"""Record batches to columns, by compiled code, with every length checked.

Three steps. `split_batches` walks the headers of a span, verifies each CRC, drops control batches
and those of aborted transactions, decompresses the others into one buffer for many of them.
`read_records` walks the records of such a unit (compiled): once to see that all of a batch can be
read, once to note where each field lies, a bounded number of records at a time.
`gather` (compiled) copies fields into one buffer with 64-bit offsets, the layout of Arrow's large
binary, so that no column has a limit of 2 GiB.

Exactness: what the log cannot have told raises CorruptSpanError: wrong CRC, lengths beyond the
batch, offsets that do not add up. A batch whose checksum is right is what its producer sent, and
may be anything: where it does not inflate within `BATCH_BYTES_MAX`, has bytes left over, offsets that
do not rise, or counts other than its header's, it is `Unreadable` as a whole.
Offsets of a chunk come from the span, never from the batch's own base offset, which is 0 there; in a
segment each batch says its own, and what lies between two is a hole. A transactional batch is
aborted when it lies in an aborted range of its producer, which has one transaction at a time in a
partition; all others below the plan's end are committed.

Memory, whatever a batch claims: one unit (`_ROOM_BYTES`, or one batch of `BATCH_BYTES_MAX`; snappy's
twice) and the columns of `PIECE_BYTES` of records, or of one record, with `HEADERS_MAX` headers.
Nothing here knows of Arrow, Spark or Iceberg.
"""

from collections.abc import Callable, Generator, Iterator
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

BATCH_BYTES_MAX = compression.DECOMPRESSED_BYTES_MAX
"""Bound on what one batch may inflate to. What is not compressed is in memory already."""

UNIT_BYTES = 8 * 1024 * 1024
"""Decompressed records that are decoded together."""

UNIT_BATCHES_MAX = 65_536

PIECE_BYTES = 8 * 1024 * 1024
"""Records whose fields are noted together, unless one record is larger."""
PIECE_RECORDS_MAX = 131_072
HEADERS_MAX = 1 << 20
"""Of a record, and of a piece of several: each takes 32 bytes to note, and 2 bytes in a batch."""

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
    at: int
    """Where the batch begins in the span."""


class Unit(NamedTuple):
    """Batches that lie one behind the other in `data`."""

    data: Bytes
    payloads: list[Payload]
    span: memoryview
    """The bytes that they came from."""


class Unreadable(NamedTuple):
    """A batch whose checksum is right, and whose records nobody can read."""

    batch: memoryview
    """The whole of it."""
    base_offset: int
    reason: str
    """The end of a sentence."""

    @property
    def header(self) -> records.BatchHeader:
        return records.read_header(self.batch)

    @property
    def offset_count(self) -> int:
        """What its header claims."""
        return self.header.last_offset_delta + 1

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.offset_count - 1


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
    unreadable: int = 0
    """Offsets of unreadable batches, but for the one row of each."""

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
    """Decompresses batches of a span one behind the other; a new buffer when one is full."""

    def __init__(self, span: memoryview) -> None:
        self._span = span
        self._data = np.empty(min(_ROOM_BYTES, _RATIO * len(span)), np.uint8)
        self._size = 0
        self._payloads: list[Payload] = []

    def add(self, header: records.BatchHeader, at: int, offset: int) -> Iterator[Unit | Unreadable]:
        """Takes the batch at byte `at`, whose first offset is `offset`. Yields the unit that ends
        before it, if one does, and the batch itself if nothing can be taken of it."""
        batch = self._span[at : at + header.size]
        try:
            if not 0 <= header.record_count <= header.last_offset_delta + 1:
                raise ProtocolError(
                    f"{header.record_count} records cannot take "
                    f"{header.last_offset_delta + 1} offsets"
                )
            taken = yield from self._inflate(header.codec, batch[records.HEADER_BYTES :])
        except ProtocolError as error:
            yield from self.end()
            yield Unreadable(batch, offset, str(error))
            return
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
            at=at,
        )
        self._payloads.append(payload)
        self._size += taken

    def _inflate(self, codec: int, body: memoryview) -> Generator[Unit, None, int]:
        """Puts the records behind the others; returns their bytes. Raises ProtocolError."""
        is_plain = codec == compression.Codec.NONE
        bytes_max = max(BATCH_BYTES_MAX, len(body)) if is_plain else BATCH_BYTES_MAX
        need = min(bytes_max, len(body) * (1 if is_plain else _RATIO))
        while True:
            room = len(self._data) - self._size
            is_full = self._size >= UNIT_BYTES or len(self._payloads) >= UNIT_BATCHES_MAX
            if need > room or is_full:
                yield from self.end()
                room = max(_ROOM_BYTES, need)
                self._data = np.empty(0, np.uint8)  # It goes before the larger one comes.
                self._data = np.empty(room, np.uint8)
            taken = compression.decompress_into(
                codec, body, self._data.data[self._size :], bytes_max=bytes_max
            )
            if taken != compression.NO_ROOM:
                return taken
            if room >= bytes_max:
                raise ProtocolError(f"data inflates to more than {bytes_max} bytes")
            need = min(bytes_max, _RATIO * room)

    def end(self) -> Iterator[Unit]:
        """Yields what was taken since the last unit, if there is any."""
        if self._payloads:
            unit = Unit(self._data, self._payloads, self._span)
            self._data, self._payloads, self._size = np.empty(0, np.uint8), [], 0
            yield unit


def split_batches(
    span: PlannedSpan, data: memoryview, dropped: Dropped | None = None
) -> Iterator[Unit | Unreadable]:
    """The committed data batches of a span in order, many at a time, with the offsets of the log.

    Counts the others in `dropped`. Raises CorruptSpanError.
    """
    counts = Dropped() if dropped is None else dropped
    units = _Units(data)
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
            yield from units.add(header, at, offset)
        offset += taken
        at = end
    if offset != span.next_offset:
        raise _corrupt(
            span, 0, f"holds {offset - span.base_offset} offsets, the log says {span.records}"
        )
    yield from units.end()


def _read_header(span: PlannedSpan, data: memoryview, at: int) -> records.BatchHeader:
    """That of the whole batch at byte `at`."""
    if len(data) - at < records.HEADER_BYTES:
        raise _corrupt(span, at, f"{len(data) - at} bytes are no record batch")
    header = records.read_header(data, at)
    if (
        header.magic != records.MAGIC
        or header.size < records.HEADER_BYTES
        or at + header.size > len(data)
        or header.last_offset_delta < 0
    ):
        raise _corrupt(span, at, "not a whole record batch of format 2")
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
            # No branch for bits beyond the 64th: with one the compiler no longer copies this to where
            # it is called, and all takes three times as long.
            fits = (part << shift) >> shift == part
            return half ^ -np.int64(value & np.uint64(1)), at if fits else -1
        shift += np.uint64(7)
    return 0, -1


@compiled
def _field(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Length (-1 null) and start of a length-prefixed field; start -1 when malformed."""
    length, start = _varint(data, at, end)
    if start < 0 or length < -1 or length > end - start:
        return -1, -1
    return length, start


# What `_check` says of a batch.
_READABLE, _BROKEN, _TOO_MANY_HEADERS = range(3)


@compiled
def _headers_end(data: Bytes, at: int, end: int, count: int) -> int:
    """The place after so many headers; -1 when one is malformed."""
    for _ in range(count):
        size, start = _field(data, at, end)
        if start < 0 or size < 0:
            return -1
        size, start = _field(data, start + size, end)
        if start < 0:
            return -1
        at = start + max(size, 0)
    return at


@compiled
def _check_batch(data: Bytes, at: int, end: int, count: int, last_delta: int) -> int:
    """Whether the records of a batch can be read, every one of them."""
    delta_before = -1
    for _ in range(count):
        length, body = _varint(data, at, end)
        if body < 0 or length < 1 or length > end - body:
            return _BROKEN
        at = body + length
        # One byte of attributes, which mean nothing in this format.
        _timestamp_delta, place = _varint(data, body + 1, at)
        if place < 0:
            return _BROKEN
        delta, place = _varint(data, place, at)
        if place < 0 or delta <= delta_before or delta > last_delta:
            return _BROKEN
        delta_before = delta
        for _field_of_two in range(2):
            size, start = _field(data, place, at)
            if start < 0:
                return _BROKEN
            place = start + max(size, 0)
        headers, place = _varint(data, place, at)
        # A header takes two bytes at least: this bounds what a lying count can cost.
        if place < 0 or headers < 0 or headers > (at - place) // 2:
            return _BROKEN
        if headers > HEADERS_MAX:
            return _TOO_MANY_HEADERS
        if _headers_end(data, place, at, headers) != at:
            return _BROKEN
    return _READABLE if at == end else _BROKEN


@compiled
def _check(data: Bytes, batches: Ints, verdicts: Ints) -> None:
    """Say of each batch whether it can be read."""
    for batch in range(batches.shape[1]):
        start, end, count = batches[_START, batch], batches[_END, batch], batches[_COUNT, batch]
        verdicts[batch] = _check_batch(data, start, end, count, batches[_LAST_DELTA, batch])


@compiled
def _index(data: Bytes, batches: Ints, cursor: Ints, rows: Ints) -> tuple[int, int]:
    """Note where every field of every record is, headers left aside, of batches that `_check` has
    found readable; goes on at `cursor` (batch, place or -1, records done) and moves it.

    Ends with the last batch, or when a piece is full. Returns how many records and headers.
    """
    total = 0
    row = 0
    byte_count = 0
    while cursor[0] < batches.shape[1]:
        batch = cursor[0]
        end = batches[_END, batch]
        at = batches[_START, batch] if cursor[2] == 0 else cursor[1]
        while cursor[2] < batches[_COUNT, batch]:
            length, body = _varint(data, at, end)
            if row == rows.shape[1] or (row and byte_count + length > PIECE_BYTES):
                cursor[1] = at
                return row, total
            record_end = body + length
            timestamp_delta, place = _varint(data, body + 1, record_end)
            delta, place = _varint(data, place, record_end)
            rows[_OFFSET, row] = batches[_BASE, batch] + delta
            rows[_TYPE, row] = batches[_STAMPED, batch]
            if batches[_STAMPED, batch]:
                rows[_TIMESTAMP, row] = batches[_APPEND_TIMESTAMP, batch]
            else:
                rows[_TIMESTAMP, row] = batches[_BASE_TIMESTAMP, batch] + timestamp_delta
            for field in (_KEY, _VALUE):
                size, start = _field(data, place, record_end)
                rows[field, row] = start
                rows[field + 1, row] = size
                place = start + max(size, 0)
            headers, place = _varint(data, place, record_end)
            if row and total + headers > HEADERS_MAX:
                cursor[1] = at
                return row, total
            rows[_HEADERS, row] = headers
            rows[_HEADERS_AT, row] = place
            rows[_RECORD_END, row] = record_end
            total += headers
            byte_count += length
            row += 1
            at = record_end
            cursor[2] += 1
        cursor[0] += 1
        cursor[2] = 0
    return row, total


@compiled
def _index_headers(data: Bytes, rows: Ints, fields: Ints) -> None:
    """Note where keys and values of all headers are."""
    header = 0
    for row in range(rows.shape[1]):
        place = rows[_HEADERS_AT, row]
        end = rows[_RECORD_END, row]
        for _ in range(rows[_HEADERS, row]):
            for field in (0, 2):
                size, start = _field(data, place, end)
                fields[field, header] = start
                fields[field + 1, header] = size
                place = start + max(size, 0)
            header += 1


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


def read_records(unit: Unit) -> Iterator[Columns | Unreadable]:
    """Where the fields of all records of these batches lie, in order, a piece at a time; between
    them the batches of which nothing can be read."""
    batches = np.ascontiguousarray(np.array(unit.payloads, np.int64).T)
    verdicts = np.empty(len(unit.payloads), np.int64)
    _check(unit.data, batches, verdicts)
    first = 0
    for bad in [*np.flatnonzero(verdicts).tolist(), len(unit.payloads)]:
        yield from _pieces(unit.data, batches[:, first:bad])
        if bad < len(unit.payloads):
            yield _unreadable(unit, unit.payloads[bad], int(verdicts[bad]))
        first = bad + 1


def _pieces(data: Bytes, batches: Ints) -> Iterator[Columns]:
    """The records of readable batches."""
    left = int(batches[_COUNT].sum())
    batches = np.ascontiguousarray(batches)
    cursor = np.zeros(3, np.int64)
    while left:
        rows = np.empty((10, min(left, PIECE_RECORDS_MAX)), np.int64)
        count, header_count = _index(data, batches, cursor, rows)
        if count < rows.shape[1]:
            rows = np.ascontiguousarray(rows[:, :count])
        header_fields = np.empty((4, header_count), np.int64)
        if header_count:
            _index_headers(data, rows, header_fields)
        yield Columns(data, *rows[:_HEADERS_AT], *header_fields)
        left -= count


def _unreadable(unit: Unit, payload: Payload, verdict: int) -> Unreadable:
    size = records.read_header(unit.span, payload.at).size
    reason = "its records do not parse"
    if verdict == _TOO_MANY_HEADERS:
        reason = f"a record has more than {HEADERS_MAX} headers"
    return Unreadable(unit.span[payload.at : payload.at + size], payload.base_offset, reason)
