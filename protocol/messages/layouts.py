"""How values and arrays of messages lie in bytes: a reader and a writer for each type of kio's.

A `Layout` of what may be long also has a reader and a writer that pause (`Pauses`), and count what
they read against the budget of the request (`Meter`). Structs are the codec's.
"""

import functools
import struct
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from protocol.errors import ProtocolError
from protocol.messages.budgets import ELEMENTS_MAX, OverBudgetError
from protocol.primitives import (
    array_count,
    nullable_string,
    read_array_count,
    read_count,
    read_nullable_string,
    read_string,
    string,
)
from protocol.types import Buffer

SLICE_ELEMENTS: Final = 500
"""Read or written between two pauses: about two milliseconds."""
SLICE_BYTES: Final = 16 * 1024
"""Likewise; for long strings, and for tagged fields that nobody reads."""
_INTEGERS_PER_ELEMENT: Final = 16
"""So many integers, packed together, cost as much as one other element."""

Reader = Callable[[memoryview, int], tuple[Any, int]]
"""Value and the place after it."""
Writer = Callable[[bytearray, Any], None]
Pauses = Generator[None, None, Any]
"""Yields between slices, and returns what the reader or writer does."""

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}
"""Types of one length, as struct formats."""

_SHORT_ARRAY: Final = 8
"""Lists of nodes shorter than this, so nearly all, are packed together with their length."""


def at_once(slices: Pauses) -> Any:
    """What it returns, without a pause."""
    try:
        while True:
            next(slices)
    except StopIteration as end:
        return end.value


class Meter:
    """What a message read or written in slices has used: of its budget, and of its slice."""

    __slots__ = ("elements", "key", "left", "pause_at")

    def __init__(self, key: int) -> None:
        self.key = key
        self.elements = 0
        """So far."""
        self.left = SLICE_ELEMENTS
        self.pause_at = SLICE_BYTES
        """A pause is due behind this byte of the message, or when nothing is `left`."""

    def take(self, count: int) -> None:
        """So many elements come next. Raises OverBudgetError."""
        self.elements += count
        if self.elements > ELEMENTS_MAX[self.key]:
            raise OverBudgetError(self.key)

    def begin_slice(self, at: int) -> None:
        self.left = SLICE_ELEMENTS
        self.pause_at = at + SLICE_BYTES


SliceReader = Callable[[memoryview, int, Meter], Pauses]
SliceWriter = Callable[[bytearray, Any, Meter], Pauses]


class Layout(NamedTuple):
    """How one message, or a struct inside one, is read and written."""

    read: Reader
    write: Writer
    bytes_min: int
    """It takes no fewer."""
    read_slices: SliceReader | None = None
    """None where there is no array inside, so nothing long."""
    write_slices: SliceWriter | None = None


def fixed_layout(codes: list[str]) -> Layout:
    packer = struct.Struct(">" + "".join(codes))
    unpack, pack, size = packer.unpack_from, packer.pack, packer.size
    if len(codes) == 1:

        def read_one(view: memoryview, at: int) -> tuple[Any, int]:
            return unpack(view, at)[0], at + size

        def write_one(out: bytearray, value: Any) -> None:
            out += pack(value)

        return Layout(read_one, write_one, size)

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        return unpack(view, at), at + size

    def write(out: bytearray, values: Any) -> None:
        out += pack(*values)

    return Layout(read, write, size)


def value_layout(kafka_type: str, *, flexible: bool, nullable: bool) -> Layout:
    match kafka_type:
        case "string" if nullable:
            return Layout(
                functools.partial(read_nullable_string, flexible=flexible),
                lambda out, value: out.extend(nullable_string(value, flexible=flexible)),
                1 if flexible else 2,
            )
        case "string":
            return Layout(
                functools.partial(read_string, flexible=flexible),
                lambda out, value: out.extend(string(value or "", flexible=flexible)),
                1 if flexible else 2,
            )
        case "bytes":
            return _own_bytes(flexible=flexible)
        case "records":
            return _bytes(flexible=flexible)
        case _:
            return fixed_layout([FIXED[kafka_type]])


def _own_bytes(*, flexible: bool) -> Layout:
    """A copy, since what groups carry (KIP-429's metadata, assignments) outlives its frame."""

    def read(view: memoryview, at: int) -> tuple[bytes, int]:
        count, at = read_count(view, at, flexible=flexible)
        if count < 0:
            raise ProtocolError("null for bytes that cannot be null")
        return bytes(view[at : at + count]), at + count

    def write(out: bytearray, value: bytes) -> None:
        out += array_count(len(value), flexible=flexible)
        out += value

    return Layout(read, write, 1 if flexible else 4)


def _bytes(*, flexible: bool) -> Layout:
    def read(view: memoryview, at: int) -> tuple[memoryview | None, int]:
        count, at = read_count(view, at, flexible=flexible)
        return (None, at) if count < 0 else (view[at : at + count], at + count)

    def write(out: bytearray, value: Buffer | None) -> None:
        out += array_count(-1 if value is None else len(value), flexible=flexible)
        out += value or b""

    return Layout(read, write, 1 if flexible else 4)


def nullable_struct(layout: Layout) -> Layout:
    """A struct behind a byte that is negative for null (KIP-893)."""

    def read(view: memoryview, at: int) -> tuple[Any, int]:
        return (None, at + 1) if view[at] >= 0x80 else layout.read(view, at + 1)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            layout.write(out, value)

    # Those that there are have no arrays inside: a cursor, a replica's state.
    return Layout(read, write, 1)


def array(element: Layout, *, flexible: bool, nullable: bool) -> Layout:
    read_element, write_element = element.read, element.write
    element_bytes_min = element.bytes_min

    def read_length(view: memoryview, at: int) -> tuple[int, int]:
        """Of the array, -1 for null. Never more than bytes are left for."""
        count, at = read_count(view, at, flexible=flexible)
        if count < 0 and not nullable:
            raise ProtocolError("null for an array that cannot be null")
        if count * element_bytes_min > len(view) - at:
            raise ProtocolError(f"an array of {count} with {len(view) - at} bytes left")
        return count, at

    def read(view: memoryview, at: int) -> tuple[list[Any] | None, int]:
        count, at = read_length(view, at)
        if count < 0:
            return None, at
        values = []
        for _ in range(count):
            value, at = read_element(view, at)
            values.append(value)
        return values, at

    def write_length(out: bytearray, values: Any) -> None:
        if values is None and nullable:
            out += array_count(-1, flexible=flexible)
        else:
            out += array_count(len(values or ()), flexible=flexible)

    def write(out: bytearray, values: Any) -> None:
        write_length(out, values)
        for value in values or ():
            write_element(out, value)

    return Layout(
        read,
        write,
        1 if flexible else 4,
        _array_slice_reader(element, read_length),
        _array_slice_writer(element, write_length),
    )


def _array_slice_reader(
    element: Layout, read_length: Callable[[memoryview, int], tuple[int, int]]
) -> SliceReader:
    read_element, read_slices = element.read, element.read_slices

    def read(view: memoryview, at: int, meter: Meter) -> Pauses:
        count, at = read_length(view, at)
        if count < 0:
            return None, at
        meter.take(count)
        values = []
        for _ in range(count):
            if read_slices is None:
                value, at = read_element(view, at)
            else:
                value, at = yield from read_slices(view, at, meter)
            values.append(value)
            meter.left -= 1
            if meter.left <= 0 or at > meter.pause_at:
                yield
                meter.begin_slice(at)
        return values, at

    return read


def _array_slice_writer(element: Layout, write_length: Writer) -> SliceWriter:
    write_element, write_slices = element.write, element.write_slices

    def write(out: bytearray, values: Any, meter: Meter) -> Pauses:
        write_length(out, values)
        for value in values or ():
            if write_slices is None:
                write_element(out, value)
            else:
                yield from write_slices(out, value, meter)
            meter.left -= 1
            if meter.left <= 0 or len(out) > meter.pause_at:
                yield
                meter.begin_slice(len(out))

    return write


def int32_array(*, flexible: bool, nullable: bool) -> Layout:
    """Node ids and partitions: packed at once."""

    def read(view: memoryview, at: int) -> tuple[list[int] | None, int]:
        if nullable:
            count, at = read_count(view, at, flexible=flexible)
            if count < 0:
                return None, at
        else:
            count, at = read_array_count(view, at, flexible=flexible)
        return list(struct.unpack_from(f">{count}i", view, at)), at + 4 * count

    def read_slices(view: memoryview, at: int, meter: Meter) -> Pauses:
        yield from ()  # Never long by itself: that many integers are read in milliseconds.
        count, _ = read_count(view, at, flexible=flexible)
        meter.take(max(count, 0))
        meter.left -= count // _INTEGERS_PER_ELEMENT
        return read(view, at)

    empty = array_count(0, flexible=flexible)
    null = array_count(-1, flexible=flexible) if nullable else empty
    short = [
        struct.Struct(f">{'B' if flexible else 'i'}{count}i").pack for count in range(_SHORT_ARRAY)
    ]
    extra = 1 if flexible else 0

    def write(out: bytearray, values: Any) -> None:
        if not values:
            out += null if values is None else empty
            return
        count = len(values)
        if count < _SHORT_ARRAY:
            out += short[count](count + extra, *values)
        else:
            out += array_count(count, flexible=flexible)
            out += struct.pack(f">{count}i", *values)

    return Layout(read, write, 1 if flexible else 4, read_slices)
