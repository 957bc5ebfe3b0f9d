"""What the modules of this package speak of: a schema as registered, the column types it can give.

The type language is Arrow's with one way to say each thing (`LARGE` strings, binaries and lists,
as PyIceberg uses; microseconds), all of which Iceberg format 2 has. `type_mismatch` is the one
place that says which type may be read as which: the widenings of Iceberg's schema evolution, and
the text of a time of day, which some engines have no type for.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from protocol.schemas import SchemaError

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
INFERRED = "INFERRED"
"""No schema of a registry: types of JSON that were drawn from values (`inferred`)."""

TEXT = pa.large_string()
BYTES = pa.large_binary()
BOOL = pa.bool_()
INT = pa.int32()
LONG = pa.int64()
FLOAT = pa.float32()
DOUBLE = pa.float64()
DATE = pa.date32()
TIME = pa.time64("us")
TIMESTAMP = pa.timestamp("us", "UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")

VALUE = "value"
"""The column of a schema that is no record: `"string"` in Avro, `{"type": "array"}` in JSON."""

DECIMAL_PRECISION_MAX = 38
DEPTH_MAX = 64
"""How deep types may lie in each other; beyond it a schema is taken for an attack."""
NODES_MAX = 5_000
"""How many types a schema may be made of, each counted as often as it is used."""


class Schema(NamedTuple):
    """A schema as the registry has it."""

    schema_id: int
    kind: str
    """AVRO, JSON, PROTOBUF or INFERRED."""
    text: str
    references: Mapping[str, str] = {}
    """Texts of the schemas it refers to, also indirectly, by the name it uses for each."""
    guid: str = ""
    """Its name in record headers; empty when the registry gives none."""


def list_of(element: pa.DataType) -> pa.DataType:
    return pa.large_list(pa.field("element", element))


def map_of(value: pa.DataType, key: pa.DataType = TEXT) -> pa.DataType:
    return pa.map_(key, value)


def struct_of(fields: list[tuple[str, pa.DataType]]) -> pa.DataType:
    """Optional fields; a struct without any, which Parquet has not, is a boolean: it is there. Raises
    SchemaError for a name that no column can have."""
    for name, _ in fields:
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise SchemaError(f"the field {name!r} has half a surrogate pair: no column can")
    return pa.struct([pa.field(name, kind) for name, kind in fields]) if fields else BOOL


def count_nodes(inner: Iterable[int]) -> int:
    """Returns how many types one is made of whose parts are made of so many. Raises SchemaError.

    Counted before Arrow types are made: types used twice at each level double the columns.
    """
    total = 1 + sum(inner)
    if total > NODES_MAX:
        raise SchemaError(f"the schema has over {NODES_MAX} columns")
    return total


def type_mismatch(have: pa.DataType, want: pa.DataType, path: str = "") -> str | None:
    """Why values of `have` cannot stand in a column of `want`; None when they can."""
    if have == want or _plain(have) == _plain(want):
        return None
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        for field in have:
            if want.get_field_index(field.name) < 0:
                return f"field {_at(path, field.name)} is not in the table"
            wanted = want.field(field.name).type
            if reason := type_mismatch(field.type, wanted, _at(path, field.name)):
                return reason
        return None
    if _is_list(have) and _is_list(want):
        return type_mismatch(have.value_type, want.value_type, f"{path}[]")
    if pa.types.is_map(have) and pa.types.is_map(want):
        return type_mismatch(have.key_type, want.key_type, f"{path}{{key}}") or type_mismatch(
            have.item_type, want.item_type, f"{path}{{}}"
        )
    if _widens(have, want):
        return None
    return f"field {path or VALUE} is {say(have)}, in the table {say(want)}"


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Strings and binaries without their offset's width."""
    if pa.types.is_string(kind):
        return TEXT
    return BYTES if pa.types.is_binary(kind) else kind


def _widens(have: pa.DataType, want: pa.DataType) -> bool:
    """Iceberg's type promotions (spec, "Schema Evolution"), and text."""
    if pa.types.is_decimal128(have) and pa.types.is_decimal128(want):
        return bool(have.scale == want.scale and have.precision <= want.precision)
    return (have, _plain(want)) in {(INT, LONG), (FLOAT, DOUBLE), (TIME, TEXT)}


_NAMES = {TEXT: "string", BYTES: "binary", INT: "int", LONG: "long", FLOAT: "float"}


def say(kind: pa.DataType) -> str:
    """A type in a sentence."""
    if pa.types.is_struct(kind):
        return "a struct"
    if _is_list(kind):
        return "a list"
    return "a map" if pa.types.is_map(kind) else _NAMES.get(_plain(kind), str(kind))
