"""Avro values in binary to plain JSON (`avro_plain`). Pure.

A schema becomes a function once, of functions for its parts, as in `avro_values`, and holds bytes to the same:
numbers keep to their ranges, text is UTF-8, and a value ends where its bytes end.
"""

import math
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias, assert_never

from protocol.schemas import SchemaError
from protocol.schemas.avro import Array, AvroSchema, AvroType, Map, Named, Primitive, Union
from protocol.schemas.avro_plain import (
    NULL,
    Decimals,
    branch_name,
    decimals_of,
    is_uuid,
    names_branches,
)
from protocol.schemas.avro_values import EMPTY_ITEMS_MAX, read_long, read_varint

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""The JSON of a part of a value that begins at a place, and the place behind it. Raises IndexError where the bytes
end before, ValueError with a sentence."""

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


def value_reader(schema: AvroSchema) -> Callable[[bytes], Any]:
    """Returns what makes JSON of a value's bytes; it raises ValueError, with a sentence, for what is no value.

    Raises SchemaError for a schema that is nested too deeply.
    """
    compiler = _Compiler()
    try:
        read = compiler.read_of(schema.root)
    except RecursionError as error:
        raise SchemaError("nested too deeply") from error

    def reader(data: bytes) -> Any:
        compiler.empty.count = 0
        try:
            value, end = read(data, 0)
        except IndexError as error:
            raise ValueError(f"it ends within its {len(data)} bytes") from error
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if end < len(data):
            raise ValueError(f"{len(data) - end} bytes follow the value")
        return value

    return reader


class _Empty:
    """Items of arrays that have no bytes, such as nulls: any count of them fits into a few bytes."""

    count = 0
    """In the value that is read."""

    def add(self, at: int) -> None:
        """Raises ValueError."""
        self.count += 1
        if self.count > EMPTY_ITEMS_MAX:
            raise ValueError(f"arrays before {at} have over {EMPTY_ITEMS_MAX} empty items")


class _Compiler:
    """Makes the functions of one schema; recursive types have theirs once."""

    def __init__(self) -> None:
        self.empty = _Empty()
        self._made: dict[int, Read] = {}

    def read_of(self, avro: AvroType) -> Read:
        decimals = decimals_of(avro)
        match avro:
            case Primitive():
                return _read_bytes_decimal(decimals) if decimals else _PRIMITIVES[avro.name]
            case Array():
                return _read_array(self.read_of(avro.items), self.empty)
            case Map():
                return _read_map(self.read_of(avro.values))
            case Union():
                return self._union(avro)
            case Named(kind="fixed"):
                return _read_fixed(avro, decimals)
            case Named(kind="enum"):
                return _read_enum(avro)
            case Named():
                return self._record(avro)
            case _:
                assert_never(avro)

    def _record(self, named: Named) -> Read:
        if (made := self._made.get(id(named))) is not None:
            return made

        def itself(data: bytes, at: int) -> tuple[Any, int]:
            return self._made[id(named)](data, at)

        self._made[id(named)] = itself
        fields = [(one.name, self.read_of(one.type)) for one in named.fields]

        def read(data: bytes, at: int) -> tuple[Any, int]:
            found = {}
            for name, part in fields:
                found[name], at = part(data, at)
            return found, at

        self._made[id(named)] = read
        return read

    def _union(self, union: Union) -> Read:
        branches = [self.read_of(branch) for branch in union.branches]
        names = [branch_name(branch) for branch in union.branches]
        is_named = names_branches(union)

        def read(data: bytes, at: int) -> tuple[Any, int]:
            index, begin = read_long(data, at)
            if not 0 <= index < len(branches):
                raise ValueError(
                    f"the branch {index} at {at} is none of the union's {len(branches)}"
                )
            value, end = branches[index](data, begin)
            return ({names[index]: value} if is_named and names[index] != NULL else value), end

        return read


def _read_null(_data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError(f"the byte {data[at]} at {at} is neither true nor false")
    return data[at] == 1, at + 1


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(data, at, 32, "an int")
    return (value >> 1) ^ -(value & 1), at


def _read_float(data: bytes, at: int) -> tuple[float | str, int]:
    raw, end = _piece(data, at, _FLOAT.size)
    (number,) = _FLOAT.unpack(raw)
    if not math.isfinite(number):
        return _no_number(number), end
    # The shortest number that is this float, as others write it.
    for digits in (6, 7, 8):
        if _FLOAT.pack(short := float(f"{number:.{digits}g}")) == raw:
            return short, end
    return float(f"{number:.9g}"), end


def _read_double(data: bytes, at: int) -> tuple[float | str, int]:
    raw, end = _piece(data, at, _DOUBLE.size)
    (number,) = _DOUBLE.unpack(raw)
    return (number if math.isfinite(number) else _no_number(number)), end


def _no_number(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _piece(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise IndexError
    return data[at:end], end


def _read_raw(data: bytes, at: int) -> tuple[bytes, int]:
    length, begin = read_long(data, at)
    if length < 0:
        raise ValueError(f"the length at {at} is {length}")
    return _piece(data, begin, length)


def _read_bytes(data: bytes, at: int) -> tuple[str, int]:
    raw, end = _read_raw(data, at)
    return raw.decode("latin-1"), end


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    raw, end = _read_raw(data, at)
    try:
        return raw.decode(), end
    except UnicodeDecodeError as error:
        raise ValueError(f"the text before {end} is not UTF-8") from error


def _read_bytes_decimal(decimals: Decimals) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        raw, end = _read_raw(data, at)
        return _decimal_text(raw, decimals), end

    return read


def _decimal_text(raw: bytes, decimals: Decimals) -> str:
    """Raises ValueError for one that has more digits than its type says."""
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**decimals.precision:
        raise ValueError(f"a decimal has over {decimals.precision} digits")
    digits = str(abs(unscaled)).rjust(decimals.scale + 1, "0")
    whole, part = digits[: len(digits) - decimals.scale], digits[len(digits) - decimals.scale :]
    return f"{'-' if unscaled < 0 else ''}{whole}{'.' if part else ''}{part}"


def _read_fixed(named: Named, decimals: Decimals | None) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        raw, end = _piece(data, at, named.size)
        if decimals is not None:
            return _decimal_text(raw, decimals), end
        return raw.decode("latin-1"), end

    def read_uuid(data: bytes, at: int) -> tuple[str, int]:
        raw, end = _piece(data, at, named.size)
        parts = (raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
        return "-".join(part.hex() for part in parts), end

    return read_uuid if is_uuid(named) else read


def _read_enum(named: Named) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        index, end = _read_int(data, at)
        if not 0 <= index < len(named.symbols):
            raise ValueError(
                f"the number at {at} is no symbol of {named.full_name}, which has {len(named.symbols)}"
            )
        return named.symbols[index], end

    return read


def _read_array(item: Read, empty: _Empty) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        count, at = _block(data, at)
        while count:
            for _ in range(count):
                value, end = item(data, at)
                if end == at:
                    empty.add(at)
                found.append(value)
                at = end
            count, at = _block(data, at)
        return found, at

    return read


def _read_map(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        count, at = _block(data, at)
        while count:
            for _ in range(count):
                key, at = _read_string(data, at)
                found[key], at = item(data, at)
            count, at = _block(data, at)
        return found, at

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    """How many items follow; a count below 0 is followed by their bytes, which nobody needs here."""
    count, at = read_long(data, at)
    return (count, at) if count >= 0 else (-count, read_long(data, at)[1])


_PRIMITIVES: Final[dict[str, Read]] = {
    NULL: _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}
