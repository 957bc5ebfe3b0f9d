"""The note in a table of the columns that schemas gave it: names and field ids, at every depth.

By it a column that somebody dropped is told from one that is still to come, and a renamed one is known
by its id (Iceberg specification, "Schema Evolution": ids last, names do not). The note is written in the
commit that makes the columns. One that is not in it is not ours, or of a table made before there were
notes: it goes by its name.

A noted column is the one with its id; else one of its name that nobody has noted, which somebody *added
again*: it is filled from then on; else it was dropped. What the topic's rules drop (`column_rules`) has no id:
it comes back, added again, when there is no such rule any more.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from iceberg_export.errors import StateError
from iceberg_export.table.edits import NONE, Edits

COLUMNS = "frazil.columns"
"""Property of the table: a JSON object by names, of ids, or of [id, the same of its fields, added again]."""


BY_RULE = 0
"""In the place of a field id: a rule keeps the column away."""


class Noted(NamedTuple):
    """A column."""

    field_id: int
    inner: "Note"
    """Its fields; those of a list's elements and a map's values, where these are structs."""
    again: bool = False
    """Somebody dropped it and added it again, or its mask has changed."""


Note = Mapping[str, Noted]


class ColumnsView(NamedTuple):
    """A table's columns as the exporter knows them."""

    columns: Schema
    """By the exporter's names, with the table's ids; without those of others that have such a name."""
    edits: Edits = NONE
    added_again: frozenset[str] = frozenset()
    """Columns, by the exporter's names, of which all or a part was dropped and added again: older rows have
    nothing there."""


def read_note(table: str, properties: Mapping[str, str]) -> Note:
    """Returns the table's note; an empty one when there is none. Raises StateError."""
    try:
        return _read(json.loads(properties.get(COLUMNS, "{}")))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(
            f"the property {COLUMNS} of table {table} cannot be read; remove it, and columns go by their"
            " names as they are now (what was dropped comes back)"
        ) from error


def _read(value: Any) -> Note:
    found = {}
    for name, one in value.items():
        field_id, inner, *again = one if isinstance(one, list) else (one, {})
        found[name] = Noted(int(field_id), _read(inner), bool(again))
    return found


def note_text(note: Note) -> str:
    """Returns the note as a property."""
    return json.dumps(_plain(note), separators=(",", ":"), ensure_ascii=False)


def _plain(note: Note) -> dict[str, Any]:
    return {name: _plain_column(one) for name, one in note.items()}


def _plain_column(column: Noted) -> Any:
    if column.again:
        return [column.field_id, _plain(column.inner), True]
    return [column.field_id, _plain(column.inner)] if column.inner else column.field_id


def view(note: Note, table: Schema, ruled: Edits = NONE) -> ColumnsView:
    """Returns a table's columns by the exporter's names, and what people changed of them, or the table's
    rules do (`column_rules.edits_of`), whether the table has those columns yet, or still, or not."""
    found = _level(note, table.fields, ruled)
    return ColumnsView(Schema(*found.fields), found.edits, found.added_again)


class _Level(NamedTuple):
    fields: list[NestedField]
    edits: Edits
    added_again: frozenset[str]


def _level(note: Note, fields: Iterable[NestedField], ruled: Edits) -> _Level:
    here = list(fields)
    names = _names(note, here, ruled)
    seen: list[NestedField] = []
    renamed = {name: new for name, new in ruled.renamed.items() if name not in names.values()}
    taken = {new.casefold(): name for name, new in ruled.renamed.items()}
    inner = dict(ruled.inner)
    again: set[str] = set()
    for field in here:
        name = names.get(field.field_id, field.name)
        if field.field_id not in names and name in note:
            taken[name.casefold()] = ""  # Another one's, beside ours that has another name now.
            continue
        if name != field.name:
            renamed[name] = field.name
            taken[field.name.casefold()] = name
        noted = note.get(name, Noted(field.field_id, {}))
        kind, below = _below(noted.inner, field.field_type, ruled.below(name))
        if below.edits != NONE:
            inner[name] = below.edits
        if noted.again or noted.field_id != field.field_id or below.added_again:
            again.add(name)
        seen.append(field.model_copy(update={"name": name, "field_type": kind}))
    gone = note.keys() - names.values()
    dropped = ruled.dropped | {name for name in gone if note[name].field_id != BY_RULE}
    edits = Edits(dropped, renamed, taken, inner)
    return _Level(seen, edits, frozenset(again))


def _names(note: Note, fields: list[NestedField], ruled: Edits) -> dict[int, str]:
    """Returns the exporter's names of fields, by their ids."""
    noted_ids = {one.field_id for one in note.values()}
    by_name = {one.name: one.field_id for one in fields if one.field_id not in noted_ids}
    here = {one.field_id for one in fields}
    found = {}
    for name, one in note.items():
        today = ruled.renamed.get(name, name)
        if one.field_id in here:
            found[one.field_id] = name
        elif today in by_name:
            found[by_name[today]] = name
    for name, new in ruled.renamed.items():
        if name not in note and name not in by_name and new in by_name:
            found.setdefault(by_name[new], name)
    return found


def _below(note: Note, kind: IcebergType, ruled: Edits) -> tuple[IcebergType, _Level]:
    """Returns a type by the exporter's names, and its fields."""
    if isinstance(kind, StructType):
        found = _level(note, kind.fields, ruled)
        return StructType(*found.fields), found
    if isinstance(kind, ListType):
        inner, found = _below(note, kind.element_type, ruled)
        return kind.model_copy(update={"element_type": inner}), found
    if isinstance(kind, MapType):
        inner, found = _below(note, kind.value_type, ruled)
        return kind.model_copy(update={"value_type": inner}), found
    return kind, _Level([], NONE, frozenset())


class RuledChange(NamedTuple):
    """A column of a table that its rules want otherwise."""

    path: str
    """By the names of today, as Iceberg writes it."""
    name: str
    """The new one; empty: it goes."""


def ruled_changes(seen: ColumnsView, ruled: Edits) -> list[RuledChange]:
    """Returns what is to be done for the rules with the columns that a table has."""
    return list(_changes(seen.columns.fields, seen.edits, ruled, ""))


def _changes(
    fields: Iterable[NestedField], edits: Edits, ruled: Edits, above: str
) -> Iterator[RuledChange]:
    for field in fields:
        name = field.name
        today = edits.renamed.get(name, name)
        if name in ruled.dropped:
            yield RuledChange(f"{above}{today}", "")
            continue
        below, path = field.field_type, f"{above}{today}."
        while isinstance(below, ListType | MapType):
            is_list = isinstance(below, ListType)
            path += "element." if is_list else "value."
            below = below.element_type if isinstance(below, ListType) else below.value_type
        if isinstance(below, StructType) and (inner := ruled.below(name)) != NONE:
            yield from _changes(below.fields, edits.below(name), inner, path)
        if name in ruled.renamed and ruled.renamed[name] != today:
            yield RuledChange(f"{above}{today}", ruled.renamed[name])


def without_ids(note: Note, ruled: Edits) -> Note:
    """Returns the note of a table whose rules have dropped their columns."""
    found = {name: Noted(BY_RULE, {}) for name in ruled.dropped}
    kept = {
        name: one._replace(inner=without_ids(one.inner, ruled.below(name)))
        for name, one in note.items()
        if name not in ruled.dropped
    }
    return {**kept, **found}


def noted(note: Note, columns: Schema, wanted: Iterable[pa.Field], ruled: Edits = NONE) -> Note:
    """Returns the note with the columns that schemas want, as far as `columns` has them: a table's, by the
    exporter's names. What is noted already stays noted, and what rules drop is noted to be away."""
    return _noted(note, columns.fields, wanted, ruled)


def _noted(
    note: Note, fields: Iterable[NestedField], wanted: Iterable[pa.Field], ruled: Edits
) -> Note:
    by_name = {one.name: one for one in fields}
    found = dict(note)
    for field in wanted:
        there = by_name.get(field.name)
        if there is None:
            if field.name in ruled.dropped:
                found[field.name] = Noted(BY_RULE, {})
            continue
        before = found.get(field.name, Noted(there.field_id, {}))
        below = ruled.below(field.name)
        inner = _noted(before.inner, _fields(there.field_type), _wanted_fields(field.type), below)
        again = before.again or before.field_id != there.field_id
        found[field.name] = Noted(there.field_id, inner, again)
    return found


def _fields(kind: IcebergType) -> Iterable[NestedField]:
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return _fields(kind.element_type)
    return _fields(kind.value_type) if isinstance(kind, MapType) else ()


def _wanted_fields(kind: pa.DataType) -> Iterable[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return _wanted_fields(kind.item_type)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return _wanted_fields(kind.value_type) if is_list else ()
