"""What people changed of a table's columns: they dropped some and renamed others. Pure, in Arrow's types.

The exporter goes on by the names that it gave. A column that somebody dropped stays away, a renamed one
is filled under its name of today, at every depth: records are decoded and columns grow by the exporter's
names, and what goes into the table is renamed last (`as_in_table`). `column_note` finds the edits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa


class Edits(NamedTuple):
    """Of one level: the table's columns, or the fields of a struct, by the exporter's names. The fields of
    a struct in a list or as values of a map are those of the column."""

    dropped: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = {}
    """Names of today."""
    taken: Mapping[str, str] = {}
    """Names that other columns have by now, without case, and what the exporter calls these; empty for a
    column of somebody else."""
    inner: Mapping[str, Edits] = {}

    def below(self, name: str) -> Edits:
        """Returns those of a column's fields."""
        return self.inner.get(name, NONE)


NONE = Edits()


def without_dropped(kind: pa.DataType, edits: Edits) -> pa.DataType:
    """Returns a type without the fields that the table has no more."""
    if edits == NONE:
        return kind
    if pa.types.is_struct(kind):
        return pa.struct(fields_without_dropped(kind, edits))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, without_dropped(kind.item_type, edits))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(pa.field("element", without_dropped(kind.value_type, edits)))
    return kind


def fields_without_dropped(fields: Iterable[pa.Field], edits: Edits) -> list[pa.Field]:
    """Returns those that the table has, each with those that it has."""
    return [
        pa.field(one.name, without_dropped(one.type, edits.below(one.name)))
        for one in fields
        if one.name not in edits.dropped
    ]


def as_in_table(kind: pa.DataType, edits: Edits) -> pa.DataType:
    """Returns a type of `canonical_type` with the names that the table's fields have today."""
    if edits == NONE:
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([field_as_in_table(one, edits) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, as_in_table(kind.item_type, edits))
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("element", as_in_table(kind.value_type, edits)))
    return kind


def field_as_in_table(field: pa.Field, edits: Edits) -> pa.Field:
    """Returns one of a level's fields as the table has it."""
    name = edits.renamed.get(field.name, field.name)
    return pa.field(name, as_in_table(field.type, edits.below(field.name)))


def width(kind: pa.DataType) -> int:
    """Returns how many columns a type is, nested ones counted."""
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return 1 + sum(map(width, inner))
