"""Numbers, strings and topic ids as the metadata log has them, for its codecs.

Readers take the bytes and a place, and return the value and the place after it. Writers raise
CodecError for a value out of bounds; readers too, and IndexError or UnicodeDecodeError where the
bytes end or are no text, which `codec.decode_entry` catches once around its whole work.
"""

from typing import Final

from protocol.fault_codes import FaultError
from protocol.types import TopicId

STRING_BYTES_MAX: Final = 32_767
"""Kafka's own bound on a string."""
CONFIGS_MAX: Final = 1000
"""In one command."""

U31: Final = (1 << 31) - 1
U32: Final = (1 << 32) - 1
U63: Final = (1 << 63) - 1
I16: Final = range(-(1 << 15), 1 << 15)
I32: Final = range(-(1 << 31), 1 << 31)
TOPIC_ID_BYTES: Final = 16


class CodecError(FaultError):
    """These bytes are no entry, or this value does not fit into one."""


def put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """At most 70 bits: room for the zigzagged difference of two timestamps of 64 bits."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= 70:
            raise CodecError("a number of more than ten bytes")


def put_number(out: bytearray, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise CodecError(f"{value} is not between 0 and {most}")
    put_varint(out, value)


def read_number(data: bytes, at: int, most: int) -> tuple[int, int]:
    value, at = read_varint(data, at)
    if value > most:
        raise CodecError(f"{value} is more than {most}")
    return value, at


def put_zigzag(out: bytearray, value: int) -> None:
    put_varint(out, value << 1 if value >= 0 else ~value << 1 | 1)


def read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def put_signed(out: bytearray, value: int) -> None:
    if not -U63 - 1 <= value <= U63:
        raise CodecError(f"{value} has more than 64 bits")
    put_zigzag(out, value)


def read_signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_zigzag(data, at)
    if not -U63 - 1 <= value <= U63:
        raise CodecError(f"{value} has more than 64 bits")
    return value, at


def put_string(out: bytearray, value: str) -> None:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise CodecError(f"{value!r} is not a string of characters") from None
    if len(data) > STRING_BYTES_MAX:
        raise CodecError(f"a string of {len(data)} bytes, at most {STRING_BYTES_MAX}")
    put_varint(out, len(data))
    out += data


def read_string(data: bytes, at: int) -> tuple[str, int]:
    length, at = read_number(data, at, STRING_BYTES_MAX)
    return take_bytes(data, at, length).decode(), at + length


def put_bytes(out: bytearray, value: bytes) -> None:
    """Bytes with their length in front; only an entry's end bounds them."""
    put_varint(out, len(value))
    out += value


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_varint(data, at)
    return take_bytes(data, at, length), at + length


def take_bytes(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise CodecError("an entry that ends in the middle")
    return data[at : at + length]


def put_topic_id(out: bytearray, topic_id: TopicId) -> None:
    if len(topic_id) != TOPIC_ID_BYTES:
        raise CodecError(f"a topic id of {len(topic_id)} bytes")
    out += topic_id


def read_topic_id(data: bytes, at: int) -> tuple[TopicId, int]:
    return TopicId(take_bytes(data, at, TOPIC_ID_BYTES)), at + TOPIC_ID_BYTES


def bounded(count: int, most: int, what: str) -> int:
    if count > most:
        raise CodecError(f"{count} {what}, at most {most}")
    return count
