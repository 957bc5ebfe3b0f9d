"""Record batches, format version 2 (KIP-98): headers, checks, patches, records.

A batch is 61 bytes of header and then records, together compressed or not. Brokers live by the
header: the bytes from `attributes` on are covered by the CRC and stay as the producer sent them;
base offset and leader epoch lie before it and are patched. Only the newest timestamp is written
anew under another CRC: to stamp a batch (LogAppendTime), or where its records say another than its
header. Offsets of a batch are dense when
produced; after log compaction (not by us) records may be missing, never the header's range.

Whatever the bytes, functions here return, or raise ProtocolError, or answer with an ErrorCode.
Leaves out: formats 0 and 1 (gone with Kafka 4.0), and checks that need a topic's settings.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from protocol import compression
from protocol.errors import ErrorCode, ProtocolError
from protocol.types import Buffer

MAGIC: Final = 2
HEADER_BYTES: Final = 61
RECORD_BYTES_MIN: Final = 7
"""A record without key, value and headers, with its length."""
LENGTH_OVERHEAD: Final = 12
"""Bytes before and with the length field, which counts what follows it."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

NO_TIMESTAMP: Final = -1
_INT32_MAX: Final = (1 << 31) - 1
_SMALLEST_LENGTH: Final = 14
"""Kafka's LegacyRecord.RECORD_OVERHEAD_V0: below it no format has a batch."""
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_ZSTD_FROM_PRODUCE: Final = 7
_RATIO_MAX: Final = compression.RATIO_MAX

_HEADER: Final = struct.Struct(">qiiBIhiqqqhii")
_LENGTH: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_CONTROL_RECORD: Final = struct.Struct(">5shhBhiB")
_CONTROL_RECORD_HEAD: Final = bytes((16 << 1, 0, 0, 0, 4 << 1))
"""Of a marker's record: its length, attributes, both deltas, and the length of its key."""
CONTROL_BATCH_BYTES: Final = HEADER_BYTES + _CONTROL_RECORD.size

assert _HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The 61 bytes, in their order."""

    base_offset: int
    length: int
    """Bytes behind this field: the whole batch is 12 longer (`size`)."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


class Record(NamedTuple):
    """One record. Header keys that are not UTF-8 keep their bytes as surrogate escapes."""

    offset: int = -1
    timestamp: int = NO_TIMESTAMP
    """Ms since the epoch."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header of the batch at `at`, unchecked but for being there. Raises ProtocolError."""
    try:
        return BatchHeader._make(_HEADER.unpack_from(buffer, at))
    except struct.error as error:
        raise ProtocolError("a record batch header that ends early") from error


def check_batch(
    records: Buffer,
    *,
    bytes_max: int = _INT32_MAX,
    inflated_max: int = compression.DECOMPRESSED_BYTES_MAX,
    produce_version: int = 13,
) -> BatchHeader | ErrorCode:
    """The header of the one sound batch that `records` must be, else what Kafka answers.

    The checks that need only header and CRC, in Kafka's order (ProduceRequest.validateRecords,
    UnifiedLog.analyzeAndValidateRecords, LogValidator.validateBatch); `bytes_max` is the topic's
    max.message.bytes, `inflated_max` what its batches may inflate to. The count is checked against
    the bytes that so many records need at least, and those against what the codec can make of the
    compressed ones (Kafka reads all records and counts). Two answers differ from Kafka's: bytes behind the batch that are no whole
    batch are CORRUPT_MESSAGE (Kafka cuts them off, we keep producers' bytes as they are), and an
    unknown codec is UNSUPPORTED_COMPRESSION_TYPE (there UNKNOWN_SERVER_ERROR).
    """
    error = _check_frame(records)
    if error:
        return error
    header = BatchHeader._make(_HEADER.unpack_from(records))
    codec = header.attributes & CODEC_MASK
    if codec > compression.Codec.ZSTD or (
        codec == compression.Codec.ZSTD and produce_version < _ZSTD_FROM_PRODUCE
    ):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if header.base_offset != 0:
        return ErrorCode.INVALID_RECORD
    if len(records) > bytes_max:
        return ErrorCode.MESSAGE_TOO_LARGE
    if header.crc != crc32c(memoryview(records)[_CRC_FROM:]):
        return ErrorCode.CORRUPT_MESSAGE
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        return ErrorCode.INVALID_RECORD
    # Records are not looked at, but a count that they cannot have would eat up offsets.
    room = (len(records) - HEADER_BYTES) * _RATIO_MAX[codec]
    if count * RECORD_BYTES_MIN > (room if room < inflated_max or not codec else inflated_max):
        return ErrorCode.INVALID_RECORD
    if header.attributes & CONTROL:
        return ErrorCode.INVALID_RECORD
    if header.producer_id >= 0 and header.base_sequence < 0:
        return ErrorCode.INVALID_RECORD
    return header


def validate_batch(records: Buffer) -> ErrorCode:
    """NONE when `records` is one sound batch; see `check_batch`, which also gives the header."""
    result = check_batch(records)
    return result if isinstance(result, ErrorCode) else ErrorCode.NONE


def _check_frame(records: Buffer) -> ErrorCode:
    """Whether lengths and magic say that there is exactly one batch of format 2."""
    size = len(records)
    if size < LENGTH_OVERHEAD:
        return ErrorCode.INVALID_RECORD
    length: int = _LENGTH.unpack_from(records, 8)[0]
    if length < _SMALLEST_LENGTH:
        return ErrorCode.CORRUPT_MESSAGE
    if size <= _MAGIC_AT:
        return ErrorCode.INVALID_RECORD
    magic = records[_MAGIC_AT]
    if magic > MAGIC:
        return ErrorCode.CORRUPT_MESSAGE
    end = length + LENGTH_OVERHEAD
    if size < end or magic != MAGIC:
        return ErrorCode.INVALID_RECORD
    if size == end:
        return ErrorCode.CORRUPT_MESSAGE if size < HEADER_BYTES else ErrorCode.NONE
    if size - end >= LENGTH_OVERHEAD:
        length = _LENGTH.unpack_from(records, end + 8)[0]
        if length >= _SMALLEST_LENGTH and size - end >= length + LENGTH_OVERHEAD:
            return ErrorCode.INVALID_RECORD
    return ErrorCode.CORRUPT_MESSAGE


def patch(buffer: bytearray | memoryview, at: int, base_offset: int, leader_epoch: int = 0) -> None:
    """Give the batch at `at` its place in the log. Both fields lie outside the CRC."""
    _OFFSET.pack_into(buffer, at, base_offset)
    _LENGTH.pack_into(buffer, at + 12, leader_epoch)


def batch_positions(buffer: Buffer) -> "tuple[array[int], array[int]]":
    """Where batches start in adjacent whole batches, and how many offsets each covers.

    Walks the headers ("I" starts, "q" offsets). Raises ProtocolError when the batches do not
    end where the buffer ends, or a header makes no sense.
    """
    starts, counts = array("I"), array("q")
    at = 0
    end = len(buffer)
    unpack = struct.Struct(">i4xB6xi").unpack_from
    while at < end:
        if end - at < HEADER_BYTES:
            raise ProtocolError(f"{end - at} bytes behind the last record batch")
        length, magic, last_delta = unpack(buffer, at + 8)
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC or size < HEADER_BYTES or size > end - at or last_delta < 0:
            raise ProtocolError(
                f"no record batch at {at}: magic {magic}, {size} bytes, {end - at} left"
            )
        starts.append(at)
        counts.append(last_delta + 1)
        at += size
    return starts, counts


def set_log_append_time(buffer: bytearray | memoryview, at: int, now_ms: int) -> None:
    """Mark the batch at `at` as appended at `now_ms`: the bit, the maximum, and a new CRC.

    Base timestamp and deltas stay; readers take the maximum for all records.
    """
    header = read_header(buffer, at)
    _ATTRIBUTES.pack_into(buffer, at + 21, header.attributes | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(buffer, at + 35, now_ms)
    _seal(buffer, at, at + header.size)


def set_max_timestamp(buffer: bytearray | memoryview, at: int, timestamp: int) -> None:
    """Let the batch at `at` say that its newest record is of `timestamp`, under a new CRC."""
    _TIMESTAMP.pack_into(buffer, at + 35, timestamp)
    _seal(buffer, at, at + read_header(buffer, at).size)


def _seal(buffer: bytearray | memoryview, start: int, end: int) -> None:
    view = memoryview(buffer)
    _CRC.pack_into(buffer, start + _CRC_AT, crc32c(view[start + _CRC_FROM : end]))


def payload(
    batch: Buffer, at: int = 0, *, bytes_max: int = compression.DECOMPRESSED_BYTES_MAX
) -> tuple[BatchHeader, memoryview]:
    """Header and records, decompressed, of the batch at `at`. Raises ProtocolError.

    The CRC is not looked at: who takes batches from outside has done so.
    """
    header = read_header(batch, at)
    view = memoryview(batch)
    if header.magic != MAGIC or not HEADER_BYTES <= header.size <= len(view) - at:
        raise ProtocolError(
            f"no record batch at {at}: magic {header.magic}, {header.size} bytes, "
            f"{len(view) - at} left"
        )
    data = view[at + HEADER_BYTES : at + header.size]
    if header.codec == compression.Codec.NONE:
        return header, data
    return header, memoryview(compression.decompress(header.codec, data, bytes_max=bytes_max))


def recoded(header: BatchHeader, packed: bytes, codec: int) -> bytes:
    """A batch of records that were compressed by another codec than the header says.

    For topics whose compression.type demands it.
    """
    return _assemble(header._replace(attributes=header.attributes & ~CODEC_MASK | codec), packed)


def iterate(
    batch: Buffer,
    at: int = 0,
    *,
    bytes_max: int = compression.DECOMPRESSED_BYTES_MAX,
    begin: tuple[int, int] = (0, 0),
) -> Iterator[Record]:
    """The records of the batch at `at`, in order, decompressed. `begin`: behind so many of them, which take so many
    bytes (`record_scan.records_end`).

    Raises ProtocolError, possibly after some records: what does not parse, counts that do not
    agree, more than `bytes_max` decompressed.
    """
    header, data = payload(batch, at, bytes_max=bytes_max)
    view = bytes(data)  # Indexing bytes is faster than indexing a view, and slices are bytes.
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    passed, place = begin
    try:
        for _ in range(header.record_count - passed):
            length, place = _read_varint(view, place)
            end = place + length
            if length < 0 or end > len(view):
                raise ProtocolError(f"a record of {length} bytes, {len(view) - place} left")
            record = _read_record(view, place + 1, end, header.base_offset, header.base_timestamp)
            yield record if append_time is None else record._replace(timestamp=append_time)
            place = end
    except IndexError as error:
        raise ProtocolError("records that end early") from error
    if place != len(view):
        raise ProtocolError(
            f"{len(view) - place} bytes behind the last of {header.record_count} records"
        )


def _read_record(view: bytes, at: int, end: int, base_offset: int, base_timestamp: int) -> Record:
    """The record whose timestamp delta is at `at`, and which ends at `end`.

    Varints of one byte are nearly all there are, and are read in place: a call costs more.
    """
    byte = view[at]
    if byte < 0x80:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        at += 1
    else:
        timestamp_delta, at = _read_varint(view, at)
    byte = view[at]
    if byte < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        at += 1
    else:
        offset_delta, at = _read_varint(view, at)
    key, at = _read_bytes(view, at, end)
    value, at = _read_bytes(view, at, end)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if view[at] == 0:
        at += 1
    else:
        headers, at = _read_headers(view, at, end)
    if at != end:
        raise ProtocolError("a record whose length is not that of its fields")
    return Record(base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, headers)


def _read_headers(
    view: bytes, at: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _read_varint(view, at)
    if not 0 <= count <= end - at:
        raise ProtocolError(f"a record with {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(view, at, end)
        if name is None:
            raise ProtocolError("a record header without a key")
        content, at = _read_bytes(view, at, end)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    return tuple(headers), at


def _read_varint(view: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits."""
    byte = view[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), at
    raise ProtocolError("a varint of more than 64 bits")


def _read_bytes(view: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    byte = view[at]
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        at += 1
    else:
        length, at = _read_varint(view, at)
    if length < 0:
        if length != -1:
            raise ProtocolError(f"a length of {length} in a record")
        return None, at
    if length > end - at:
        raise ProtocolError(f"a length of {length} in a record with {end - at} bytes left")
    return view[at : at + length], at + length


def build_batch(
    records: Sequence[Record],
    *,
    codec: int = compression.Codec.NONE,
    base_offset: int = 0,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch as a producer makes it (one record of the console, tests, demo).

    A record with offset -1 follows the one before; others must ascend from `base_offset`.
    `attributes` are flags to set beside the codec.
    """
    assert records
    base_timestamp = records[0].timestamp
    body = bytearray()
    offset_delta = -1
    for record in records:
        delta = offset_delta + 1 if record.offset == -1 else record.offset - base_offset
        assert delta > offset_delta
        offset_delta = delta
        _add_record(body, record, record.timestamp - base_timestamp, offset_delta)
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes & ~CODEC_MASK | codec,
        last_offset_delta=offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return _assemble(header, compression.compress(codec, body))


def control_batch(
    control_type: int,
    *,
    base_offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """A transaction's marker (CONTROL_ABORT or CONTROL_COMMIT): one record, one offset.

    Packed directly: a fetch makes those it needs anew each time.
    """
    batch = bytearray(
        _HEADER.pack(
            base_offset,
            CONTROL_BATCH_BYTES - LENGTH_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,
            TRANSACTIONAL | CONTROL,
            0,
            timestamp,
            timestamp,
            producer_id,
            producer_epoch,
            -1,
            1,
        )
    )
    batch += _CONTROL_RECORD.pack(
        _CONTROL_RECORD_HEAD, 0, control_type, 6 << 1, 0, coordinator_epoch, 0
    )
    _seal(batch, 0, CONTROL_BATCH_BYTES)
    return bytes(batch)


def empty_batch(offset: int) -> bytes:
    """A batch without records at one offset: it keeps the end of what compaction took away."""
    batch = bytearray(
        _HEADER.pack(
            offset,
            HEADER_BYTES - LENGTH_OVERHEAD,
            0,
            MAGIC,
            0,
            0,
            0,
            NO_TIMESTAMP,
            NO_TIMESTAMP,
            -1,
            -1,
            -1,
            0,
        )
    )
    _seal(batch, 0, HEADER_BYTES)
    return bytes(batch)


def assemble(header: BatchHeader, data: bytes) -> bytes:
    """A batch of these records, compressed as the header says.

    Its length and CRC are made right.
    """
    return _assemble(header, compression.compress(header.codec, data))


def _assemble(header: BatchHeader, data: bytes) -> bytes:
    """Header and (compressed) records as one batch, with length and CRC made right."""
    size = HEADER_BYTES + len(data)
    batch = bytearray(_HEADER.pack(*header._replace(length=size - LENGTH_OVERHEAD, crc=0)))
    batch += data
    _seal(batch, 0, size)
    return bytes(batch)


def _add_record(body: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    out = bytearray(b"\0")
    _add_varint(out, timestamp_delta)
    _add_varint(out, offset_delta)
    _add_bytes(out, record.key)
    _add_bytes(out, record.value)
    _add_varint(out, len(record.headers))
    for name, content in record.headers:
        _add_bytes(out, name.encode("utf-8", "surrogateescape"))
        _add_bytes(out, content)
    _add_varint(body, len(out))
    body += out


def _add_varint(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _add_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
        return
    _add_varint(out, len(value))
    out += value
