"""How values lie in bytes, as data: a *layout* is a pair of functions, `put` and `read`.

The fields of a command are written one after the other, and the type of a field says how:

    str, bytes, bool, TopicId      as `encoding` has them; a bool is a byte, 0 or 1
    Position, Incarnation          a number of 63 bits
    UInt31, Int64, ...             an int of these bounds; plain `int` has no layout
    Float64                        eight bytes, little-endian; a finite number
    an IntEnum                     the number of a member
    X | None                       a byte, 0 or 1, and the value after a 1
    tuple[X, ...]                  how many, and the values; `at_most` bounds them
    tuple[X, Y]                    its parts
    dict[X, Y], Mapping[X, Y]      how many, and keys with their values
    a NamedTuple or dataclass      its fields

A field that is written otherwise names its layout: `Annotated[bytes, fixed(32, "a fingerprint")]`.
Rows of tables say so, too, for snapshots, or the snapshot names the layouts of all their fields
(`fields_of`).

Invariants: `read(put(value)) == value`, and the place behind it. `put` raises CodecError for a
value out of bounds. `read` is total: it gives values within the same bounds, or raises CodecError,
or IndexError or UnicodeDecodeError, which `codec.decode_entry` catches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntEnum
from math import isfinite
from struct import pack, unpack
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from coordinator.commands.encoding import (
    U31,
    U32,
    U63,
    CodecError,
    bounded,
    put_bytes,
    put_signed,
    put_string,
    put_topic_id,
    put_varint,
    read_bytes,
    read_number,
    read_signed,
    read_string,
    read_topic_id,
    read_varint,
    take_bytes,
)
from protocol.types import Incarnation, Position, TopicId

T = TypeVar("T")
LaidT = TypeVar("LaidT")
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT", bound=int)
EnumT = TypeVar("EnumT", bound=IntEnum)


class Layout(NamedTuple, Generic[T]):
    put: Callable[[bytearray, T], None]
    """Appends the value to the bytes."""
    read: Callable[[bytes, int], tuple[T, int]]
    """Returns the value that begins at the place, and the place behind it."""


# Numbers.


def number(most: int, *, least: int = 0) -> Layout[int]:
    """A varint: how far the value is above `least`."""
    span = most - least

    def put(out: bytearray, value: int) -> None:
        if not least <= value <= most:
            raise CodecError(f"{value} is not between {least} and {most}")
        put_varint(out, value - least)

    def read(data: bytes, at: int) -> tuple[int, int]:
        value = data[at]
        if value < 0x80:
            at += 1
        else:
            value, at = read_varint(data, at)
        if value > span:
            raise CodecError(f"{value + least} is more than {most}")
        return value + least, at

    return Layout(put, read)


def signed(bits: int) -> Layout[int]:
    """A zigzagged varint."""
    bounds = range(-(1 << bits - 1), 1 << bits - 1)

    def put(out: bytearray, value: int) -> None:
        if value not in bounds:
            raise CodecError(f"{value} has more than {bits} bits")
        put_varint(out, value << 1 if value >= 0 else ~value << 1 | 1)

    def read(data: bytes, at: int) -> tuple[int, int]:
        value, at = read_varint(data, at)
        value = value >> 1 ^ -(value & 1)
        if value not in bounds:
            raise CodecError(f"{value} has more than {bits} bits")
        return value, at

    return Layout(put, read)


UInt16 = Annotated[int, number(0xFFFF)]
UInt31 = Annotated[int, number(U31)]
UInt32 = Annotated[int, number(U32)]
UInt63 = Annotated[int, number(U63)]
Int16 = Annotated[int, signed(16)]
Int32 = Annotated[int, signed(32)]
Int64 = Annotated[int, Layout(put_signed, read_signed)]


def _put_float(out: bytearray, value: float) -> None:
    if not isfinite(value):
        raise CodecError(f"{value} is no number")
    out += pack("<d", value)


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    (value,) = unpack("<d", take_bytes(data, at, 8))
    if not isfinite(value):
        raise CodecError(f"{value} is no number")
    return value, at + 8


Float64 = Annotated[float, Layout(_put_float, _read_float)]


def member_of(kind: type[EnumT]) -> Layout[EnumT]:
    """The number of a member, as a varint."""
    return _member(kind, Layout(put_varint, read_varint))


def byte_of(kind: type[EnumT]) -> Layout[EnumT]:
    """The number of a member, as one byte."""
    return _member(kind, Layout(bytearray.append, lambda data, at: (data[at], at + 1)))


def _member(kind: type[EnumT], numbers: Layout[Any]) -> Layout[EnumT]:
    members = {member.value: member for member in kind}

    def known(value: int) -> EnumT:
        if (member := members.get(value)) is None:
            raise CodecError(f"{value} is no {kind.__name__}")
        return member

    return converted(numbers, laid=known, made=known)


def bits_of(values: Sequence[ValueT]) -> Layout[tuple[ValueT, ...]]:
    """Some of the values, ascending, as the bits of a number."""
    known = [int(value) for value in values]
    every_bit = sum(1 << value for value in values)
    most = (1 << every_bit.bit_length()) - 1

    def put(out: bytearray, chosen: tuple[ValueT, ...]) -> None:
        if [*chosen] != sorted({*chosen}) or not {*chosen} <= {*values}:
            raise CodecError(f"{chosen} is not some of {known}, ascending")
        put_varint(out, sum(1 << value for value in chosen))

    def read(data: bytes, at: int) -> tuple[tuple[ValueT, ...], int]:
        mask, at = read_number(data, at, most)
        if mask & ~every_bit:
            raise CodecError(f"bits {mask:#x} are not all of {known}")
        return tuple([value for value in values if mask >> value & 1]), at

    return Layout(put, read)


# Bytes and flags.


def fixed(length: int, what: str) -> Layout[bytes]:
    """Bytes of a length that is not written."""

    def put(out: bytearray, value: bytes) -> None:
        if len(value) != length:
            raise CodecError(f"{what} of {len(value)} bytes, not {length}")
        out += value

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        return take_bytes(data, at, length), at + length

    return Layout(put, read)


def put_flag(out: bytearray, value: object) -> None:
    out.append(bool(value))


def read_flag(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise CodecError(f"{data[at]} is neither yes nor no")
    return bool(data[at]), at + 1


def optional(layout: Layout[T]) -> Layout[T | None]:
    put_value, read_value = layout

    def put(out: bytearray, value: T | None) -> None:
        put_flag(out, value is not None)
        if value is not None:
            put_value(out, value)

    def read(data: bytes, at: int) -> tuple[T | None, int]:
        there, at = read_flag(data, at)
        return read_value(data, at) if there else (None, at)

    return Layout(put, read)


def converted(
    layout: Layout[LaidT], *, laid: Callable[[T], LaidT], made: Callable[[LaidT], T]
) -> Layout[T]:
    """A value that lies in bytes as another: `laid` makes that one of it, and `made` it of that."""
    put_laid, read_laid = layout

    def put(out: bytearray, value: T) -> None:
        put_laid(out, laid(value))

    def read(data: bytes, at: int) -> tuple[T, int]:
        found, at = read_laid(data, at)
        return made(found), at

    return Layout(put, read)


# Several values.


def list_of(layout: Layout[T], most: int | None = None) -> Layout[tuple[T, ...]]:
    """How many, at most `most` or what an entry has room for, and one after the other."""
    put_value, read_value = layout

    def put(out: bytearray, values: tuple[T, ...]) -> None:
        put_varint(out, len(values) if most is None else bounded(len(values), most, "in a list"))
        for value in values:
            put_value(out, value)

    def read(data: bytes, at: int) -> tuple[tuple[T, ...], int]:
        count, at = read_number(data, at, len(data) if most is None else most)
        values = []
        for _ in range(count):
            value, at = read_value(data, at)
            values.append(value)
        return tuple(values), at

    return Layout(put, read)


def mapping_of(key: Layout[KeyT], value: Layout[T]) -> Layout[dict[KeyT, T]]:
    """How many, and keys with their values, in the order of the dict."""
    (put_key, read_key), (put_value, read_value) = key, value

    def put(out: bytearray, values: dict[KeyT, T]) -> None:
        put_varint(out, len(values))
        for name, item in values.items():
            put_key(out, name)
            put_value(out, item)

    def read(data: bytes, at: int) -> tuple[dict[KeyT, T], int]:
        count, at = read_number(data, at, len(data))
        values = {}
        for _ in range(count):
            name, at = read_key(data, at)
            values[name], at = read_value(data, at)
        return values, at

    return Layout(put, read)


def tuple_of(parts: Mapping[str, Layout[Any]]) -> Layout[Any]:
    """Parts of a value, in the order of their bytes; what is read is a tuple. The keys say where
    they are in the value: `.name`, or `[0]`."""
    values = "".join(f"v{index}, " for index in range(len(parts)))
    return _compiled(parts, f"({values})")


def fields_of(kind: Callable[..., T], /, **layouts: Layout[Any]) -> Layout[T]:
    """A dataclass or NamedTuple: all its fields, in the order in which they are given."""
    assert isinstance(kind, type)
    order, names = [*layouts], field_names(kind)
    assert sorted(order) == sorted(names), f"{kind.__name__} has {names}, not {order}"
    parts = {f".{name}": layout for name, layout in layouts.items()}
    values = [f"v{order.index(name)}" for name in names]
    return _compiled(parts, f"make({', '.join(values)})", kind)


def _compiled(
    parts: Mapping[str, Layout[Any]], made: str, make: Callable[..., Any] | None = None
) -> Layout[Any]:
    """`made` is the expression that makes a value of `v0`, `v1`, ..., with `make`.

    Two functions are written and compiled, as `dataclasses` does: to encode in a loop over the
    parts would take a fifth longer, and twice as long where there are rows.
    """
    source = ["def put(out, value):", "    pass"]
    source += [f"    put{index}(out, value{part})" for index, part in enumerate(parts)]
    source += ["def read(data, at):"]
    source += [f"    v{index}, at = read{index}(data, at)" for index in range(len(parts))]
    source += [f"    return {made}, at"]
    functions: dict[str, Any] = {"make": make}
    for index, layout in enumerate(parts.values()):
        functions |= {f"put{index}": layout.put, f"read{index}": layout.read}
    exec("\n".join(source), functions)  # noqa: S102 - of names of fields
    return Layout(functions["put"], functions["read"])


def field_names(kind: type) -> list[str]:
    named = getattr(kind, "_fields", None)
    return [*named] if named is not None else [field.name for field in fields(kind)]


# What a type says.


class _AtMost(NamedTuple):
    most: int


def at_most(most: int) -> object:
    """For `Annotated` with a tuple: it has no more values than that."""
    return _AtMost(most)


_BY_TYPE: Final[Mapping[object, Layout[Any]]] = {
    str: Layout(put_string, read_string),
    bytes: Layout(put_bytes, read_bytes),
    bool: Layout(put_flag, read_flag),
    TopicId: Layout(put_topic_id, read_topic_id),
    Position: number(U63),
    Incarnation: number(U63),
}


def layouts_of(kind: type, order: Sequence[str] = ()) -> dict[str, Layout[Any]]:
    """The layouts of a class's fields by name: in their order, or in the one given."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: layout_of(hints[name]) for name in order or field_names(kind)}


def layout_of(hint: Any) -> Layout[Any]:
    """The layout of an annotation. Raises TypeError when it does not say enough."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        for mark in parts[1:]:
            if isinstance(mark, Layout):
                return mark
            if isinstance(mark, _AtMost):
                return list_of(layout_of(get_args(parts[0])[0]), mark.most)
    elif hint in _BY_TYPE:
        return _BY_TYPE[hint]
    elif origin is tuple and parts[-1] is ...:
        return list_of(layout_of(parts[0]))
    elif origin is tuple:
        return tuple_of({f"[{index}]": layout_of(part) for index, part in enumerate(parts)})
    elif origin in {dict, Mapping}:
        return mapping_of(layout_of(parts[0]), layout_of(parts[1]))
    elif origin in {UnionType, Union} and parts[1:] == (type(None),):
        return optional(layout_of(parts[0]))
    elif isinstance(hint, type) and issubclass(hint, IntEnum):
        return member_of(hint)
    elif isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return fields_of(hint, **layouts_of(hint))
    raise TypeError(f"{hint} does not say how it is written: name a layout")
