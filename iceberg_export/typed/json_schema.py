"""JSON Schema to a tree of types, each with the Arrow type of its column.

Objects with properties become structs, objects of additional properties of one kind maps, arrays
lists; strings, integers (64 bits), numbers (doubles) and booleans themselves, the formats date-time
and date Iceberg's types. `oneOf` and `anyOf` with null, and types with null, are optional, as
everything is. All else, also a schema that refers to itself, becomes the JSON text of the value.

Only types are read here: constraints (required, minimum, pattern, additionalProperties: false) are
the serializer's to check, and properties a schema does not name are left out.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_export.typed import types
from iceberg_export.typed.types import SchemaError

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

    def has(self, *kinds: str) -> bool:
        """A type of one of these kinds is somewhere in it."""
        return self.kind in kinds or any(inner.has(*kinds) for _, inner in self.fields)


ANY = JsonType("json", types.TEXT)


def parse_json_schema(text: str, references: Mapping[str, str]) -> JsonType:
    """The type a schema says. Raises SchemaError."""
    root = _loads(text)
    documents = {name: _loads(one) for name, one in references.items()}
    return _Reader(documents).read(root, root, (), 0)


def _loads(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema is not JSON: {error}") from error
    if not isinstance(found, dict | bool):
        raise SchemaError("a JSON Schema is an object or a boolean")
    return found


class _Reader:
    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents

    def read(self, schema: Any, root: Any, seen: tuple[int, ...], depth: int) -> JsonType:
        """The type of a schema in the document `root`; `seen` are those it lies in."""
        if depth > types.DEPTH_MAX:
            raise SchemaError(f"the JSON Schema is over {types.DEPTH_MAX} types deep")
        if not isinstance(schema, dict) or id(schema) in seen:
            return ANY
        seen = (*seen, id(schema))
        if "$ref" in schema:
            target, document = self._refer(schema["$ref"], root)
            return self.read(target, document, seen, depth + 1)
        for union in ("oneOf", "anyOf", "allOf"):
            if union in schema:
                branches = [one for one in _branches(schema, union) if not _is_null(one)]
                if len(branches) != 1 or "properties" in schema:
                    return ANY
                return self.read(branches[0], root, seen, depth + 1)
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, root, seen, depth)
        if kind == "array":
            items = schema.get("items")
            if not isinstance(items, dict) or "prefixItems" in schema:
                return ANY
            inner = self.read(items, root, seen, depth + 1)
            nodes = _nodes([inner])
            return JsonType("array", types.list_of(inner.arrow), (("items", inner),), nodes)
        return JsonType(kind, _ARROW[kind])

    def _object(self, schema: Any, root: Any, seen: tuple[int, ...], depth: int) -> JsonType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            fields = tuple(
                (name, self.read(one, root, seen, depth + 1)) for name, one in properties.items()
            )
            nodes = _nodes([one for _, one in fields])
            arrow = types.struct_of([(name, one.arrow) for name, one in fields])
            return JsonType("object", arrow, fields, nodes)
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and others and "patternProperties" not in schema:
            inner = self.read(others, root, seen, depth + 1)
            return JsonType("map", types.map_of(inner.arrow), (("values", inner),), _nodes([inner]))
        return ANY

    def _refer(self, reference: Any, root: Any) -> tuple[Any, Any]:
        """(what a reference names, the document that is in)."""
        if not isinstance(reference, str):
            raise SchemaError("a $ref is no string")
        name, _, fragment = reference.partition("#")
        document = root
        if name and name != (root.get("$id") if isinstance(root, dict) else None):
            if name not in self.documents:
                raise SchemaError(f"the JSON Schema refers to {name}, which is not known")
            document = self.documents[name]
        found = document
        for part in fragment.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise SchemaError(f"the JSON Schema refers to {reference}, where nothing is")
        return found, document


def _nodes(inner: list[JsonType]) -> int:
    total = 1 + sum(one.nodes for one in inner)
    if total > types.NODES_MAX:
        raise SchemaError(f"the schema has over {types.NODES_MAX} columns")
    return total


def _branches(schema: dict[str, Any], union: str) -> list[Any]:
    branches = schema[union]
    if not isinstance(branches, list):
        raise SchemaError(f"{union} of a JSON Schema is no list")
    return branches


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _kind(schema: dict[str, Any]) -> str:
    """The one kind a schema allows beside null; json when there are several or none."""
    said = schema.get("type")
    kinds = {one for one in (said if isinstance(said, list) else [said]) if isinstance(one, str)}
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
    if kind == "string" and schema.get("format") in {"date-time", "date"}:
        return str(schema["format"])
    return kind if kind in {"object", "array", "string", "integer", "number", "boolean"} else "json"
