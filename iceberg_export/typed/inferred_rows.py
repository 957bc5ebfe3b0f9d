"""Records in the columns that were inferred from JSON: which column a value goes into, value by value.

This is the definition; typed readers may do the same for what is `plain` (`plain_type`). Where a value goes
follows from the types alone (`typed.inferred`). Pure.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_export.typed import types
from iceberg_export.typed.inferred import (
    ANY,
    ARRAY,
    BOOLEAN,
    DRAWS,
    FIELDS_MAX,
    INTEGER,
    LENIENT,
    NUMBER,
    OBJECT,
    REST,
    TEXT,
    Field,
    Fraction,
    Type,
    beside,
    count_types,
    field_name,
    fits,
    has_type,
    is_full,
    may_be_column,
    read_type,
    taken_names,
)
from iceberg_export.typed.json_schema import JsonType
from protocol.schemas import SchemaError

_ARROW = {
    TEXT: types.TEXT,
    BOOLEAN: types.BOOL,
    INTEGER: types.LONG,
    NUMBER: types.DOUBLE,
    ANY: types.TEXT,
}


def fields_of_type(kind: Type) -> list[pa.Field]:
    """Returns the columns of a level."""
    found = []
    for name, one in kind.fields.items():
        if one.type is not None:
            found.append(pa.field(field_name(name), _arrow(one.type)))
        if one.json:
            found.append(pa.field(beside(name), types.TEXT))
    return [*found, pa.field(REST, types.TEXT)] if kind.rest else found


def _arrow(kind: Type) -> pa.DataType:
    if kind.kind == OBJECT:
        return pa.struct(fields_of_type(kind))
    if kind.kind == ARRAY:
        assert kind.item is not None
        return types.list_of(_arrow(kind.item))
    return _ARROW[kind.kind]


def plain_type(kind: Type) -> JsonType:
    """Returns the fields whose values a reader of typed JSON puts where `place` does."""
    if kind.kind == ARRAY:
        assert kind.item is not None
        item = plain_type(kind.item)
        return JsonType(ARRAY, types.list_of(item.arrow), (("", item),), 1 + item.nodes)
    if kind.kind != OBJECT:
        return JsonType(kind.kind, _ARROW[kind.kind])
    fields = tuple(
        (name, inner)
        for name, one in kind.fields.items()
        if one.type is not None and not one.late and field_name(name) == name
        if not (inner := plain_type(one.type)).has(ANY)
    )
    arrow = types.struct_of([(name, one.arrow) for name, one in fields])
    # An object of which nothing is plain is left to `place`, too.
    kind_of = OBJECT if fields else ANY
    return JsonType(kind_of, arrow, fields, 1 + sum(one.nodes for _, one in fields))


class UnseenError(ValueError):
    """A value has no place. The message names it."""


class _Placing(NamedTuple):
    """What holds for all of a record."""

    full: bool
    lenient: bool
    take: Callable[[int], object]
    """Told how many columns elements of arrays take."""


def place(
    known: Type,
    value: Any,
    *,
    full: bool | None = None,
    lenient: bool = False,
    take: Callable[[int], object] = int,
) -> dict[str, Any]:
    """Returns a record's values by columns; `value` is as `json.loads` with `parse_float=Fraction` reads
    it. `lenient`: what has no place is left out. `take` is told how many columns elements of arrays
    take. Raises UnseenError."""
    if value is None:
        return {}
    full = is_full(known) if full is None else full
    if isinstance(value, dict):
        return _place_fields(known, value, _Placing(full, lenient, take))
    if known.rest:
        return {REST: dump(value)}
    if lenient:
        return {}
    raise UnseenError(f"the value is {dump(value)[:40]}, no object")


def _place_fields(kind: Type, value: Mapping[str, Any], placing: _Placing) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    taken: set[str] | None = None
    for name, one in value.items():
        if one is None:
            continue
        field = kind.fields.get(name)
        if field is not None:
            _place_field(field, name, one, found, placing)
            continue
        taken = taken_names(kind.fields) if taken is None else taken
        is_open = len(kind.fields) < FIELDS_MAX and not placing.full
        if kind.rest and not (is_open and may_be_column(name, taken)):
            rest[name] = one
        elif not placing.lenient:
            raise UnseenError(f"the table has no column for field {name}")
    if rest:
        found[REST] = dump(rest)
    return found


def _place_field(
    field: Field, name: str, value: Any, found: dict[str, Any], placing: _Placing
) -> None:
    if field.type is None or (field.late and not has_type(value)):
        if field.type is None and not placing.lenient and has_type(value):
            raise UnseenError(f"field {name} has no type yet, and is {dump(value)[:40]}")
        found[beside(name)] = dump(value)
        return
    try:
        found[field_name(name)] = _place_value(field.type, value, placing)
    except _MisfitError:
        if field.json:
            found[beside(name)] = dump(value)
        elif not placing.lenient:
            raise UnseenError(
                f"field {name} is {dump(value)[:40]}, no {field.type.kind}, and nothing is beside it"
            ) from None


class _MisfitError(Exception):
    pass


def _place_value(kind: Type, value: Any, placing: _Placing) -> Any:
    """Raises _MisfitError, UnseenError."""
    if kind.kind == OBJECT and isinstance(value, dict):
        return _place_fields(kind, value, placing)
    if kind.kind == ARRAY and isinstance(value, list):
        assert kind.item is not None
        item = kind.item
        # Misfits first: such an array is text as a whole, whatever else is in it.
        if not all(one is None or _may_fit(item, one) for one in value):
            raise _MisfitError
        placing.take(len(value) * count_types(item))
        return [None if one is None else _place_value(item, one, placing) for one in value]
    if kind.kind in {OBJECT, ARRAY} or not fits(kind.kind, value):
        raise _MisfitError
    if kind.kind == ANY:
        return dump(value)
    # JSON has one zero.
    return float(value) + 0.0 if kind.kind == NUMBER else value


def _may_fit(kind: Type, value: Any) -> bool:
    """Tells whether a value is no misfit as an element."""
    if kind.kind == OBJECT:
        return isinstance(value, dict)
    if kind.kind == ARRAY:
        assert kind.item is not None
        item = kind.item
        return isinstance(value, list) and all(one is None or _may_fit(item, one) for one in value)
    return fits(kind.kind, value)


def dump(value: Any) -> str:
    """Returns JSON text, numbers as they were written."""
    if isinstance(value, Fraction):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(key)}:{dump(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class Inferred(NamedTuple):
    """Types with what follows from them."""

    type: Type
    arrow: pa.DataType
    lenient: bool
    """What has no place is left out."""
    full: bool
    """No more fields are drawn."""
    draws: bool
    """Whoever decodes tells what has no place, and decodes again when it was drawn."""
    kind: str = OBJECT


@lru_cache(maxsize=64)
def read_types(text: str) -> Inferred:
    """The inverse of `write_types`. Raises SchemaError."""
    try:
        how, plain = json.loads(text)
        kind = read_type(plain)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SchemaError(f"the inferred types cannot be read: {error}") from error
    return Inferred(
        kind, pa.struct(fields_of_type(kind)), how == LENIENT, is_full(kind), how == DRAWS
    )
