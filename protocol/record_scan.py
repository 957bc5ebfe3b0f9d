"""Records of a batch without reading them: where each lies, its key, its offset, and whether it
has a value. What log compaction needs, as fast as Python goes (`protocol.records` reads them whole).

A record is copied as it is, or with another timestamp delta; headers and values are never looked
at. Whatever the bytes, functions here return, `scan` with None for what makes no sense.
"""

from collections.abc import Iterable
from hashlib import blake2b
from operator import lt
from typing import Final, NamedTuple

KEY_BYTES_MAX: Final = 40
"""A longer key is known by its digest: most keys are shorter, and digests take their time."""
_DIGEST_BYTES: Final = KEY_BYTES_MAX + 1
"""Longer than any key that stands for itself, so that no key can be made to look like another."""
_INT64: Final = 1 << 64


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
    except IndexError:
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


def _scan(  # noqa: C901 (Five varints, each read in place: a call costs more than it.)
    payload: bytes, count: int
) -> tuple[list[int], list[bytes | None], list[int], list[int]] | None:
    starts: list[int] = []
    keys: list[bytes | None] = []
    deltas: list[int] = []
    nulls: list[int] = []
    add_start, add_key, add_delta = starts.append, keys.append, deltas.append
    at = 0
    for _ in range(count):
        add_start(at)
        length = payload[at]
        if length < 0x80:
            at += 1
        elif payload[at + 1] < 0x80:
            length = length & 0x7F | payload[at + 1] << 7
            at += 2
        else:
            length, at = _read_varint(payload, at)
        if length & 1:
            return None
        end = at + (length >> 1)
        at += 1  # Attributes: none are defined.
        if payload[at] < 0x80:
            at += 1
        elif payload[at + 1] < 0x80:
            at += 2
        else:
            _, at = _read_varint(payload, at)
        delta = payload[at]
        if delta < 0x80:
            at += 1
        elif payload[at + 1] < 0x80:
            delta = delta & 0x7F | payload[at + 1] << 7
            at += 2
        else:
            delta, at = _read_varint(payload, at)
        add_delta(delta)
        length = payload[at]
        if length < 0x80:
            at += 1
        else:
            length, at = _read_varint(payload, at)
        if length == 1:
            add_key(None)
        elif length & 1:
            return None
        else:
            start = at
            at += length >> 1
            if length <= 2 * KEY_BYTES_MAX:
                add_key(payload[start:at])
            else:
                add_key(blake2b(payload[start:at], digest_size=_DIGEST_BYTES).digest())
        if at > end - 2:  # Lengths of the value and the headers.
            return None
        if payload[at] == 1:
            nulls.append(len(keys) - 1)
        at = end
    return (starts, keys, deltas, nulls) if at == len(payload) else None


def _read_varint(payload: bytes, at: int) -> tuple[int, int]:
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
        encoded = _varint((delta << 1) ^ (delta >> 63))
        out += _varint((1 + len(encoded) + end - rest_at) << 1)
        out.append(payload[attributes_at])
        out += encoded
        out += payload[rest_at:end]
    return bytes(out)


def _varint(value: int) -> bytes:
    """An unsigned one."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
