"""Primitive types of the protocol: varints, strings, arrays and tagged fields, by hand.

Used where speed or borrowing matters (headers, Produce, Fetch, records); everything else goes
through `protocol.messages`. Readers take a buffer and a place and return the value and the place
after it. They raise ProtocolError, or one of MALFORMED at the buffer's end, which a parser catches
once around its whole work: a check per field would cost more than the parsing.
"""

import struct
from typing import Final

from protocol.errors import ProtocolError
from protocol.types import TopicId

INT32_MAX: Final = (1 << 31) - 1

TAGGED_FIELDS_MAX: Final = 1_000
"""In one place; Kafka's messages have fewer than ten. A field takes two bytes, and us a hundred."""

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")


MALFORMED: Final = (IndexError, struct.error, UnicodeDecodeError)
"""What reading past the end, or a string of other bytes, raises inside a parser."""


def malformed(what: str, error: Exception) -> ProtocolError:
    """The ProtocolError for one of MALFORMED, about `what`."""
    if isinstance(error, UnicodeDecodeError):
        return ProtocolError(f"{what} with a string that is not UTF-8")
    return ProtocolError(f"{what} that ends early")


def read_uvarint(view: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 31 bits (lengths and counts are never more)."""
    byte = view[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = view[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > INT32_MAX:
                break
            return value, at + 1
    raise ProtocolError("an unsigned varint above 2^31 - 1")


def read_count(view: memoryview, at: int, *, flexible: bool) -> tuple[int, int]:
    """Length of an array or byte string; -1 is null. Never more than bytes are left.

    (An element has at least one byte, so this also bounds what a lying count can make us do.)
    """
    if flexible:
        count, at = read_uvarint(view, at)
        count -= 1
    else:
        count = INT32.unpack_from(view, at)[0]
        at += 4
        if count < -1:
            raise ProtocolError(f"a length of {count}")
    if count > len(view) - at:
        raise ProtocolError(f"a length of {count} with {len(view) - at} bytes left")
    return count, at


def read_array_count(view: memoryview, at: int, *, flexible: bool) -> tuple[int, int]:
    """As `read_count`, of an array that may not be null."""
    count, at = read_count(view, at, flexible=flexible)
    if count < 0:
        raise ProtocolError("null for an array that cannot be null")
    return count, at


def read_nullable_string(view: memoryview, at: int, *, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        count, at = read_uvarint(view, at)
        count -= 1
    else:
        count = INT16.unpack_from(view, at)[0]
        at += 2
    if count < 0:
        if count != -1:
            raise ProtocolError(f"a string of {count} bytes")
        return None, at
    end = at + count
    if end > len(view):
        raise ProtocolError(f"a string of {count} bytes with {len(view) - at} bytes left")
    return str(view[at:end], "utf-8"), end


def read_string(view: memoryview, at: int, *, flexible: bool) -> tuple[str, int]:
    value, at = read_nullable_string(view, at, flexible=flexible)
    if value is None:
        raise ProtocolError("null for a string that cannot be null")
    return value, at


def read_topic_id(view: memoryview, at: int) -> tuple[TopicId, int]:
    value = bytes(view[at : at + 16])
    if len(value) != 16:
        raise ProtocolError("a topic id that ends early")
    return TopicId(value), at + 16


def read_tagged_fields(view: memoryview, at: int) -> tuple[dict[int, memoryview], int]:
    """Tagged fields (KIP-482) by tag, undecoded. Their order is not looked at, as in Kafka."""
    count, at = _read_tagged_count(view, at)
    fields: dict[int, memoryview] = {}
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        end = at + size
        if end > len(view):
            raise _cut_off(size, len(view) - at)
        fields[tag] = view[at:end]
        at = end
    return fields, at


def skip_tagged_fields(view: memoryview, at: int) -> int:
    """Place after tagged fields that nobody reads."""
    if view[at] == 0:
        return at + 1
    count, at = _read_tagged_count(view, at)
    for _ in range(count):
        if view[at] < 0x80 > view[at + 1]:  # Nearly all: a byte each.
            size = view[at + 1]
            at += 2
        else:
            _, at = read_uvarint(view, at)
            size, at = read_uvarint(view, at)
        if size > len(view) - at:
            raise _cut_off(size, len(view) - at)
        at += size
    return at


def _read_tagged_count(view: memoryview, at: int) -> tuple[int, int]:
    count, at = read_uvarint(view, at)
    if count > TAGGED_FIELDS_MAX:
        raise ProtocolError(f"{count} tagged fields in one place, at most {TAGGED_FIELDS_MAX}")
    return count, at


def _cut_off(size: int, left: int) -> ProtocolError:
    return ProtocolError(f"a tagged field of {size} bytes with {left} bytes left")


def uvarint(value: int) -> bytes:
    """`value`, 0 to 2^32 - 1, as an unsigned varint."""
    assert value >= 0
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str, *, flexible: bool) -> bytes:
    """A string with its length."""
    data = value.encode()
    return (uvarint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def nullable_string(value: str | None, *, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    return string(value, flexible=flexible)


def array_count(count: int, *, flexible: bool) -> bytes:
    """The length that precedes an array's elements."""
    return uvarint(count + 1) if flexible else INT32.pack(count)


def tagged_fields(fields: list[tuple[int, bytes]]) -> bytes:
    """Tagged fields from (tag, value) in ascending order of tags."""
    out = bytearray(uvarint(len(fields)))
    for tag, value in fields:
        out += uvarint(tag) + uvarint(len(value)) + value
    return bytes(out)
