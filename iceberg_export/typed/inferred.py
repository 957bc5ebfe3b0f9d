"""Columns of JSON that has no schema, inferred from its values: `frazil.iceberg.value.schema=infer`.

A *level* is an object's fields, and each field has one type for ever, drawn from the values that were seen
when it came: text, boolean, integer (64 bits), number (a double), an array of one type, an object, or
`json`, the text of whatever it is, where they disagreed. A value that does not fit its field's type goes
as JSON text into a column beside it, `<field>__json`; what cannot be a column at all (a name that another
one has in other case, fields beyond `FIELDS_MAX`) into the level's column `__json`, as one object. Values
without a type of their own (`[]`, `{}`, numbers beyond all types) give a field none: it has only
`<field>__json` until others come, and these values stay there (`Field.late`).

What is drawn never changes where a value goes that has a place: so the columns of today tell of every record
in the table where it is, and a proof decodes the log by them. A value that has no place is *unseen*
(`unseen_in`): it is drawn before a row with it is written. Pure and total.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

FIELDS_MAX: Final = 500
"""Of a level."""
TYPES_MAX: Final = 2_000
"""Of a topic's keys or values."""
DEPTH_MAX: Final = 12
"""Of objects and arrays in each other; what lies deeper is JSON text."""
NAME_CHARS_MAX: Final = 255
REST: Final = "__json"
"""Column of a level, and ending of columns beside fields."""
LONG_MAX: Final = (1 << 63) - 1

TEXT, BOOLEAN, INTEGER, NUMBER, ARRAY, OBJECT, ANY = (
    "string", "boolean", "integer", "number", "array", "object", "json",
)  # fmt: skip


class Fraction(float):
    """A number with a point or an exponent, as it was written."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        found = super().__new__(cls, text)
        found.text = text
        return found


class Field(NamedTuple):
    """A field of a level."""

    type: "Type | None"
    """None: its values have had no type of their own so far."""
    json: bool = False
    """There is a column beside it, for what does not fit."""
    late: bool = False
    """Values without a type of their own came before its type: they are beside it for ever."""


class Type(NamedTuple):
    kind: str
    fields: Mapping[str, Field] = {}
    """Of an object, by the names in JSON, in the order in which they came."""
    item: "Type | None" = None
    """Of an array."""
    rest: bool = False
    """Of an object: its level has a column for what is none of its fields."""


NOTHING: Final = Type(OBJECT)
"""What is known of values before the first: objects with any fields."""


class Seen(NamedTuple):
    """What values have for which there is no place."""

    kinds: frozenset[str] = frozenset()
    """Of values that have no column yet."""
    fields: "Mapping[str, Seen]" = MappingProxyType({})
    """Of objects, also of those that are elements of an array that there is already."""
    item: "Seen | None" = None
    """Elements of arrays that have no column yet."""
    misfit: bool = False
    """A value does not fit its field's type, or has no type of its own."""
    rest: bool = False
    """A field can be no column."""


def field_name(name: str) -> str:
    """Returns the name of a field's column; no other field's has it."""
    return f"{name}_" if name.rstrip("_").casefold().endswith("__json") else name


def beside(name: str) -> str:
    """Returns the name of the column beside a field."""
    return f"{field_name(name)}{REST}"


# What values are.


def is_bare(value: Any, depth: int = 0) -> bool:
    """Tells whether a value has no type of its own: nothing in it but nulls and others of this kind."""
    if value is None:
        return True
    if depth >= DEPTH_MAX or not isinstance(value, list | dict):
        return False
    inside = value if isinstance(value, list) else value.values()
    return all(is_bare(one, depth + 1) for one in inside)


def has_type(value: Any) -> bool:
    """Tells whether a value has a type of its own: it is not bare, and no number beyond all types."""
    if type(value) is int or isinstance(value, Fraction):
        return fits(INTEGER, value) or (isinstance(value, Fraction) and fits(NUMBER, value))
    return not is_bare(value)


def fits(kind: str, value: Any) -> bool:
    """Tells whether a value that is no null is of a kind that has no parts."""
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return type(value) is int and -LONG_MAX - 1 <= value <= LONG_MAX
        case "number":
            return (
                isinstance(value, Fraction | int)
                and not isinstance(value, bool)
                and _is_double(value)
            )
        case _:
            return kind == ANY


def _is_double(value: float) -> bool:
    try:
        return abs(float(value)) != float("inf")
    except OverflowError:
        return False


def seen_of(value: Any, depth: int) -> Seen:
    """What a value is that has no column yet, and is no null."""
    if not has_type(value):
        return Seen(misfit=True)
    if isinstance(value, list | dict) and depth >= DEPTH_MAX:
        return Seen(frozenset({ANY}))
    if isinstance(value, dict):
        inside = _unseen_fields({}, value, depth + 1, full=False)
        return inside._replace(kinds=frozenset({OBJECT}))
    if isinstance(value, list):
        items = [seen_of(one, depth + 1) for one in value if one is not None]
        return Seen(frozenset({ARRAY}), item=join(items))
    kinds = (TEXT, BOOLEAN, INTEGER, NUMBER)
    return Seen(frozenset({next(kind for kind in kinds if fits(kind, value))}))


def join(parts: Iterable[Seen]) -> Seen:
    """Returns what all of them have."""
    kinds: set[str] = set()
    fields: dict[str, list[Seen]] = {}
    items: list[Seen] = []
    misfit = rest = False
    for one in parts:
        kinds |= one.kinds
        misfit |= one.misfit
        rest |= one.rest
        items += [] if one.item is None else [one.item]
        for name, inner in one.fields.items():
            fields.setdefault(name, []).append(inner)
    joined = {name: join(inner) for name, inner in fields.items()}
    return Seen(frozenset(kinds), joined, join(items) if items else None, misfit, rest)


# What has no place.


def unseen_in(known: Type, value: Any) -> Seen | None:
    """Returns what a record's value has for which `known` has no place; None when all has one."""
    full = is_full(known)
    if value is None:
        return None
    if not isinstance(value, dict):
        return None if known.rest else Seen(rest=True)
    found = _unseen_fields(known.fields, value, 1, full=full)
    if known.rest:
        found = found._replace(rest=False)
    return found if found != Seen() else None


def _unseen_fields(
    fields: Mapping[str, Field], value: Mapping[str, Any], depth: int, *, full: bool
) -> Seen:
    taken: set[str] | None = None
    found: dict[str, Seen] = {}
    rest = False
    for name, one in value.items():
        if one is None:
            continue
        field = fields.get(name)
        if field is None:
            taken = taken_names(fields) if taken is None else taken
            if full or len(fields) >= FIELDS_MAX or not may_be_column(name, taken):
                rest = True
            else:
                found[name] = seen_of(one, depth)
        elif (inner := _unseen_of_field(field, one, depth, full=full)) is not None:
            found[name] = inner
    return Seen(fields=found, rest=rest)


def _unseen_of_field(field: Field, value: Any, depth: int, *, full: bool) -> Seen | None:
    if (field.type is None or field.late) and not has_type(value):
        return None
    if field.type is None:
        return seen_of(value, depth)
    found = _unseen_of_type(field.type, value, depth, full=full)
    if found == Seen(misfit=True):
        return None if field.json else found
    return found if found != Seen() else None


def _unseen_of_type(kind: Type, value: Any, depth: int, *, full: bool) -> Seen:
    if kind.kind == OBJECT:
        if not isinstance(value, dict):
            return Seen(misfit=True)
        found = _unseen_fields(kind.fields, value, depth + 1, full=full)
        return found._replace(rest=False) if kind.rest else found
    if kind.kind == ARRAY:
        if not isinstance(value, list):
            return Seen(misfit=True)
        assert kind.item is not None
        parts = [
            _unseen_of_type(kind.item, one, depth + 1, full=full)
            for one in value
            if one is not None
        ]
        if any(part.misfit for part in parts):
            return Seen(misfit=True)
        return join(parts)
    return Seen() if fits(kind.kind, value) else Seen(misfit=True)


def taken_names(fields: Mapping[str, Field]) -> set[str]:
    """Names of columns, without case."""
    return {one.casefold() for name in fields for one in (field_name(name), beside(name))}


def may_be_column(name: str, taken: set[str]) -> bool:
    """Tells whether a name can be that of a new column, the same with every release of Unicode. A dot stands
    between names of levels."""
    ours = {field_name(name).casefold(), beside(name).casefold()}
    is_plain = not any(one in "\x7f." or one < " " or "\ud800" <= one <= "\udfff" for one in name)
    return is_plain and 0 < len(name) <= NAME_CHARS_MAX and not ours & taken


def is_full(known: Type) -> bool:
    """Tells whether no more fields are drawn, at any level."""
    return count_types(known) >= TYPES_MAX


def count_types(kind: Type | None) -> int:
    if kind is None:
        return 0
    return (
        1 + count_types(kind.item) + sum(1 + count_types(one.type) for one in kind.fields.values())
    )


# Drawing.


def draw(known: Type, seen: Seen) -> Type:
    """Returns types with a place for what was seen; what has one keeps it. Drawing the same again changes
    nothing, all else makes a column more."""
    return _draw_fields(known, seen, _Room(TYPES_MAX - count_types(known)))


class _Room:
    """How many types there may still be."""

    def __init__(self, left: int) -> None:
        self.left = left


def _draw_fields(known: Type, seen: Seen, room: _Room) -> Type:
    fields = dict(known.fields)
    rest = known.rest or seen.rest
    taken = taken_names(fields)
    for name in sorted(seen.fields):
        field, new = fields.get(name), seen.fields[name]
        if field is not None:
            fields[name] = _draw_field(field, new, room)
        elif room.left <= 0 or len(fields) >= FIELDS_MAX or not may_be_column(name, taken):
            rest = True
        else:
            kind = _draw_type(new, room)
            room.left -= 1
            fields[name] = Field(kind, json=kind is None)
            taken |= {field_name(name).casefold(), beside(name).casefold()}
    return Type(OBJECT, fields, rest=rest)


def _draw_field(field: Field, seen: Seen, room: _Room) -> Field:
    if field.type is None:
        kind = _draw_type(seen, room)
        return field if kind is None else Field(kind, json=True, late=True)
    # With kinds it was seen before there was this type.
    misfit = seen.misfit and not seen.kinds
    return Field(_grown(field.type, seen, room), field.json or misfit, field.late)


def _grown(kind: Type, seen: Seen, room: _Room) -> Type:
    if kind.kind == OBJECT:
        return _draw_fields(kind, seen, room)
    if kind.kind == ARRAY:
        assert kind.item is not None
        return kind._replace(item=_grown(kind.item, seen, room))
    return kind


def _draw_type(seen: Seen, room: _Room) -> Type | None:
    """Returns the type of values that have no column yet; None when they have none of their own."""
    kinds = seen.kinds - {INTEGER} if NUMBER in seen.kinds else seen.kinds
    if not kinds:
        return None
    (kind, *others) = sorted(kinds)
    if others or room.left <= 0:
        return Type(ANY)
    room.left -= 1
    if kind == OBJECT:
        return _draw_fields(Type(OBJECT), seen, room)
    if kind == ARRAY:
        item = None if seen.item is None else _draw_type(seen.item, room)
        is_plain = item is not None and item.kind != ANY
        return Type(ARRAY, item=item) if is_plain else Type(ANY)
    return Type(kind)


# As text: of a schema's, and of a table's property.


EXACT, LENIENT, DRAWS = range(3)
"""What becomes of values that have no place: the record is a bad one; they are left out; they are drawn, and
the record is decoded again."""


def write_types(kind: Type, how: int = EXACT) -> str:
    """Returns the text that `inferred_rows.read_types` reads."""
    return json.dumps([how, _plain(kind)], separators=(",", ":"), ensure_ascii=False)


def _plain(kind: Type | None) -> Any:
    if kind is None or kind.kind not in {OBJECT, ARRAY}:
        return None if kind is None else kind.kind
    if kind.kind == ARRAY:
        return [_plain(kind.item)]
    fields = {
        name: [_plain(one.type), int(one.json) + 2 * int(one.late)]
        for name, one in kind.fields.items()
    }
    return {"fields": fields, "rest": int(kind.rest)}


def read_type(plain: Any) -> Type:
    if isinstance(plain, str):
        if plain not in (TEXT, BOOLEAN, INTEGER, NUMBER, ANY):
            raise ValueError(f"there is no type {plain}")
        return Type(plain)
    if isinstance(plain, list):
        (item,) = plain
        return Type(ARRAY, item=read_type(item))
    fields = {
        name: Field(None if kind is None else read_type(kind), bool(flags & 1), bool(flags & 2))
        for name, (kind, flags) in plain["fields"].items()
    }
    return Type(OBJECT, fields, rest=bool(plain["rest"]))


def write_seen(seen: Seen) -> str:
    """Returns the text that `read_seen` reads: what tasks tell the driver."""
    return json.dumps(_plain_seen(seen), separators=(",", ":"))


def read_seen(text: str) -> Seen:
    return _read_seen(json.loads(text))


def _plain_seen(seen: Seen) -> Any:
    item = None if seen.item is None else _plain_seen(seen.item)
    fields = {name: _plain_seen(one) for name, one in seen.fields.items()}
    return [sorted(seen.kinds), fields, item, int(seen.misfit), int(seen.rest)]


def _read_seen(plain: Any) -> Seen:
    kinds, fields, item, misfit, rest = plain
    inner = {name: _read_seen(one) for name, one in fields.items()}
    below = None if item is None else _read_seen(item)
    return Seen(frozenset(kinds), inner, below, bool(misfit), bool(rest))
