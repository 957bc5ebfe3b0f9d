"""Avro types as trees that know the Arrow type of their column.

Records become structs, unions with null optional values, other unions structs with one field per
branch, enums strings, fixed and durations binaries of that length. Of the logical types those that
Iceberg has become its types; an unknown or misplaced one is ignored, as the specification demands,
and so are those of nanoseconds: the long says all, microseconds would not. Values of type null give
no column. Types that contain themselves, and arrays of what takes no bytes, are refused.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_export.typed import types
from protocol.schemas import SchemaError, avro
from protocol.schemas.avro import Check

PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": types.BOOL,
    "int": types.INT,
    "long": types.LONG,
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "bytes": types.BYTES,
    "string": types.TEXT,
}
LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): types.DATE,
    ("int", "time-millis"): types.TIME,
    ("long", "time-micros"): types.TIME,
    ("long", "timestamp-millis"): types.TIMESTAMP,
    ("long", "timestamp-micros"): types.TIMESTAMP,
    ("long", "local-timestamp-millis"): types.LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): types.LOCAL_TIMESTAMP,
}
FIXED_MAX = 1 << 20


class AvroType(NamedTuple):
    kind: str
    """One of Avro's fourteen."""
    arrow: pa.DataType
    logical: str = ""
    name: str = ""
    size: int = 0
    """Of fixed."""
    symbols: tuple[str, ...] = ()
    fields: "tuple[tuple[str, AvroType], ...]" = ()
    """Of a record; the branches of a union by name; the one of an array or map."""
    nodes: int = 1
    """How many types it is made of, each counted as often as it is used."""

    @property
    def branch(self) -> "AvroType | None":
        """What a union is beside null, when that is one type."""
        others = [one for _, one in self.fields if one.kind != "null"]
        return others[0] if self.kind == "union" and len(others) == 1 else None


def read_avro(text: str, references: Mapping[str, str]) -> AvroType:
    """Returns the type of a schema. `references` are in the order in which they need each other.

    Raises SchemaError.
    """
    schema = avro.parse_avro(text, tuple(references.values()), check=Check.SHAPE)
    return _Typing().type_of(schema.root, 0)


class _Typing:
    """Knows the named types that are done, and those whose fields are not done yet."""

    def __init__(self) -> None:
        self._done: dict[int, AvroType] = {}
        self._open: set[int] = set()

    def type_of(self, one: avro.AvroType, depth: int) -> AvroType:
        if depth > types.DEPTH_MAX:
            raise SchemaError(f"the Avro schema is over {types.DEPTH_MAX} types deep")
        match one:
            case avro.Primitive():
                return _logical(AvroType(one.name, PRIMITIVES[one.name]), one.props)
            case avro.Array():
                return self._repeated("array", "items", one.items, depth)
            case avro.Map():
                return self._repeated("map", "values", one.values, depth)
            case avro.Union():
                return self._union(one, depth)
            case avro.Named():
                return self._named(one, depth)

    def _named(self, one: avro.Named, depth: int) -> AvroType:
        if id(one) in self._open:
            raise SchemaError(f"the Avro type {one.full_name} contains itself: no table can")
        if id(one) not in self._done:
            self._open.add(id(one))
            self._done[id(one)] = self._record(one, depth) if one.is_record else _leaf(one)
            self._open.discard(id(one))
        return self._done[id(one)]

    def _record(self, one: avro.Named, depth: int) -> AvroType:
        fields = [(field.name, self.type_of(field.type, depth + 1)) for field in one.fields]
        nodes = types.count_nodes(inner.nodes for _, inner in fields)
        columns = [(name, inner.arrow) for name, inner in fields if inner.arrow != pa.null()]
        arrow = types.struct_of(columns)
        return AvroType("record", arrow, name=one.full_name, fields=tuple(fields), nodes=nodes)

    def _repeated(self, kind: str, what: str, element: avro.AvroType, depth: int) -> AvroType:
        inner = self.type_of(element, depth + 1)
        if inner.arrow == pa.null() or (kind == "array" and _bytes_min(inner) == 0):
            raise SchemaError(
                f"an Avro {kind} of {inner.kind} holds nothing: no column can be made"
            )
        make = types.list_of if kind == "array" else types.map_of
        nodes = types.count_nodes([inner.nodes])
        return AvroType(kind, make(inner.arrow), fields=((what, inner),), nodes=nodes)

    def _union(self, one: avro.Union, depth: int) -> AvroType:
        branches = [self.type_of(branch, depth + 1) for branch in one.branches]
        if not branches:
            raise SchemaError("an Avro union has no types: no value can be of it")
        nodes = types.count_nodes(branch.nodes for branch in branches)
        pairs = tuple(zip(_branch_names(branches), branches, strict=True))
        columns = [(name, branch.arrow) for name, branch in pairs if branch.kind != "null"]
        if len(columns) > 1:
            arrow = types.struct_of(columns)
        else:
            arrow = columns[0][1] if columns else pa.null()
        return AvroType("union", arrow, fields=pairs, nodes=nodes)


def _branch_names(branches: list[AvroType]) -> list[str]:
    """Short names where they tell the branches apart, else whole ones with underscores."""
    short = [(one.name or one.kind).rpartition(".")[2] for one in branches]
    if len(set(short)) == len(short):
        return short
    whole = [(one.name or one.kind).replace(".", "_") for one in branches]
    if len(set(whole)) < len(whole):
        raise SchemaError("an Avro union has two branches of one name")
    return whole


def _leaf(one: avro.Named) -> AvroType:
    """An enum or a fixed."""
    if one.kind == "enum":
        if not one.symbols:
            raise SchemaError(f"the Avro enum {one.full_name} has no symbols")
        return AvroType("enum", types.TEXT, name=one.full_name, symbols=one.symbols)
    if not 1 <= one.size <= FIXED_MAX:
        raise SchemaError(f"the Avro type {one.full_name} has no size between 1 and {FIXED_MAX}")
    plain = AvroType("fixed", pa.binary(one.size), name=one.full_name, size=one.size)
    return _logical(plain, one.props)


def _logical(plain: AvroType, props: Mapping[str, Any]) -> AvroType:
    """The type with its logical type, where there is one that we know and that is valid."""
    logical = props.get("logicalType")
    if (found := LOGICAL.get((plain.kind, str(logical)))) is not None:
        return plain._replace(arrow=found, logical=str(logical))
    if logical == "decimal" and plain.kind in {"bytes", "fixed"}:
        precision, scale = props.get("precision"), props.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return plain
        if not 0 <= scale <= precision or precision < 1:
            return plain
        if precision > types.DECIMAL_PRECISION_MAX:
            raise SchemaError(f"a decimal of {precision} digits: no column has over 38")
        return plain._replace(arrow=pa.decimal128(precision, scale), logical="decimal")
    if logical == "uuid" and plain.kind == "fixed" and plain.size == 16:
        return plain._replace(arrow=types.TEXT, logical="uuid")
    return plain


def _bytes_min(one: AvroType) -> int:
    """The least bytes a value takes: 0 for records of nothing."""
    if one.kind == "record":
        return sum(_bytes_min(inner) for _, inner in one.fields)
    return 0 if one.kind == "null" else 1
