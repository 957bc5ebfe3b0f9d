"""JSON Schemas as trees of types, each with the Arrow type of its column.

Objects with properties become structs, objects of additional properties of one kind maps, arrays
lists; strings, integers (64 bits), numbers (doubles) and booleans themselves, the formats date-time
and date Iceberg's types. `oneOf` and `anyOf` with null, and types with null, are optional, as
everything is. All else, also a schema that refers to itself, becomes the JSON text of the value.

Only types are read here: constraints (required, minimum, pattern, additionalProperties: false) are
the serializer's to check, and properties a schema does not name are left out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_export.typed import types
from protocol.schemas import SchemaError
from protocol.schemas.json_schema import Documents, parse_json

_ARROW: dict[str, pa.DataType] = {
    "string": types.TEXT,
    "integer": types.LONG,
    "number": types.DOUBLE,
    "boolean": types.BOOL,
    "date-time": types.TIMESTAMP,
    "date": types.DATE,
    "json": types.TEXT,
}


class JsonType(NamedTuple):
    kind: str
    """object, map, array, or one of the keys of `_ARROW`; json is text of anything."""
    arrow: pa.DataType
    fields: "tuple[tuple[str, JsonType], ...]" = ()
    """Of an object; the one of an array or map."""
    nodes: int = 1
    is_part: bool = False
    """Most bytes of an object are of fields that are not named here."""

    def has(self, *kinds: str) -> bool:
        """A type of one of these kinds is somewhere in it."""
        return self.kind in kinds or any(inner.has(*kinds) for _, inner in self.fields)


ANY = JsonType("json", types.TEXT)


def read_json(text: str, references: Mapping[str, str]) -> JsonType:
    """Returns the type of a schema. Raises SchemaError."""
    documents = parse_json(text, references)
    return _Typing(documents).type_of(documents.root, "", (), 0)


class _Typing:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def type_of(self, schema: Any, document: str, seen: tuple[int, ...], depth: int) -> JsonType:
        """The type of a schema in this document; `seen` are those it lies in."""
        if depth > types.DEPTH_MAX:
            raise SchemaError(f"the JSON Schema is over {types.DEPTH_MAX} types deep")
        if not isinstance(schema, dict) or id(schema) in seen:
            return ANY
        seen = (*seen, id(schema))
        if "$ref" in schema:
            if not isinstance(schema["$ref"], str):
                raise SchemaError("a $ref is no string")
            return self.type_of(*self._documents.follow(schema["$ref"], document), seen, depth + 1)
        for union in ("oneOf", "anyOf", "allOf"):
            if union in schema:
                branches = [one for one in _branches(schema, union) if not _is_null(one)]
                if len(branches) != 1 or "properties" in schema:
                    return ANY
                return self.type_of(branches[0], document, seen, depth + 1)
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, document, seen, depth)
        if kind == "array":
            items = schema.get("items")
            if not isinstance(items, dict) or "prefixItems" in schema:
                return ANY
            inner = self.type_of(items, document, seen, depth + 1)
            nodes = types.count_nodes([inner.nodes])
            return JsonType("array", types.list_of(inner.arrow), (("items", inner),), nodes)
        return JsonType(kind, _ARROW[kind])

    def _object(self, schema: Any, document: str, seen: tuple[int, ...], depth: int) -> JsonType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            fields = tuple(
                (name, self.type_of(one, document, seen, depth + 1))
                for name, one in properties.items()
            )
            nodes = types.count_nodes(one.nodes for _, one in fields)
            arrow = types.struct_of([(name, one.arrow) for name, one in fields])
            return JsonType("object", arrow, fields, nodes)
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and others and "patternProperties" not in schema:
            inner = self.type_of(others, document, seen, depth + 1)
            nodes = types.count_nodes([inner.nodes])
            return JsonType("map", types.map_of(inner.arrow), (("values", inner),), nodes)
        return ANY


def _branches(schema: dict[str, Any], union: str) -> list[Any]:
    branches = schema[union]
    if not isinstance(branches, list):
        raise SchemaError(f"{union} of a JSON Schema is no list")
    return branches


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _kind(schema: dict[str, Any]) -> str:
    """The one kind a schema allows beside null; json when there are several or none."""
    named = schema.get("type")
    kinds = {one for one in (named if isinstance(named, list) else [named]) if isinstance(one, str)}
    kinds.discard("null")
    if kinds == {"integer", "number"}:
        return "number"
    if not kinds and isinstance(schema.get("properties"), dict):
        return "object"
    constants = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not kinds and isinstance(constants, list) and constants:
        others = [one for one in constants if one is not None]
        return "string" if others and all(isinstance(one, str) for one in others) else "json"
    if len(kinds) != 1:
        return "json"
    kind = kinds.pop()
    form = schema.get("format")
    if kind == "string" and isinstance(form, str) and form in {"date-time", "date"}:
        return form
    return kind if kind in {"object", "array", "string", "integer", "number", "boolean"} else "json"
