"""Avro values in binary (specification 1.12): whether bytes are a value of a schema. Pure.

A schema becomes a function once, of functions for its parts; a value is read through by it, and nothing
is made of it. Numbers keep to their ranges, text is UTF-8, and a value ends where its bytes end.

Left out: what logical types mean, and what a value says (`avro_read`).
"""

from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

from protocol.schemas import SchemaError
from protocol.schemas.avro import Array, AvroSchema, AvroType, Map, Named, Primitive, Union

EMPTY_ITEMS_MAX: Final = 1 << 16
"""Items of an array that have no bytes, such as nulls: any count of them fits into a few bytes."""
Skip: TypeAlias = Callable[[bytes, int], int]
"""The place behind a part of a value that begins at a place. Raises IndexError where the bytes end before,
ValueError with a sentence."""


def value_check(schema: AvroSchema) -> Callable[[bytes], str]:
    """Returns what says of bytes why they are no value of the schema, a sentence; "": they are one.

    Raises SchemaError for a schema that is nested too deeply.
    """
    try:
        skip = _Compiler().skip_of(schema.root)
    except RecursionError as error:
        raise SchemaError("nested too deeply") from error

    def why_not(data: bytes) -> str:
        try:
            end = skip(data, 0)
        except IndexError:
            return f"it ends within its {len(data)} bytes"
        except RecursionError:
            return "it is nested too deeply"
        except ValueError as error:
            return str(error)
        return f"{len(data) - end} bytes follow the value" if end < len(data) else ""

    return why_not


class _Compiler:
    """Makes the functions of one schema; recursive types have theirs once."""

    def __init__(self) -> None:
        self._made: dict[int, Skip] = {}

    def skip_of(self, avro: AvroType) -> Skip:
        match avro:
            case Primitive():
                return _PRIMITIVES[avro.name]
            case Array():
                return _skip_blocks(self.skip_of(avro.items))
            case Map():
                return _skip_blocks(_in_turn([_skip_string, self.skip_of(avro.values)]))
            case Union():
                return _skip_union([self.skip_of(branch) for branch in avro.branches])
            case Named():
                return self._named(avro)
            case _:
                assert_never(avro)

    def _named(self, named: Named) -> Skip:
        if (made := self._made.get(id(named))) is not None:
            return made
        if named.kind == "fixed":
            return _skip_fixed(named.size)
        if named.kind == "enum":
            return _skip_enum(named.full_name, len(named.symbols))

        def itself(data: bytes, at: int) -> int:
            return self._made[id(named)](data, at)

        self._made[id(named)] = itself
        skip = _in_turn([self.skip_of(one.type) for one in named.fields])
        self._made[id(named)] = skip
        return skip


def _in_turn(parts: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for part in parts:
            at = part(data, at)
        return at

    return skip


def _skip_null(_data: bytes, at: int) -> int:
    return at


def _skip_boolean(data: bytes, at: int) -> int:
    if data[at] > 1:
        raise ValueError(f"the byte {data[at]} at {at} is neither true nor false")
    return at + 1


def _skip_int(data: bytes, at: int) -> int:
    if data[at] < 0x80:
        return at + 1
    return read_varint(data, at, 32, "an int")[1]


def _skip_long(data: bytes, at: int) -> int:
    if data[at] < 0x80:
        return at + 1
    return read_varint(data, at, 64, "a long")[1]


def read_varint(data: bytes, at: int, bits: int, what: str) -> tuple[int, int]:
    """An unsigned varint, and the byte behind it."""
    begin, value = at, 0
    for shift in range(0, bits, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, at
    raise ValueError(f"the number at {begin} is longer than {what}")


def read_long(data: bytes, at: int) -> tuple[int, int]:
    if (byte := data[at]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, at = read_varint(data, at, 64, "a long")
    return (value >> 1) ^ -(value & 1), at


def _skip_bytes(data: bytes, at: int) -> int:
    length, begin = read_long(data, at)
    if length < 0:
        raise ValueError(f"the length at {at} is {length}")
    if begin + length > len(data):
        raise IndexError
    return begin + length


def _skip_string(data: bytes, at: int) -> int:
    length, begin = read_long(data, at)
    if length < 0:
        raise ValueError(f"the length at {at} is {length}")
    end = begin + length
    if end > len(data):
        raise IndexError
    text = data[begin:end]
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"the text at {begin} is not UTF-8") from error
    return end


def _skip_fixed(size: int) -> Skip:
    def skip(data: bytes, at: int) -> int:
        if at + size > len(data):
            raise IndexError
        return at + size

    return skip


def _skip_enum(name: str, count: int) -> Skip:
    def skip(data: bytes, at: int) -> int:
        index, end = read_varint(data, at, 32, "an int")
        if index & 1 or index >> 1 >= count:
            raise ValueError(f"the number at {at} is no symbol of {name}, which has {count}")
        return end

    return skip


def _skip_union(branches: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        index, begin = read_long(data, at)
        if not 0 <= index < len(branches):
            raise ValueError(f"the branch {index} at {at} is none of the union's {len(branches)}")
        return branches[index](data, begin)

    return skip


def _skip_blocks(item: Skip) -> Skip:
    """Of arrays and maps: blocks of items until one has none; a count below 0 is followed by a size."""

    def skip(data: bytes, at: int) -> int:
        empty = 0
        while True:
            count, at = read_long(data, at)
            if count == 0:
                return at
            if count < 0:
                size, at = read_long(data, at)
                if not 0 <= size <= len(data) - at:
                    raise ValueError(f"a block before {at} says that it has {size} bytes")
                begin, at = at, _skip_items(item, -count, data, at, empty)
                if at - begin != size:
                    raise ValueError(f"the block at {begin} has {at - begin} bytes, it says {size}")
            else:
                begin, at = at, _skip_items(item, count, data, at, empty)
            empty += abs(count) if at == begin else 0

    return skip


def _skip_items(item: Skip, count: int, data: bytes, at: int, empty: int) -> int:
    for _ in range(count):
        end = item(data, at)
        if end == at:
            empty += 1
            if empty > EMPTY_ITEMS_MAX:
                raise ValueError(f"an array before {at} has over {EMPTY_ITEMS_MAX} empty items")
        at = end
    return at


_PRIMITIVES: Final[dict[str, Skip]] = {
    "null": _skip_null,
    "boolean": _skip_boolean,
    "int": _skip_int,
    "long": _skip_long,
    "float": _skip_fixed(4),
    "double": _skip_fixed(8),
    "bytes": _skip_bytes,
    "string": _skip_string,
}
