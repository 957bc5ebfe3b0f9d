"""Avro schemas (specification 1.12) to a tree of types, each with the Arrow type of its column.

Records become structs, unions with null optional values, other unions structs with one field per
branch, enums strings, fixed and durations binaries of that length. Of the logical types those that
Iceberg has become its types; an unknown or misplaced one is ignored, as the specification demands,
and so are those of nanoseconds: the long says all, microseconds would not. Values of type null give
no column. Types that contain themselves, and arrays of what takes no bytes, are refused.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_export.typed import types
from iceberg_export.typed.types import SchemaError

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


def parse_avro(text: str, references: Mapping[str, str]) -> AvroType:
    """The type a schema says. Raises SchemaError."""
    return _Reader(references).read(_loads(text), "", 0)


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # A bare name is a schema, too: some registries hand it out without quotes.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise SchemaError(f"the Avro schema is not JSON: {error}") from error


class _Reader:
    """Knows the named types seen so far, and those that references will give."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self.named: dict[str, AvroType] = {}
        self.open: set[str] = set()
        self.references = {name: _loads(text) for name, text in references.items()}

    def read(self, schema: Any, namespace: str, depth: int) -> AvroType:
        if depth > types.DEPTH_MAX:
            raise SchemaError(f"the Avro schema is over {types.DEPTH_MAX} types deep")
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if isinstance(schema, str):
            return self._by_name(schema, namespace, depth)
        if not isinstance(schema, dict) or "type" not in schema:
            raise SchemaError(f"{json.dumps(schema)[:80]} is no Avro type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.read(kind, namespace, depth + 1)
        if kind in {"record", "error", "enum", "fixed"}:
            return self._named(schema, kind, namespace, depth)
        if kind in {"array", "map"}:
            return self._repeated(schema, kind, namespace, depth)
        return _logical(self._by_name(kind, namespace, depth), schema)

    def _by_name(self, name: str, namespace: str, depth: int) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name, PRIMITIVES[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self.open:
                raise SchemaError(f"the Avro type {candidate} contains itself: no table can")
            if candidate in self.named:
                return self.named[candidate]
        for candidate in (full, name):
            if candidate in self.references:
                self.read(self.references.pop(candidate), "", depth + 1)
                if candidate in self.named:
                    return self.named[candidate]
        # A reference may define a type of another name than its own.
        while self.references:
            self.read(self.references.pop(next(iter(self.references))), "", depth + 1)
            if full in self.named:
                return self.named[full]
        raise SchemaError(f"the Avro type {full} is not defined")

    def _named(self, schema: dict[str, Any], kind: str, namespace: str, depth: int) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"an Avro {kind} has no name")
        space = schema.get("namespace", namespace) or ""
        if "." in name:
            space = name.rpartition(".")[0]
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self.named or full in self.open:
            raise SchemaError(f"the Avro type {full} is defined twice")
        self.open.add(full)
        if kind == "enum":
            found = _enum(schema, full)
        elif kind == "fixed":
            found = _fixed(schema, full)
        else:
            found = self._record(schema, full, space, depth)
        self.open.discard(full)
        self.named[full] = found
        return found

    def _record(self, schema: dict[str, Any], full: str, space: str, depth: int) -> AvroType:
        fields: list[tuple[str, AvroType]] = []
        for field in _list(schema, "fields", full):
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise SchemaError(f"a field of the Avro record {full} has no name")
            if "type" not in field:
                raise SchemaError(f"field {field['name']} of the Avro record {full} has no type")
            fields.append((field["name"], self.read(field["type"], space, depth + 1)))
        if len({name for name, _ in fields}) < len(fields):
            raise SchemaError(f"the Avro record {full} has two fields of one name")
        columns = [(name, one.arrow) for name, one in fields if one.arrow != pa.null()]
        nodes = _nodes([one for _, one in fields])
        found = AvroType("record", types.BOOL, name=full, fields=tuple(fields), nodes=nodes)
        return found._replace(arrow=types.struct_of(columns))

    def _repeated(self, schema: dict[str, Any], kind: str, space: str, depth: int) -> AvroType:
        what = "items" if kind == "array" else "values"
        if what not in schema:
            raise SchemaError(f"an Avro {kind} has no {what}")
        inner = self.read(schema[what], space, depth + 1)
        if inner.arrow == pa.null() or (kind == "array" and _bytes_min(inner) == 0):
            raise SchemaError(
                f"an Avro {kind} of {inner.kind} holds nothing: no column can be made"
            )
        make = types.list_of if kind == "array" else types.map_of
        return AvroType(kind, make(inner.arrow), fields=((what, inner),), nodes=_nodes([inner]))

    def _union(self, schema: list[Any], space: str, depth: int) -> AvroType:
        branches = [self.read(one, space, depth + 1) for one in schema]
        if not branches or any(one.kind == "union" for one in branches):
            raise SchemaError("an Avro union has types, none of them a union")
        nodes = _nodes(branches)
        others = [one for one in branches if one.kind != "null"]
        names = _branch_names(branches)
        if not others:
            arrow = pa.null()
        elif len(others) == 1:
            arrow = others[0].arrow
        else:
            named = zip(names, branches, strict=True)
            arrow = types.struct_of([(n, one.arrow) for n, one in named if one.kind != "null"])
        pairs = tuple(zip(names, branches, strict=True))
        return AvroType("union", arrow, fields=pairs, nodes=nodes)


def _nodes(inner: list[AvroType]) -> int:
    """Counted before Arrow types are made: types used twice at each level double the columns."""
    total = 1 + sum(one.nodes for one in inner)
    if total > types.NODES_MAX:
        raise SchemaError(f"the schema has over {types.NODES_MAX} columns")
    return total


def _list(schema: dict[str, Any], what: str, name: str) -> list[Any]:
    found = schema.get(what)
    if not isinstance(found, list):
        raise SchemaError(f"the Avro type {name} has no list of {what}")
    return found


def _branch_names(branches: list[AvroType]) -> list[str]:
    """Short names where they tell the branches apart, else whole ones with underscores."""
    short = [(one.name or one.kind).rpartition(".")[2] for one in branches]
    if len(set(short)) == len(short):
        return short
    whole = [(one.name or one.kind).replace(".", "_") for one in branches]
    if len(set(whole)) < len(whole):
        raise SchemaError("an Avro union has two branches of one type")
    return whole


def _enum(schema: dict[str, Any], name: str) -> AvroType:
    symbols = _list(schema, "symbols", name)
    if not symbols or not all(isinstance(one, str) for one in symbols):
        raise SchemaError(f"the Avro enum {name} has no symbols")
    return AvroType("enum", types.TEXT, name=name, symbols=tuple(symbols))


def _fixed(schema: dict[str, Any], name: str) -> AvroType:
    size = schema.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= FIXED_MAX:
        raise SchemaError(f"the Avro type {name} has no size between 1 and {FIXED_MAX}")
    plain = AvroType("fixed", pa.binary(size), name=name, size=size)
    return _logical(plain, schema)


def _logical(plain: AvroType, schema: dict[str, Any]) -> AvroType:
    """The type with its logical type, where there is one that we know and that is valid."""
    logical = schema.get("logicalType")
    if (found := LOGICAL.get((plain.kind, str(logical)))) is not None:
        return plain._replace(arrow=found, logical=str(logical))
    if logical == "decimal" and plain.kind in {"bytes", "fixed"}:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
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
