"""Whether what was valid under a writer's JSON Schema is valid under a reader's. Pure.

The differences, their names and which of them are harmless follow Confluent's registry (its
strict policy), because people plan by its answers: objects are open, closed or partly open as
`additionalProperties`, `patternProperties` and `unevaluatedProperties` say, and a new optional
property of an open object is *not* harmless, since older records may hold anything there.

A pair of schemas that is being compared counts as compatible within itself (recursive schemas).
"""

import json
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final

from broker.patterns import compiled
from broker.registry.differences import PAIRS_MAX, Changes, Difference, SchemaChange, harmful
from broker.registry.json_nodes import Node
from protocol.errors import KafkaError
from protocol.schemas import SchemaError

_HARMLESS = """
    ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
    EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED
    EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL
    OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED
    MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED
    UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED
    UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED
    NOT_TYPE_NARROWED
"""
HARMLESS: Final = frozenset(_HARMLESS.split())
"""Changes that keep what was valid valid."""


def json_differences(*, reader: Node, writer: Node) -> list[Difference]:
    """Why the reader's schema refuses what the writer's allows; none: it takes all of it.

    Raises SchemaError for schemas that are too involved.
    """
    changes = json_changes(original=writer, update=reader)
    return harmful([SchemaChange(kind, f"#{path}") for kind, path in changes], HARMLESS)


def json_changes(*, original: Node, update: Node) -> Changes:
    """All that has changed, harmless or not; paths begin with "/" ("/properties/a")."""
    return _Comparison().compare(original, update)


def _compatible(changes: Iterable[SchemaChange]) -> bool:
    return all(change.kind in HARMLESS for change in changes)


def _under(path: str, changes: Changes) -> Changes:
    return [SchemaChange(change.kind, f"/{path}{change.path}") for change in changes]


class _Comparison:
    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()
        self._known: dict[tuple[int, int], Changes] = {}
        self._truncated = 0
        """How often a pair was met within itself: what rests on that is not kept."""
        self._pairs = 0
        self._patterns: dict[str, Any] = {}

    def compare(self, original: Node | None, update: Node | None) -> Changes:
        original, update = _followed(original), _followed(update)
        if original is None or update is None:
            if original is update:
                return []
            return [SchemaChange("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED", "")]
        pair = (id(original), id(update))
        if pair in self._known:
            return self._known[pair]
        if pair in self._under_way:
            self._truncated += 1
            return []
        self._count()
        self._under_way.add(pair)
        truncated_before = self._truncated
        changes = self._compare(original, update)
        self._under_way.discard(pair)
        if self._truncated == truncated_before:
            self._known[pair] = changes
        return changes

    def _compare(self, original: Node, update: Node) -> Changes:
        bridged = self._combination(original, update)
        if bridged is not None:
            return bridged
        if original.kind != update.kind:
            if original.kind == "false" or update.is_empty:
                return []
            both_bytes = original.get("connect.type") == update.get("connect.type") == "bytes"
            # Confluent: Connect writes bytes as one JSON type or another.
            return [] if both_bytes else [SchemaChange("TYPE_CHANGED", "")]
        changes = [
            SchemaChange(f"{what}_CHANGED", "")
            for what, keys in (
                ("ID", ("$id", "id")),
                ("TITLE", ("title",)),
                ("DESCRIPTION", ("description",)),
                ("DEFAULT", ("default",)),
            )
            if any(original.get(key) != update.get(key) for key in keys)
        ]
        by_kind: dict[str, Callable[[Node, Node], Changes]] = {
            "string": _strings,
            "number": _numbers,
            "enum": _enums,
            "const": _constants,
            "combined": self._combined,
            "not": self._not,
            "object": self._objects,
            "array": self._arrays,
        }
        compare = by_kind.get(original.kind)
        return changes + (compare(original, update) if compare is not None else [])

    def _count(self) -> None:
        self._pairs += 1
        if self._pairs > PAIRS_MAX:
            raise SchemaError("too involved to be compared")

    # Combinations.

    def _combination(self, original: Node, update: Node) -> Changes | None:
        """One schema beside a combination: enough that one of its parts goes with it."""
        if original.kind != "combined" and update.kind == "combined":
            combined, extra = update, "SUM_TYPE_EXTENDED"
            usable = update.criterion in ("anyOf", "oneOf")
        elif original.kind == "combined" and update.kind != "combined":
            combined, extra = original, "PRODUCT_TYPE_NARROWED"
            usable = original.criterion == "allOf"
        else:
            return None
        single = len(combined.parts) == 1
        if not single and not usable:
            return None
        for part in combined.parts:
            pair = (original, part) if combined is update else (part, update)
            changes = self.compare(*pair)
            if _compatible(changes):
                return changes if single else [*changes, SchemaChange(extra, "")]
        return None

    def _combined(self, original: Node, update: Node) -> Changes:
        changes: Changes = []
        if original.criterion != update.criterion:
            if not _criterion_extended(original, update):
                return [SchemaChange("COMBINED_TYPE_CHANGED", "")]
            changes.append(SchemaChange("COMBINED_TYPE_EXTENDED", ""))
        before, after = _distinct(original.parts), _distinct(update.parts)
        if len(before) < len(after):
            product = update.criterion == "allOf"
            changes.append(
                SchemaChange("PRODUCT_TYPE_EXTENDED" if product else "SUM_TYPE_EXTENDED", "")
            )
        elif len(before) > len(after):
            product = original.criterion == "allOf"
            changes.append(
                SchemaChange("PRODUCT_TYPE_NARROWED" if product else "SUM_TYPE_NARROWED", "")
            )
        fitting: list[dict[int, Changes]] = []
        for index, old in enumerate(before):
            compared = {
                place: _under(f"{original.criterion}/{index}", self.compare(old, new))
                for place, new in enumerate(after)
            }
            fitting.append({at: found for at, found in compared.items() if _compatible(found)})
        matched = _matching(fitting)
        for index, place in matched.items():
            changes += fitting[index][place]
        if len(matched) < min(len(before), len(after)):
            changes.append(SchemaChange("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
        return changes

    def _not(self, original: Node, update: Node) -> Changes:
        # What must not match may only shrink, so they are compared the other way round.
        narrowed = _compatible(self.compare(update.parts[0], original.parts[0]))
        return [SchemaChange("NOT_TYPE_NARROWED" if narrowed else "NOT_TYPE_EXTENDED", "/not")]

    # Objects.

    def _objects(self, original: Node, update: Node) -> Changes:
        return [
            *_required(original, update),
            *self._properties(original, update),
            *self._dependencies(original, update),
            *self._additional(original, update, "additionalProperties"),
            *self._unevaluated(original, update, "unevaluatedProperties"),
            *_bounds(original, update, "maxProperties", "minProperties"),
        ]

    def _properties(self, original: Node, update: Node) -> Changes:
        before, after = original.named["properties"], update.named["properties"]
        changes: Changes = []
        for name in dict.fromkeys([*before, *after]):
            old, new = before.get(name), after.get(name)
            if old is None:
                assert new is not None
                found = self._property_added(original, update, name, new)
            elif new is None:
                found = self._removed(old, "PROPERTY", update, self._covering(update, name))
            else:
                found = self.compare(old, new)
            changes += _under(f"properties/{name}", found)
        return changes

    def _property_added(self, original: Node, update: Node, name: str, new: Node) -> Changes:
        is_required = name in update.required
        has_default = isinstance(new.raw, dict) and "default" in new.raw
        demand = "REQUIRED_PROPERTY" if is_required else "OPTIONAL_PROPERTY"
        if is_required and has_default:
            demand += "_WITH_DEFAULT"
        if _open(original):
            if new.is_empty:
                return [SchemaChange("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
            return [SchemaChange(f"{demand}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        changes: Changes = []
        covering = self._covering(original, name)
        if covering is not None:
            changes = self._covered(covering, new, "PROPERTY_ADDED")
        return [*changes, SchemaChange(f"{demand}_ADDED_TO_UNOPEN_CONTENT_MODEL", "")]

    def _removed(
        self,
        old: Node,
        what: str,
        update: Node,
        covering: Node | None,
    ) -> Changes:
        """A property or item that is not named any more."""
        if _open(update):
            return [SchemaChange(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
        if covering is not None:
            return self._covered(old, covering, f"{what}_REMOVED")
        if old.kind == "false":
            return [SchemaChange(f"{what}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
        return [SchemaChange(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]

    def _covering(self, node: Node, name: str) -> Node | None:
        """The schema that a property must have which is not named, if there is one."""
        for pattern, schema in node.named["patternProperties"].items():
            self._count()
            if pattern not in self._patterns:
                self._patterns[pattern] = _expression(pattern)
            expression = self._patterns[pattern]
            if expression is not None and expression.search(name) is not None:
                return schema
        return _partly_open(node)

    def _covered(self, original: Node, update: Node, what: str) -> Changes:
        changes = self.compare(original, update)
        covered = "IS_COVERED" if _compatible(changes) else "NOT_COVERED"
        return [*changes, SchemaChange(f"{what}_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]

    def _dependencies(self, original: Node, update: Node) -> Changes:
        changes: Changes = []
        before, after = _dependent_names(original), _dependent_names(update)
        for name in dict.fromkeys([*before, *after]):
            kind = _set_change(before.get(name), after.get(name), "DEPENDENCY_ARRAY")
            if kind is not None:
                changes.append(SchemaChange(kind, f"/dependencies/{name}"))
        schemas_before = original.named["dependentSchemas"]
        schemas_after = update.named["dependentSchemas"]
        for name in dict.fromkeys([*schemas_before, *schemas_after]):
            if name not in schemas_after:
                found = [SchemaChange("DEPENDENCY_SCHEMA_REMOVED", "")]
            elif name not in schemas_before:
                found = [SchemaChange("DEPENDENCY_SCHEMA_ADDED", "")]
            else:
                found = self.compare(schemas_before[name], schemas_after[name])
            changes += _under(f"dependencies/{name}", found)
        return changes

    def _additional(self, original: Node, update: Node, name: str) -> Changes:
        """additionalProperties or additionalItems: none allowed, any, or those of a schema."""
        what = "ADDITIONAL_PROPERTIES" if name == "additionalProperties" else "ADDITIONAL_ITEMS"
        (old_any, old), (new_any, new) = _extra(original, name), _extra(update, name)
        if old_any != new_any:
            return [SchemaChange(f"{what}_{'ADDED' if new_any else 'REMOVED'}", f"/{name}")]
        if old is None and new is not None:
            return [SchemaChange(f"{what}_NARROWED", f"/{name}")]
        if old is not None and new is None:
            return [SchemaChange(f"{what}_EXTENDED", f"/{name}")]
        return _under(name, self.compare(old, new))

    def _unevaluated(self, original: Node, update: Node, name: str) -> Changes:
        old, new = original.single.get(name), update.single.get(name)
        if old is None and new is None:
            return []
        what = f"UNEVALUATED_{'PROPERTIES' if name == 'unevaluatedProperties' else 'ITEMS'}"
        old_none = old is not None and old.kind == "false"
        new_none = new is not None and new.kind == "false"
        old_any, new_any = old is None or old.is_empty, new is None or new.is_empty
        if old_none != new_none:
            return [SchemaChange(f"{what}_{'ADDED' if old_none else 'REMOVED'}", f"/{name}")]
        if old is None or (old_any and not new_any):
            return [SchemaChange(f"{what}_NARROWED", f"/{name}")]
        if new is None or (new_any and not old_any):
            return [SchemaChange(f"{what}_EXTENDED", f"/{name}")]
        return _under(name, self.compare(old, new))

    # Arrays.

    def _arrays(self, original: Node, update: Node) -> Changes:
        items = self.compare(original.single.get("items"), update.single.get("items"))
        return [
            *_under("items", items),
            *self._tuples(original, update),
            *self._additional(original, update, "additionalItems"),
            *self._unevaluated(original, update, "unevaluatedItems"),
            *_bounds(original, update, "maxItems", "minItems"),
            *_unique(original, update),
            *_bounds(original, update, "maxContains", "minContains"),
        ]

    def _tuples(self, original: Node, update: Node) -> Changes:
        changes: Changes = []
        before, after = original.items, update.items
        for index in range(max(len(before), len(after))):
            if index >= len(after):
                covering = _partly_open(update)
                found = self._removed(before[index], "ITEM", update, covering)
            elif index >= len(before):
                found = self._item_added(original, after[index])
            else:
                found = self.compare(before[index], after[index])
            changes += _under(f"items/{index}", found)
        return changes

    def _item_added(self, original: Node, new: Node) -> Changes:
        if _open(original):
            if new.is_empty:
                return [SchemaChange("ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
            return [SchemaChange("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        covering = _partly_open(original)
        if covering is not None:
            return self._covered(covering, new, "ITEM_ADDED")
        return [SchemaChange("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "")]


def _followed(node: Node | None) -> Node | None:
    """Behind references, which may form a ring that says nothing."""
    seen: set[int] = set()
    while node is not None and node.kind == "reference":
        if id(node) in seen:
            raise SchemaError("a $ref leads back to itself")
        seen.add(id(node))
        node = node.parts[0]
    return node


def _distinct(parts: list[Node]) -> list[Node]:
    kept: list[Node] = []
    for part in parts:
        same = (each for each in kept if each.kind == part.kind and each.integer == part.integer)
        if not any(each.raw == part.raw and each.criterion == part.criterion for each in same):
            kept.append(part)
    return kept


def _criterion_extended(original: Node, update: Node) -> bool:
    one_before, one_after = len(original.parts) == 1, len(update.parts) == 1
    return (
        update.criterion == "anyOf"
        or (one_before and one_after)
        or (one_before and update.criterion == "oneOf")
        or (one_after and original.criterion == "allOf")
    )


def _matching(fitting: list[dict[int, Changes]]) -> dict[int, int]:
    """The largest set of pairs in which no side is used twice (augmenting paths)."""
    taken: dict[int, int] = {}

    def place(index: int, tried: set[int]) -> bool:
        for at in fitting[index]:
            if at not in tried:
                tried.add(at)
                if at not in taken or place(taken[at], tried):
                    taken[at] = index
                    return True
        return False

    for index in range(len(fitting)):
        place(index, set())
    return {index: at for at, index in sorted(taken.items())}


# Objects and arrays: what they allow besides what they name.


def _extra(node: Node, name: str) -> tuple[bool, Node | None]:
    """Whether more is allowed, and the schema that it must then have."""
    node_of = node.single.get(name)
    if node_of is None or node_of.kind == "true":
        return True, None
    return (False, None) if node_of.kind == "false" else (True, node_of)


def _suffix(node: Node) -> str:
    return "Properties" if node.kind == "object" else "Items"


def _open(node: Node) -> bool:
    """Anything may stand beside what is named."""
    suffix = _suffix(node)
    allowed, schema = _extra(node, f"additional{suffix}")
    unevaluated = node.single.get(f"unevaluated{suffix}")
    # What additional… allows in so many words is evaluated by that.
    said = f"additional{suffix}" in node.single
    return (
        allowed
        and schema is None
        and not node.named.get("patternProperties")
        and (said or unevaluated is None or unevaluated.is_empty)
    )


def _partly_open(node: Node) -> Node | None:
    """The schema that something unnamed must have, if there is one."""
    suffix = _suffix(node)
    allowed, schema_of_extra = _extra(node, f"additional{suffix}")
    if schema_of_extra is not None or not allowed:
        return schema_of_extra
    unevaluated = node.single.get(f"unevaluated{suffix}")
    if unevaluated is None or unevaluated.kind == "false" or unevaluated.is_empty:
        return None
    return unevaluated


def _expression(pattern: str) -> Any | None:
    """A pattern of properties; None: RE2 cannot do it, and then it means no property.

    Java's and JavaScript's expressions could keep an agent busy for ever.
    """
    try:
        return compiled(pattern, field="patternProperties")
    except KafkaError:
        return None


def _required(original: Node, update: Node) -> Changes:
    changes: Changes = []
    before, after = original.required, update.required
    properties = update.named["properties"]
    for name in original.named["properties"]:
        if name not in properties or (name in before) == (name in after):
            continue
        if name in before:
            kind = "REQUIRED_ATTRIBUTE_REMOVED"
        elif properties[name].get("default") is not None:
            kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
        else:
            kind = "REQUIRED_ATTRIBUTE_ADDED"
        changes.append(SchemaChange(kind, f"/required/{name}"))
    return changes


def _dependent_names(node: Node) -> dict[str, frozenset[str]]:
    said: dict[str, Any] = {}
    for keyword in ("dependencies", "dependentRequired"):
        given = node.get(keyword)
        said |= given if isinstance(given, dict) else {}
    return {
        name: frozenset(each for each in names if isinstance(each, str))
        for name, names in said.items()
        if isinstance(names, list)
    }


def _set_change(old: frozenset[str] | None, new: frozenset[str] | None, what: str) -> str | None:
    if old == new:
        return None
    if new is None:
        return f"{what}_REMOVED"
    if old is None:
        return f"{what}_ADDED"
    if old < new:
        return f"{what}_EXTENDED"
    return f"{what}_NARROWED" if new < old else f"{what}_CHANGED"


# Values.


def _bounds(original: Node, update: Node, *names: str) -> Changes:
    """Numbers that limit: added, removed, increased, decreased."""
    changes: Changes = []
    for name in names:
        old, new = _number(original, name), _number(update, name)
        if old == new:
            continue
        what = re.sub("([A-Z])", r"_\1", name).upper()
        if old is None or new is None:
            kind = "ADDED" if old is None else "REMOVED"
        else:
            kind = "INCREASED" if old < new else "DECREASED"
        changes.append(SchemaChange(f"{what}_{kind}", f"/{name}"))
    return changes


def _number(node: Node, name: str) -> float | None:
    said = node.get(name)
    return said if isinstance(said, int | float) and not isinstance(said, bool) else None


def _strings(original: Node, update: Node) -> Changes:
    changes = _bounds(original, update, "maxLength", "minLength")
    old, new = original.get("pattern"), update.get("pattern")
    if old != new:
        kind = "ADDED" if old is None else "REMOVED" if new is None else "CHANGED"
        changes.append(SchemaChange(f"PATTERN_{kind}", "/pattern"))
    return changes


def _numbers(original: Node, update: Node) -> Changes:
    changes = _bounds(
        original, update, "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"
    )
    old, new = _number(original, "multipleOf"), _number(update, "multipleOf")
    if old != new:
        if old is None or new is None:
            kind = "ADDED" if old is None else "REMOVED"
        elif _divides(old, new):
            kind = "EXPANDED"
        else:
            kind = "REDUCED" if _divides(new, old) else "CHANGED"
        changes.append(SchemaChange(f"MULTIPLE_OF_{kind}", "/multipleOf"))
    if original.integer != update.integer:
        changes.append(SchemaChange("TYPE_EXTENDED" if original.integer else "TYPE_NARROWED", ""))
    return changes


def _divides(divisor: float, number: float) -> bool:
    try:
        # As they were written: 0.3 is three times 0.1.
        return divisor != 0 and Fraction(repr(number)) % Fraction(repr(divisor)) == 0
    except ValueError:  # NaN, or without end.
        return False


def _enums(original: Node, update: Node) -> Changes:
    old, new = (
        {json.dumps(value, sort_keys=True) for value in node.get("enum")}
        for node in (original, update)
    )
    if old == new:
        return []
    kind = "EXTENDED" if old < new else "NARROWED" if new < old else "CHANGED"
    return [SchemaChange(f"ENUM_ARRAY_{kind}", "/enum")]


def _constants(original: Node, update: Node) -> Changes:
    if original.get("const") == update.get("const"):
        return []
    return [SchemaChange("ENUM_ARRAY_CHANGED", "/const")]


def _unique(original: Node, update: Node) -> Changes:
    old, new = bool(original.get("uniqueItems")), bool(update.get("uniqueItems"))
    if old == new:
        return []
    return [SchemaChange(f"UNIQUE_ITEMS_{'REMOVED' if old else 'ADDED'}", "/uniqueItems")]
