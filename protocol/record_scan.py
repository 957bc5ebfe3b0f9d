"""Scans the records of a batch without decoding them: where each lies, its key, its offset, and whether it
has a value; or the newest timestamp alone. What log compaction and merging need, as fast as Python
goes (`protocol.records` reads them whole). And what a broker needs of them, `heads`: every length is
checked there as a consumer will check it, and nothing is copied; and `schema_named`, by a key or a value.

A record is copied as it is, or with another timestamp delta; headers and values are never looked
at but by `heads`. Whatever the bytes, functions here return, `scan` and `newest_timestamp` with None
for what makes no sense, or raise ProtocolError (`heads`).
"""

import struct
from collections.abc import Generator, Iterable, Iterator
from hashlib import blake2s
from operator import lt
from typing import Final, NamedTuple, cast

from protocol.errors import ProtocolError
from protocol.primitives import uvarint
from protocol.records import NO_TIMESTAMP, RECORD_BYTES_MIN, BatchHeader
from protocol.types import Buffer

KEY_BYTES_MAX: Final = 40
"""A longer key is known by its digest: most keys are shorter, and digests take their time."""
_SHORT: Final = KEY_BYTES_MAX << 1
"""A length as it is written: zigzag."""
_DIGEST_MARK: Final = bytes(KEY_BYTES_MAX + 1 - blake2s().digest_size)
"""Makes a digest longer than any key that stands for itself: no key can pass for another."""
_WINDOW: Final = struct.Struct("8B").unpack_from
_PADDING: Final = bytes(8)
_INT32: Final = 1 << 32
_INT64: Final = 1 << 64
_INT64_MAX: Final = (1 << 63) - 1
_LENGTH_MIN: Final = (RECORD_BYTES_MIN - 1) << 1
"""Of a record, as it is written: zigzag, without itself."""
NO_FIELD: Final = -1
NO_FRAME: Final = -2
_FRAME: Final = struct.Struct(">BI")
HEADS_MAX: Final = 1024
"""Records, or headers of records, in one slice of `heads`: about a millisecond."""


class Scanned(NamedTuple):
    """The records of a batch, in order."""

    starts: list[int]
    """First byte of each (its length) in the payload."""
    keys: list[bytes | None]
    """Those of more than KEY_BYTES_MAX bytes as their digest."""
    deltas: list[int] | range
    """Offsets, less the batch's base offset; ascending."""
    nulls: list[int]
    """Which of them (0 is the first) have no value."""


def scan(payload: bytes, *, count: int, last_delta: int) -> Scanned | None:
    """The `count` records of which `payload` consists, decompressed; None when it does not, or
    when their offsets do not ascend to `last_delta` at most."""
    try:
        scanned = _scan(payload, count)
    except (IndexError, struct.error):
        return None
    if scanned is None:
        return None
    starts, keys, twice, nulls = scanned
    # Deltas are zigzag numbers: twice what they say, odd when negative.
    if twice == list(range(0, 2 * count, 2)):
        return Scanned(starts, keys, range(count), nulls) if count <= last_delta + 1 else None
    if any(one & 1 for one in twice) or not all(map(lt, twice, twice[1:])):
        return None
    if twice and twice[-1] >> 1 > last_delta:
        return None
    return Scanned(starts, keys, [one >> 1 for one in twice], nulls)


def _scan(  # noqa: C901 (Varints are read in place: a call costs more than they do.)
    records: bytes, count: int
) -> tuple[list[int], list[bytes | None], list[int], list[int]] | None:
    if count * RECORD_BYTES_MIN > len(records):
        return None
    payload = records + _PADDING
    starts, deltas, keys = [0] * count, [0] * count, _no_keys(count)
    nulls: list[int] = []
    at = 0
    for number in range(count):
        starts[number] = at
        b0, b1, b2, b3, b4, b5, b6, b7 = _WINDOW(payload, at)
        # Length, attributes (none are defined) and timestamp delta, lengths of 2 bytes at most.
        if b0 < 0x80:
            end = at + 1 + (b0 >> 1)
            if b2 < 0x80:
                first, second, third = b3, b4, b5
                at += 3
            elif b3 < 0x80:
                first, second, third = b4, b5, b6
                at += 4
            else:
                first = second = third = 0x80
        else:
            end = at + 2 + (b0 & 0x7E | b1 << 7) // 2
            if b1 >= 0x80:
                first = second = third = 0x80
            elif b3 < 0x80:
                first, second, third = b4, b5, b6
                at += 4
            elif b4 < 0x80:
                first, second, third = b5, b6, b7
                at += 5
            else:
                first = second = third = 0x80
        # Offset delta, and length of the key.
        if first < 0x80:
            delta, length = first, second
            at += 2
        elif second < 0x80:
            delta, length = first & 0x7F | second << 7, third
            at += 3
        else:
            end, delta, length, at = _read_head(payload, starts[number])
        if b0 & 1:
            return None
        deltas[number] = delta
        if length >= 0x80:
            length, at = _read_varint(payload, at - 1)
        if not length & 1:
            start = at
            at += length >> 1
            key = payload[start:at]
            keys[number] = key if length <= _SHORT else blake2s(key).digest() + _DIGEST_MARK
        elif length != 1:
            return None
        if at > end - 2:  # Lengths of the value and the headers.
            return None
        if payload[at] == 1:
            nulls.append(number)
        at = end
    return (starts, keys, deltas, nulls) if at == len(records) else None


def _no_keys(count: int) -> list[bytes | None]:
    return [None] * count


def _read_head(payload: bytes, at: int) -> tuple[int, int, int, int]:
    """Of the record at `at`: its end, its offset delta as it is written, the first byte of its
    key's length, and the place after that."""
    length, at = _read_varint(payload, at)
    end = at + (length >> 1)
    _, at = _read_varint(payload, at + 1)
    delta, at = _read_varint(payload, at)
    return end, delta, payload[at], at + 1


def _read_varint(payload: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 64 bits, else IndexError, and the byte after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value < _INT64:
                return value, at
            break
    raise IndexError


def newest_timestamp(header: BatchHeader, payload: Buffer) -> int | None:
    """Of the records of which `payload` consists, decompressed; -1 when none has one, None when it
    does not consist of them. What Kafka's broker computes, and writes into the batch's header."""
    if header.is_log_append_time:
        return header.max_timestamp
    try:
        newest = _newest_delta(payload, header.record_count)
    except IndexError:
        return None
    if newest is None:
        return None
    return max(NO_TIMESTAMP, min(header.base_timestamp + newest, _INT64_MAX))


def _newest_delta(payload: Buffer, count: int) -> int | None:
    if count <= 0 or count * RECORD_BYTES_MIN > len(payload):
        return None
    # Zigzag numbers are odd when negative: the greatest even one, else the least odd one.
    even, odd = -1, _INT64
    at = 0
    for _ in range(count):
        length = payload[at]
        at += 1
        if length >= 0x80:
            more = payload[at]
            at += 1
            if more < 0x80:
                length = length & 0x7F | more << 7
            else:
                length, at = _read_varint(payload, at - 2)
        if length & 1 or length < _LENGTH_MIN:
            return None
        end = at + (length >> 1)
        twice = payload[at + 1]
        if twice >= 0x80:
            more = payload[at + 2]
            if more < 0x80:
                twice = twice & 0x7F | more << 7
            else:
                twice, after = _read_varint(payload, at + 1)
                if after > end:
                    return None
        if twice & 1:
            odd = min(odd, twice)
        elif twice > even:
            even = twice
        at = end
    if at != len(payload):
        return None
    return even >> 1 if even >= 0 else -((odd + 1) >> 1)


def timestamp_delta(payload: bytes, start: int) -> int:
    """Of the scanned record at `start`."""
    _, at = _read_varint(payload, start)
    twice, _ = _read_varint(payload, at + 1)
    return (twice >> 1) ^ -(twice & 1)


def moved(payload: bytes, records: Iterable[tuple[int, int]], *, later: int) -> bytes:
    """Scanned records (first byte, byte after the last) with `later` added to the timestamp delta
    of each, modulo 2**64 as Kafka's clients calculate."""
    out = bytearray()
    for start, end in records:
        _, attributes_at = _read_varint(payload, start)
        twice, rest_at = _read_varint(payload, attributes_at + 1)
        delta = ((twice >> 1) ^ -(twice & 1)) + later
        delta = (delta + (_INT64 >> 1)) % _INT64 - (_INT64 >> 1)
        encoded = uvarint((delta << 1) ^ (delta >> 63))
        out += uvarint((1 + len(encoded) + end - rest_at) << 1)
        out.append(payload[attributes_at])
        out += encoded
        out += payload[rest_at:end]
    return bytes(out)


def framed_value(payload: memoryview, at: int) -> memoryview:
    """What is behind the frame of a key or value that names a schema (`schema_named`); its length is at `at`."""
    twice, at = _read_varint(payload, at)
    return payload[at + _FRAME.size : at + (twice >> 1)]


def records_end(payload: Buffer, at: int, count: int) -> int:
    """The byte after the `count` records from the one at `at` on, of which only the lengths are read: twenty times as
    fast as reading them. Raises ProtocolError."""
    size = len(payload)
    try:
        for _ in range(count):
            twice = payload[at]
            at += 1
            if twice >= 0x80:
                if (more := payload[at]) < 0x80:
                    twice, at = twice & 0x7F | more << 7, at + 1
                else:
                    twice, at = _read_length(payload, at - 1)
            at += twice >> 1
            if twice & 1 or at > size:
                raise ProtocolError(f"a record of {_signed(twice)} bytes, which are not there")
    except IndexError as error:
        raise ProtocolError("records that end early") from error
    return at


class Heads(NamedTuple):
    """Of some adjacent records, what stands in front of their keys."""

    first: int
    """Which of the batch's records the first of them is, from 0."""
    offset_deltas: list[int]
    timestamp_deltas: list[int]
    keyless: list[int]
    """Which of the batch's records have no key."""
    flagged: list[int]
    """Which of them have attributes; none are defined."""
    keys: list[int]
    """First byte of the length of each key in the payload, of sound records; empty unless asked for."""
    values: list[int]
    """The same of values."""


def heads(payload: Buffer, count: int, *, places: bool = False) -> Iterator[Heads]:
    """Of the `count` records of which `payload` consists, decompressed: HEADS_MAX at a time, or fewer.
    `places`: with those of keys and values.

    None where headers take a slice of their own. Raises ProtocolError when it does not, after the
    records before that. Lengths and offsets are varints of 32 bits, timestamps of 64, as Kafka's
    clients read them.
    """
    at = 0
    for first in range(0, count, HEADS_MAX):
        found = Heads(first, [], [], [], [], [], [])
        error: ProtocolError | None = None
        try:
            last = min(first + HEADS_MAX, count)
            at = yield from _heads(payload, at, found, last, places=places)
        except IndexError:
            error = ProtocolError("records that end early")
        except ProtocolError as malformed:
            error = malformed
        yield found
        if error is not None:
            raise error
    if at != len(payload):
        raise ProtocolError(f"{len(payload) - at} bytes behind the last of {count} records")


def _heads(  # noqa: C901 (Varints are read in place: a call costs more than they do.)
    payload: Buffer, at: int, found: Heads, last: int, *, places: bool
) -> Generator[Heads, None, int]:
    """Fills `found` with the records from the one at `at` on, before `last`; the byte after them."""
    _, offsets, timestamps, keyless, flagged, keys, values = found
    size = len(payload)
    passed = 0
    for number in range(found.first, last):
        twice = payload[at]
        at += 1
        if twice >= 0x80:
            if (more := payload[at]) < 0x80:
                twice, at = twice & 0x7F | more << 7, at + 1
            else:
                twice, at = _read_length(payload, at - 1)
        end = at + (twice >> 1)
        if twice & 1 or end > size:
            raise ProtocolError(f"record {number} says {_signed(twice)} bytes, {size - at} left")
        if payload[at]:
            flagged.append(number)
        twice = payload[at + 1]
        at += 2
        if twice >= 0x80:
            twice, at = _read_varint(payload, at - 1)
        timestamps.append((twice >> 1) ^ -(twice & 1))
        twice = payload[at]
        at += 1
        if twice >= 0x80:
            if (more := payload[at]) < 0x80:
                twice, at = twice & 0x7F | more << 7, at + 1
            elif (most := payload[at + 1]) < 0x80:
                twice, at = twice & 0x7F | (more & 0x7F) << 7 | most << 14, at + 2
            else:
                twice, at = _read_length(payload, at - 1)
        offsets.append((twice >> 1) ^ -(twice & 1))
        key_at = at
        twice = payload[at]
        at += 1
        if twice >= 0x80:
            twice, at = _read_length(payload, at - 1)
        if not twice & 1:
            at += twice >> 1
        elif twice == 1:
            keyless.append(number)
        else:
            raise ProtocolError(f"record {number} has a key of {_signed(twice)} bytes")
        value_at = at
        twice = payload[at]
        at += 1
        if twice >= 0x80:
            if (more := payload[at]) < 0x80:
                twice, at = twice & 0x7F | more << 7, at + 1
            else:
                twice, at = _read_length(payload, at - 1)
        if not twice & 1:
            at += twice >> 1
        elif twice != 1:
            raise ProtocolError(f"record {number} has a value of {_signed(twice)} bytes")
        if payload[at]:
            at, passed = yield from _pass_headers(payload, at, end, number, passed)
        else:
            at += 1
        if at != end:
            raise ProtocolError(f"record {number} has a length that is not that of its fields")
        if places:
            keys.append(key_at)
            values.append(value_at)
    return at


def _pass_headers(
    payload: Buffer, at: int, end: int, number: int, passed: int
) -> Generator[Heads, None, tuple[int, int]]:
    """The byte after the headers whose count is at `at`, and how many were `passed` in this slice.
    There may be millions in one record."""
    twice, at = _read_length(payload, at)
    if twice & 1 or twice >> 1 > end - at:
        raise ProtocolError(f"record {number} with {_signed(twice)} headers")
    for _ in range(twice >> 1):
        passed += 1
        if passed == HEADS_MAX:
            passed = 0
            yield Heads(number, [], [], [], [], [], [])
        twice, at = _read_length(payload, at)
        if twice & 1:
            raise ProtocolError(f"record {number} has a header without a key")
        twice, at = _read_length(payload, at + (twice >> 1))
        if not twice & 1:
            at += twice >> 1
        elif twice != 1:
            raise ProtocolError(f"record {number} has a header of {_signed(twice)} bytes")
        if at > end:
            raise ProtocolError(f"record {number} ends within its headers")
    return at, passed


def schema_named(payload: Buffer, at: int) -> int:
    """The id of the schema in the frame of a key or a value (Confluent's: a zero, the id in four bytes,
    the rest), whose length is at `at`, as `heads` found it: NO_FIELD when it is null, NO_FRAME when
    it has none."""
    twice = payload[at]
    at += 1
    if twice >= 0x80:
        twice, at = _read_length(payload, at - 1)
    if twice == 1:
        return NO_FIELD
    if twice < _FRAME.size << 1:
        return NO_FRAME
    magic, schema_id = _FRAME.unpack_from(payload, at)
    return NO_FRAME if magic else cast("int", schema_id)


def _read_length(payload: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, else ProtocolError, and the byte after it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value < _INT32:
                return value, at
            break
    raise ProtocolError("a varint of more than 32 bits")


def _signed(twice: int) -> int:
    return (twice >> 1) ^ -(twice & 1)
