"""Plain JSON (`avro_plain`) to Avro values in binary. Pure.

A schema becomes a function once, of functions for its parts. A field that is missing has its default. Of a union that
JSON tells apart the value stands alone; a value may always name its branch, as in Avro's own JSON. Where two
branches look alike, what names none is the first scalar that fits; lists and objects name theirs. A value is
looked at once, so what it costs is linear in its size.

Arrays and maps are one block each, as Java writes them.
"""

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias, assert_never

from protocol.schemas import SchemaError
from protocol.schemas.avro import (
    MISSING,
    Array,
    AvroSchema,
    AvroType,
    Field,
    Map,
    Named,
    Primitive,
    Union,
)
from protocol.schemas.avro_plain import (
    NO_NUMBERS,
    NULL,
    Decimals,
    branch_name,
    decimals_of,
    is_uuid,
    kind_of_json,
    kinds_of,
    names_branches,
)

Write: TypeAlias = Callable[[Any, bytearray], None]
"""Appends the bytes of a JSON value. Raises NoValueError."""

SHOWN_CHARACTERS_MAX: Final = 60
DECIMAL_DIGITS_MAX: Final = 4000
"""As many as Python makes a number of."""
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class NoValueError(ValueError):
    """JSON is no value of its type; the message is a sentence that begins with where."""

    def __init__(self, sentence: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(path)}: {sentence}" if path else sentence)
        self._sentence = sentence
        self._path = path

    def within(self, name: str) -> "NoValueError":
        """The same, seen from what surrounds it."""
        return NoValueError(self._sentence, (name, *self._path))


def value_writer(schema: AvroSchema) -> Callable[[Any], bytes]:
    """Returns what makes bytes of a value's JSON, which raises NoValueError.

    Raises SchemaError for a schema that is nested too deeply.
    """
    try:
        write = _Compiler().write_of(schema.root)
    except RecursionError as error:
        raise SchemaError("nested too deeply") from error

    def writer(value: Any) -> bytes:
        out = bytearray()
        try:
            write(value, out)
        except RecursionError as error:
            raise NoValueError("it is nested too deeply") from error
        return bytes(out)

    return writer


class _Compiler:
    """Makes the functions of one schema; recursive types have theirs once."""

    def __init__(self, *, of_defaults: bool = False) -> None:
        """`of_defaults`: what JSON stands for is what the specification says of defaults: the bytes of a decimal,
        and the value alone for the first branch of a union that it fits."""
        self._of_defaults = of_defaults
        self._made: dict[int, Write] = {}

    def write_of(self, avro: AvroType) -> Write:
        decimals = None if self._of_defaults else decimals_of(avro)
        match avro:
            case Primitive():
                return _write_bytes_decimal(decimals) if decimals else _PRIMITIVES[avro.name]
            case Array():
                return _write_array(self.write_of(avro.items))
            case Map():
                return _write_map(self.write_of(avro.values))
            case Union():
                return self._union(avro)
            case Named(kind="fixed"):
                return _write_fixed(avro, decimals)
            case Named(kind="enum"):
                return _write_enum(avro)
            case Named():
                return self._record(avro)
            case _:
                assert_never(avro)

    def _record(self, named: Named) -> Write:
        if (made := self._made.get(id(named))) is not None:
            return made

        def itself(value: Any, out: bytearray) -> None:
            self._made[id(named)](value, out)

        self._made[id(named)] = itself
        fields = [(one.name, self.write_of(one.type), _default_of(one)) for one in named.fields]
        known = {one.name for one in named.fields}

        def write(value: Any, out: bytearray) -> None:
            if type(value) is not dict:
                raise _no(value, f"record {named.full_name}")
            if not known.issuperset(value):
                stranger = min(value.keys() - known)
                raise NoValueError(f"{named.full_name} has no field {stranger!r}")
            for name, part, default in fields:
                try:
                    if name in value:
                        part(value[name], out)
                    else:
                        out += default()
                except NoValueError as error:
                    raise error.within(name) from error

        self._made[id(named)] = write
        return write

    def _union(self, union: Union) -> Write:
        branches = [
            (_long(index), self.write_of(branch)) for index, branch in enumerate(union.branches)
        ]
        if self._of_defaults:
            return _write_first(branches)
        by_name = {
            branch_name(branch): branches[index] for index, branch in enumerate(union.branches)
        }
        if names_branches(union):
            return _write_named(branches, by_name)
        return _write_alone(union, branches, by_name)


_Branch: TypeAlias = tuple[bytes, Write]
"""The bytes of its number, and what writes it."""


def _write_alone(union: Union, branches: list[_Branch], by_name: Mapping[str, _Branch]) -> Write:
    """Of a union whose branches JSON tells apart."""
    by_kind: dict[str, _Branch] = {}
    # In an object that has one of these names, it may be that of a field.
    fields: set[str] = set()
    has_map = False
    for branch, one in zip(union.branches, branches, strict=True):
        by_kind |= dict.fromkeys(kinds_of(branch), one)
        has_map = has_map or isinstance(branch, Map)
        if isinstance(branch, Named):
            fields |= {field.name for field in branch.fields}
    for branch, one in zip(union.branches, branches, strict=True):
        if decimals_of(branch):
            by_kind.setdefault("number", one)

    def write(value: Any, out: bytearray) -> None:
        kind = kind_of_json(value)
        name = None if has_map else _name_in(value, by_name)
        if name is not None and name not in fields:
            _into(by_name[name], value[name], out)
            return
        if kind not in by_kind:
            raise _no(value, f"one of {', '.join(by_name)}")
        _into(by_kind[kind], value, out)

    return write


def _write_named(branches: list[_Branch], by_name: Mapping[str, _Branch]) -> Write:
    """Of a union of which two branches look alike in JSON."""

    def write(value: Any, out: bytearray) -> None:
        if (name := _name_in(value, by_name)) is not None:
            _into(by_name[name], value[name], out)
            return
        if not isinstance(value, dict | list):
            size = len(out)
            for one in branches:
                with suppress(NoValueError):
                    _into(one, value, out)
                    return
                del out[size:]
            raise _no(value, f"one of {', '.join(by_name)}")
        raise NoValueError(
            f'it does not say which of {", ".join(by_name)} it is: {{"{next(iter(by_name))}": …}}'
        )

    return write


def _write_first(branches: list[_Branch]) -> Write:
    """Of a default: the first branch that it fits."""

    def write(value: Any, out: bytearray) -> None:
        size = len(out)
        for one in branches:
            with suppress(NoValueError):
                _into(one, value, out)
                return
            del out[size:]
        raise _no(value, "branch of its union")

    return write


def _name_in(value: Any, by_name: Mapping[str, _Branch]) -> str | None:
    """The branch that an object names."""
    if type(value) is not dict or len(value) != 1:
        return None
    (name,) = value
    return name if name in by_name and name != NULL else None


def _into(branch: _Branch, value: Any, out: bytearray) -> None:
    number, write = branch
    out += number
    write(value, out)


def _default_of(field: Field) -> Callable[[], bytes]:
    """Returns what gives the bytes of a field's default, made when it is first needed."""
    made: list[bytes] = []

    def default() -> bytes:
        if not made:
            if field.default is MISSING:
                raise NoValueError("it is missing, and has no default")
            out = bytearray()
            _Compiler(of_defaults=True).write_of(field.type)(field.default, out)
            made.append(bytes(out))
        return made[0]

    return default


def _no(value: Any, what: str) -> NoValueError:
    shown = json.dumps(value, ensure_ascii=False)
    if len(shown) > SHOWN_CHARACTERS_MAX:
        shown = f"{shown[:SHOWN_CHARACTERS_MAX]}…"
    return NoValueError(f"{shown} is no {what}")


def _long(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _write_null(value: Any, _out: bytearray) -> None:
    if value is not None:
        raise _no(value, "null")


def _write_boolean(value: Any, out: bytearray) -> None:
    if type(value) is not bool:
        raise _no(value, "boolean")
    out.append(value)


def _write_whole(bits: int, what: str) -> Write:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def write(value: Any, out: bytearray) -> None:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise _no(value, what)
        out += _long(value)

    return write


def _write_number(form: struct.Struct, what: str) -> Write:
    def write(value: Any, out: bytearray) -> None:
        number = NO_NUMBERS.get(value) if type(value) is str else value
        # JSON has numbers beyond all floats, which Python reads as infinity.
        if type(number) not in (int, float) or (number is value and abs(number) == math.inf):
            raise _no(value, what)
        try:
            out += form.pack(number)
        except (OverflowError, struct.error) as error:
            raise _no(value, what) from error

    return write


def _write_string(value: Any, out: bytearray) -> None:
    if type(value) is not str:
        raise _no(value, "string")
    try:
        raw = value.encode()
    except UnicodeEncodeError as error:
        raise NoValueError("it has half of a surrogate pair, which is no text") from error
    out += _long(len(raw))
    out += raw


def _raw(value: Any, what: str) -> bytes:
    if type(value) is not str:
        raise _no(value, what)
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        stranger = value[error.start]
        raise NoValueError(
            f"{stranger!r} is no byte: {what} has a character from U+0000 to U+00FF for each byte"
        ) from error


def _write_bytes(value: Any, out: bytearray) -> None:
    raw = _raw(value, "bytes")
    out += _long(len(raw))
    out += raw


def _unscaled(value: Any, decimals: Decimals) -> int:
    what = f"decimal of {decimals.precision} digits, {decimals.scale} of them behind the point"
    if type(value) not in (str, int, float):
        raise _no(value, what)
    try:
        sign, digits, exponent = Decimal(repr(value) if type(value) is float else value).as_tuple()
    except InvalidOperation as error:
        raise _no(value, what) from error
    if not isinstance(exponent, int) or max(len(digits), abs(exponent)) > DECIMAL_DIGITS_MAX:
        raise _no(value, what)
    number, rest = int("".join(map(str, digits))), 0
    shift = exponent + decimals.scale
    if shift >= 0:
        number *= int(10**shift)
    else:
        number, rest = divmod(number, int(10**-shift))
    if rest or number >= 10**decimals.precision:
        raise _no(value, what)
    return -number if sign else number


def _write_bytes_decimal(decimals: Decimals) -> Write:
    def write(value: Any, out: bytearray) -> None:
        number = _unscaled(value, decimals)
        size = ((~number if number < 0 else number).bit_length() + 8) // 8
        out += _long(size)
        out += number.to_bytes(size, "big", signed=True)

    return write


def _write_fixed(named: Named, decimals: Decimals | None) -> Write:
    what = f"fixed {named.full_name}"

    def write(value: Any, out: bytearray) -> None:
        if is_uuid(named) and type(value) is str and _UUID.fullmatch(value):
            out += bytes.fromhex(value.replace("-", ""))
            return
        raw = _raw(value, what)
        if len(raw) != named.size:
            raise NoValueError(f"{len(raw)} bytes are no {what}, which has {named.size}")
        out += raw

    def write_decimal(value: Any, out: bytearray) -> None:
        assert decimals is not None
        try:
            out += _unscaled(value, decimals).to_bytes(named.size, "big", signed=True)
        except OverflowError as error:
            raise _no(value, f"decimal of {named.size} bytes") from error

    return write if decimals is None else write_decimal


def _write_enum(named: Named) -> Write:
    numbers = {symbol: _long(index) for index, symbol in enumerate(named.symbols)}

    def write(value: Any, out: bytearray) -> None:
        if type(value) is not str or value not in numbers:
            raise _no(value, f"symbol of {named.full_name} ({', '.join(named.symbols)})")
        out += numbers[value]

    return write


def _write_array(item: Write) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if type(value) is not list:
            raise _no(value, "array")
        if value:
            out += _long(len(value))
        for place, one in enumerate(value):
            try:
                item(one, out)
            except NoValueError as error:
                raise error.within(str(place)) from error
        out.append(0)

    return write


def _write_map(item: Write) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if type(value) is not dict:
            raise _no(value, "map")
        if value:
            out += _long(len(value))
        for key, one in value.items():
            try:
                _write_string(key, out)
                item(one, out)
            except NoValueError as error:
                raise error.within(key) from error
        out.append(0)

    return write


_PRIMITIVES: Final[dict[str, Write]] = {
    NULL: _write_null,
    "boolean": _write_boolean,
    "int": _write_whole(32, "int"),
    "long": _write_whole(64, "long"),
    "float": _write_number(_FLOAT, "float"),
    "double": _write_number(_DOUBLE, "double"),
    "bytes": _write_bytes,
    "string": _write_string,
}
