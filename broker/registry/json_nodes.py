"""JSON Schemas as nodes that can be compared. Pure.

A node has one kind, as in the validators that Confluent's registry builds on: what one schema
object says about strings, objects, enums and so on at once becomes an `allOf` of nodes of one kind
each, and `"type": ["a", "b"]` an `anyOf`. A `$ref` is a node, too, whose one part is what it leads to.

Drafts 4 to 2020-12 as far as comparing needs them: `definitions` and `$defs`, tuples in `items`
and `prefixItems`, `dependencies` and its two successors.

Left out: validating values, dynamic references, vocabularies.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.schemas import SchemaError
from protocol.schemas.json_schema import DEPTH_MAX, Documents, parse_json

NODES_MAX: Final = 50_000
PARTS_MAX: Final = 1_000
"""Of one combination: each is compared with each."""

_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "object": (
        "properties", "required", "minProperties", "maxProperties", "dependencies",
        "dependentRequired", "dependentSchemas", "patternProperties", "additionalProperties",
        "propertyNames", "unevaluatedProperties",
    ),
    "array": (
        "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems",
        "contains", "minContains", "maxContains", "unevaluatedItems",
    ),
}  # fmt: skip
"""Keywords by the type that they speak of: they say it where `type` is missing."""
_TYPES: Final = ("string", "number", "integer", "boolean", "null", "object", "array")
_COMBINATORS: Final = ("allOf", "anyOf", "oneOf")


@dataclass(slots=True, eq=False)
class Node:
    """One schema of one kind. Recursive schemas hold themselves."""

    kind: str = "empty"
    """empty, true, false, string, number, boolean, null, object, array, enum, const, not,
    conditional, combined or reference."""
    raw: Any = None
    """What is written; attributes are looked up in it."""
    integer: bool = False
    criterion: str = ""
    """Of combined: allOf, anyOf, oneOf."""
    parts: "list[Node]" = field(default_factory=list)
    """Of combined; the one of `not`; the target of a reference."""
    named: "dict[str, dict[str, Node]]" = field(default_factory=dict)
    """properties, patternProperties, dependentSchemas: by their names."""
    single: "dict[str, Node]" = field(default_factory=dict)
    """additionalProperties, items, additionalItems, unevaluated…: where it is a schema."""
    items: "list[Node]" = field(default_factory=list)
    """Of tuples."""
    required: frozenset[str] = frozenset()

    def get(self, name: str) -> Any:
        return self.raw.get(name) if isinstance(self.raw, dict) else None

    @property
    def is_empty(self) -> bool:
        return self.kind in ("empty", "true")


def read_json(text: str, references: Mapping[str, str] | None = None) -> Node:
    """Returns the root of a schema; `references` are texts by the names that $refs use.

    Raises SchemaError.
    """
    documents = parse_json(text, references or {})
    return _Reader(documents).node(documents.root, "", 0)


class _Reader:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._nodes: dict[int, Node] = {}
        """By the identity of what is written: a schema is one node however often it is met."""

    def node(self, value: Any, document: str, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise SchemaError(f"nested deeper than {DEPTH_MAX}")
        if isinstance(value, bool):
            return Node("true" if value else "false", value)
        if not isinstance(value, dict):
            raise SchemaError(f"not a schema: {json.dumps(value)[:80]}")
        known = self._nodes.get(id(value))
        if known is not None:
            return known
        if len(self._nodes) >= NODES_MAX:
            raise SchemaError(f"more than {NODES_MAX} schemas in one")
        node = self._nodes[id(value)] = Node(raw=value)
        if isinstance(value.get("$ref"), str):
            node.kind = "reference"
            target, target_document = self._documents.follow(value["$ref"], document)
            node.parts = [self.node(target, target_document, depth + 1)]
        else:
            self._fill(node, value, document, depth)
        return node

    def _fill(self, node: Node, value: dict[str, Any], document: str, depth: int) -> None:
        found = [
            *self._typed(value, document, depth),
            *self._logical(value, document, depth),
        ]
        if len(found) == 1:
            (only,) = found
            for name in Node.__slots__:
                setattr(node, name, getattr(only, name))
            node.raw = value
        elif found:
            node.kind, node.criterion, node.parts = "combined", "allOf", found

    def _logical(self, value: dict[str, Any], document: str, depth: int) -> list[Node]:
        """What may stand beside a type: enums, constants, combinations, negations, conditions."""
        found = []
        if "enum" in value:
            if not isinstance(value["enum"], list):
                raise SchemaError("enum: a list of values")
            found.append(Node("enum", value))
        if "const" in value:
            found.append(Node("const", value))
        if "not" in value:
            found.append(Node("not", value, parts=[self.node(value["not"], document, depth + 1)]))
        if "if" in value:
            parts = [
                self.node(value[name], document, depth + 1)
                for name in ("if", "then", "else")
                if name in value
            ]
            found.append(Node("conditional", value, parts=parts))
        for criterion in _COMBINATORS:
            if criterion in value:
                branches = value[criterion]
                if not isinstance(branches, list) or not 0 < len(branches) <= PARTS_MAX:
                    raise SchemaError(f"{criterion}: a list of 1 to {PARTS_MAX} schemas")
                parts = [self.node(branch, document, depth + 1) for branch in branches]
                found.append(Node("combined", value, criterion=criterion, parts=parts))
        return found

    def _typed(self, value: dict[str, Any], document: str, depth: int) -> list[Node]:
        given = value.get("type")
        if isinstance(given, list):
            if not 0 < len(given) <= len(_TYPES):
                raise SchemaError(f"type: 1 to {len(_TYPES)} of {', '.join(_TYPES)}")
            parts = [self._of_type(name, value, document, depth) for name in given]
            if len(parts) == 1:
                return parts
            return [Node("combined", value, criterion="anyOf", parts=parts)]
        if given is not None:
            return [self._of_type(given, value, document, depth)]
        kinds = [kind for kind, keys in _OF_KIND.items() if any(key in value for key in keys)]
        return [self._of_type(kind, value, document, depth) for kind in kinds]

    def _of_type(self, name: Any, value: dict[str, Any], document: str, depth: int) -> Node:
        if name not in _TYPES:
            raise SchemaError(f"unknown type: {json.dumps(name)[:80]}")
        if name in ("integer", "number"):
            _check_numbers(value, _OF_KIND["number"])
            return Node("number", value, integer=name == "integer")
        node = Node(name, value)
        if name == "string":
            _check_numbers(value, ("minLength", "maxLength"))
            if "pattern" in value and not isinstance(value["pattern"], str):
                raise SchemaError("pattern: a text")
        elif name == "object":
            self._fill_object(node, value, document, depth)
        elif name == "array":
            self._fill_array(node, value, document, depth)
        return node

    def _fill_object(self, node: Node, value: dict[str, Any], document: str, depth: int) -> None:
        _check_numbers(value, ("minProperties", "maxProperties"))
        required = value.get("required", [])
        # In draft 3 it was a flag of the property; such a schema is taken, and means nothing here.
        if not isinstance(required, bool) and (
            not isinstance(required, list) or not all(isinstance(name, str) for name in required)
        ):
            raise SchemaError("required: a list of names")
        node.required = frozenset(required if isinstance(required, list) else ())
        for keyword in ("properties", "patternProperties", "dependentSchemas"):
            members = value.get(keyword, {})
            if not isinstance(members, dict):
                raise SchemaError(f"{keyword}: an object of schemas")
            node.named[keyword] = {
                name: self.node(member, document, depth + 1) for name, member in members.items()
            }
        for pattern in node.named["patternProperties"]:
            try:
                re.compile(pattern)
            except (re.error, OverflowError, ValueError) as error:
                raise SchemaError(f"patternProperties: {pattern}: {error}") from error
        for name, member in _dependencies(value).items():
            if isinstance(member, dict | bool):
                node.named["dependentSchemas"][name] = self.node(member, document, depth + 1)
        self._singles(node, value, ("additionalProperties", "unevaluatedProperties"),
                      document, depth)  # fmt: skip

    def _fill_array(self, node: Node, value: dict[str, Any], document: str, depth: int) -> None:
        _check_numbers(value, ("minItems", "maxItems", "minContains", "maxContains"))
        items, tuple_of = value.get("items"), value.get("prefixItems")
        if isinstance(items, list):
            tuple_of = items
        elif items is not None:
            # Beside a tuple `items` speaks of what comes after it (draft 2020-12).
            name = "items" if tuple_of is None else "additionalItems"
            node.single[name] = self.node(items, document, depth + 1)
        if tuple_of is not None:
            if not isinstance(tuple_of, list):
                raise SchemaError("prefixItems: a list of schemas")
            node.items = [self.node(item, document, depth + 1) for item in tuple_of]
        self._singles(node, value, ("additionalItems", "unevaluatedItems"), document, depth)

    def _singles(
        self, node: Node, value: dict[str, Any], names: tuple[str, ...], document: str, depth: int
    ) -> None:
        for name in names:
            if name in value:
                node.single[name] = self.node(value[name], document, depth + 1)


def _dependencies(value: dict[str, Any]) -> dict[str, Any]:
    given = value.get("dependencies", {})
    if not isinstance(given, dict):
        raise SchemaError("dependencies: an object")
    return given


def _check_numbers(value: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        given = value.get(name, 0)
        if name.startswith("exclusive") and isinstance(given, bool):
            continue  # Draft 4.
        if not isinstance(given, int | float) or isinstance(given, bool):
            raise SchemaError(f"{name}: a number")
