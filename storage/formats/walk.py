"""Rows one batch after the other, each at its offset and checked: what merging and compaction
read, and how they write.

Jobs never trust bytes that were away: the CRC of every batch is compared, and what the batches
say with what the log says of the span. Batches without records (that keep a span's end) are
passed over; whoever writes puts one at the end again if nothing else ends there.

What a batch in a chunk says of its newest timestamp is its producer's word. It is compared with
the records when the batch leaves the chunk, and written anew if it is another, as Kafka's broker
does when it takes a batch; so segments, and rows that point at them, say what is so. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from protocol import compression, record_scan, records
from protocol.errors import ProtocolError
from protocol.records import BatchHeader
from protocol.types import Buffer, Position, leader_epoch
from storage.formats.batches import DamagedSpanError, place_of
from storage.formats.spans import Marker, ObjectKind, Span

RECORDS_MAX: Final = 1 << 20
PAYLOAD_BYTES_MAX: Final = compression.DECOMPRESSED_BYTES_MAX
"""Of one batch, decompressed: not less than an agent opens when it is produced. One that has more, of
either, counts as one that cannot be read: producers do not make such batches, and memory is bounded
(P15)."""
_CRC_FROM: Final = 21


class Merged(NamedTuple):
    """Batches that take the place of rows."""

    parts: list[Buffer]
    length: int
    """Bytes of all parts."""
    timestamp_max: int
    """Newest timestamp of a record in it, ms; -1 when none has one."""
    records: int
    """How many are in it, those of control batches too."""


class Aborted:
    """Where aborted transactions have records in a partition."""

    def __init__(self, ranges: Iterable[tuple[int, int, int]] = ()) -> None:
        """Of each range: the producer's id, first and last offset."""
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset in ranges:
            self._ranges.setdefault(producer_id, []).append((first_offset, last_offset))

    def holds(self, header: BatchHeader) -> bool:
        """The batch has records of an aborted transaction. What else the producer wrote was not
        aborted, and the transaction's end is no record of it (KIP-98)."""
        flags = header.attributes & (records.TRANSACTIONAL | records.CONTROL)
        if not self._ranges or flags != records.TRANSACTIONAL:
            return False
        return any(
            first <= header.base_offset <= last
            for first, last in self._ranges.get(header.producer_id, ())
        )


def walk(span: Span, data: memoryview) -> Iterator[tuple[int, int, BatchHeader]]:
    """First byte, byte after the last, and header with its offset of every batch with records.

    Raises DamagedSpanError, perhaps after some batches.
    """
    own_offsets = span.object_id.kind == ObjectKind.SEGMENT
    epoch = leader_epoch(Position(span.object_id.incarnation))
    if len(data) != span.length:
        raise DamagedSpanError(f"{place_of(span)} came with {len(data)} bytes")
    offset, at = span.base_offset, 0
    while at < span.length:
        header = _read(span, data, at)
        end = at + header.size
        if not own_offsets:
            header = header._replace(base_offset=offset, leader_epoch=epoch)
        elif header.base_offset < offset or not -1 <= header.leader_epoch <= epoch:
            raise DamagedSpanError(f"{place_of(span)} holds batches of other offsets or epochs")
        offset = header.base_offset + header.last_offset_delta + 1
        if header.record_count:
            yield at, end, header
        at = end
    if offset != span.next_offset:
        raise DamagedSpanError(f"{place_of(span)} ends at {offset}, not at {span.next_offset}")


def cut(span: Span, data: memoryview, *, records_max: int) -> list[Span]:
    """The span as adjacent ones of at most so many records each, cut between batches; a larger batch is one of its own.

    Raises DamagedSpanError.
    """
    pieces: list[Span] = []
    left, count = span, 0
    at, offset = span.start, span.base_offset
    for _, end, header in walk(span, data):
        if count and count + header.record_count > records_max:
            records_of_piece = offset - left.base_offset
            pieces.append(left._replace(length=at - left.start, records=records_of_piece))
            length = left.start + left.length - at
            left = left._replace(
                start=at,
                length=length,
                base_offset=offset,
                records=left.records - records_of_piece,
            )
            count = 0
        count += header.record_count
        at, offset = span.start + end, header.last_offset + 1
    return [*pieces, left]


def _read(span: Span, data: memoryview, at: int) -> BatchHeader:
    try:
        header = records.read_header(data, at)
    except ProtocolError as error:
        raise DamagedSpanError(f"{place_of(span)} ends inside a batch") from error
    size = header.length + records.LENGTH_OVERHEAD
    if (
        header.magic != records.MAGIC
        or not records.HEADER_BYTES <= size <= len(data) - at
        or header.last_offset_delta < 0
        or header.record_count < 0
        or crc32c(data[at + _CRC_FROM : at + size]) != header.crc
    ):
        raise DamagedSpanError(f"{place_of(span)}: the batch at byte {at} is damaged")
    return header


def payload_of(view: memoryview, start: int, header: BatchHeader) -> bytes | None:
    """The records, decompressed, of the batch at `start`; None when they are not to be had."""
    if header.record_count > RECORDS_MAX:
        return None
    data = view[start + records.HEADER_BYTES : start + header.size]
    try:
        return bytes(compression.decompress(header.codec, data, bytes_max=PAYLOAD_BYTES_MAX))
    except ProtocolError:
        return None


def leave_chunk(span: Span, view: memoryview, start: int, header: BatchHeader) -> BatchHeader:
    """The header of the batch at `start` of a chunk's span with the newest timestamp of its
    records, which is written into `view`, too.

    A batch that cannot be read stays as it is, and counts as new as its row says.
    """
    newest = _newest_of_records(view, start, header)
    if newest == header.max_timestamp:
        return header
    if newest is None:
        newest = span.timestamp_max
    else:
        records.set_max_timestamp(view, start, newest)
    return header._replace(max_timestamp=newest)


def newest_in(span: Span, data: memoryview) -> int:
    """The newest timestamp of the records of a chunk's span, aborted ones too; of what cannot be
    read, what its row says. Raises DamagedSpanError."""
    found = [_newest_of_records(data, start, header) for start, _, header in walk(span, data)]
    return max([span.timestamp_max if newest is None else newest for newest in found], default=-1)


def _newest_of_records(view: memoryview, start: int, header: BatchHeader) -> int | None:
    if header.is_control or header.is_log_append_time:
        return header.max_timestamp
    payload = payload_of(view, start, header)
    return None if payload is None else record_scan.newest_timestamp(header, payload)


class Output:
    """Batches in ascending order of their offsets; neighbours in one buffer stay one part."""

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self._length = 0
        self._next_offset = 0
        self._timestamp_max = -1
        self._records = 0

    def take(self, view: memoryview, start: int, end: int, header: BatchHeader) -> None:
        """Bytes [start, end) of `view`, which must not change any more."""
        if view is not self._view or start != self._end:
            self._flush()
            self._view, self._start = view, start
        self._end = end
        self._count(header, end - start)

    def add(self, batch: bytes, header: BatchHeader) -> None:
        self._flush()
        self._parts.append(batch)
        self._count(header, len(batch))

    def _flush(self) -> None:
        if self._view is not None:
            self._parts.append(self._view[self._start : self._end].toreadonly())
            self._view = None

    def _count(self, header: BatchHeader, length: int) -> None:
        assert header.base_offset >= self._next_offset
        self._length += length
        self._next_offset = header.base_offset + header.last_offset_delta + 1
        self._records += header.record_count
        self._timestamp_max = max(self._timestamp_max, header.max_timestamp)

    def finish(self, next_offset: int) -> Merged:
        """All of it, made to end before `next_offset`."""
        self._flush()
        assert self._next_offset <= next_offset
        if self._next_offset < next_offset:
            filler = records.empty_batch(next_offset - 1)
            self._parts.append(filler)
            self._length += len(filler)
        return Merged(self._parts, self._length, self._timestamp_max, self._records)


def data_of_rows(
    rows: Sequence[Span | Marker], data: Iterable[Buffer]
) -> Iterator[tuple[Span, Buffer] | tuple[Marker, None]]:
    """Every row, spans with their bytes; `data` has those of the spans alone, in order."""
    bytes_of = iter(data)
    next_offset = rows[0].base_offset
    for row in rows:
        assert row.base_offset == next_offset
        next_offset = row.next_offset
        if isinstance(row, Marker):
            yield row, None
        else:
            yield row, next(bytes_of)
    assert next(bytes_of, None) is None
