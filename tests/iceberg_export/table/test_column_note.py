"""What the note in a table tells of columns that people dropped, renamed or added, at every depth."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from iceberg_export.errors import StateError
from iceberg_export.table.column_note import COLUMNS, Noted, note_text, noted, read_note, view
from iceberg_export.table.edits import (
    NONE,
    as_in_table,
    field_as_in_table,
    fields_without_dropped,
    without_dropped,
)
from iceberg_export.table.evolve import canonical_type, evolve
from iceberg_export.table.schema import arrow_schema

TEXT, INT = pa.large_string(), pa.int32()


def column(field_id, name, kind=None):
    return NestedField(field_id, name, kind or IntegerType(), required=False)


def struct(*fields):
    return StructType(*fields)


def read(note, *fields):
    return view(note, Schema(*fields))


def names(fields):
    return [one.name for one in fields]


FLAT = {"a": Noted(1, {}), "b": Noted(2, {})}


def test_a_table_that_nobody_touched_is_as_the_note_says():
    found = read(FLAT, column(1, "a"), column(2, "b"))
    assert (names(found.columns.fields), found.edits, found.added_again) == (
        ["a", "b"],
        NONE,
        frozenset(),
    )


def test_a_noted_column_that_is_not_there_was_dropped():
    found = read(FLAT, column(1, "a"))
    assert (names(found.columns.fields), found.edits.dropped) == (["a"], {"b"})


def test_a_column_is_known_by_its_id_under_any_name():
    found = read(FLAT, column(1, "first"), column(2, "b"))
    assert names(found.columns.fields) == ["a", "b"]
    assert (found.edits.renamed, found.edits.taken) == ({"a": "first"}, {"first": "a"})


def test_two_columns_that_swapped_their_names_are_told_apart():
    found = read(FLAT, column(1, "b"), column(2, "a"))
    assert {one.field_id: one.name for one in found.columns.fields} == {1: "a", 2: "b"}
    assert found.edits.renamed == {"a": "b", "b": "a"}


def test_a_column_of_that_name_with_another_id_was_added_again():
    found = read(FLAT, column(1, "a"), column(7, "b"))
    assert (found.edits, found.added_again) == (NONE, {"b"})


def test_a_column_that_was_added_again_stays_one_when_it_is_noted_anew():
    table = [column(1, "a"), column(7, "b")]
    wanted = [pa.field("a", INT), pa.field("b", INT)]
    after = noted(FLAT, read(FLAT, *table).columns, wanted)
    assert after == {"a": Noted(1, {}), "b": Noted(7, {}, again=True)}
    assert read(after, *table).added_again == {"b"}


def test_a_strangers_column_of_a_name_that_ours_had_before_is_not_ours():
    found = read(FLAT, column(1, "old"), column(2, "b"), column(9, "a"))
    assert {one.field_id: one.name for one in found.columns.fields} == {1: "a", 2: "b"}
    assert found.edits.taken == {"old": "a", "a": ""}


def test_columns_that_nobody_noted_go_by_their_names():
    found = read({}, column(1, "a"), column(5, "theirs"))
    assert (names(found.columns.fields), found.edits) == (["a", "theirs"], NONE)


NESTED = {"who": Noted(1, {"name": Noted(2, {}), "at": Noted(3, {})})}


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda kind: kind,
        lambda kind: ListType(8, kind, element_required=False),
        lambda kind: MapType(8, StringType(), 9, kind, value_required=False),
        lambda kind: ListType(8, ListType(9, kind, element_required=False), element_required=False),
    ],
    ids=["struct", "list", "map", "list-of-lists"],
)
def test_fields_of_structs_are_dropped_and_renamed_alike(wrapped):
    table = column(1, "who", wrapped(struct(column(3, "since"), column(4, "theirs"))))
    found = read(NESTED, table)
    inside = found.edits.below("who")
    assert (inside.dropped, inside.renamed) == ({"name"}, {"at": "since"})
    ours = arrow_schema(found.columns).field(0)
    assert field_as_in_table(canonical(ours), found.edits) == canonical(
        arrow_schema(Schema(table)).field(0)
    )


def canonical(field):
    return pa.field(field.name, canonical_type(field.type))


def test_a_part_of_a_column_that_was_added_again_keeps_all_of_it_from_being_compared():
    found = read(NESTED, column(1, "who", struct(column(2, "name"), column(6, "at"))))
    assert found.added_again == {"who"}


def test_only_columns_that_schemas_want_are_noted():
    table = Schema(column(1, "a"), column(2, "theirs"), column(3, "who", struct(column(4, "x"))))
    wanted = [pa.field("a", INT), pa.field("who", pa.struct([("x", INT), ("to_come", INT)]))]
    assert noted({}, table, wanted) == {"a": Noted(1, {}), "who": Noted(3, {"x": Noted(4, {})})}


def test_what_schemas_want_no_more_stays_noted():
    assert noted(FLAT, Schema(column(1, "a")), [pa.field("a", INT)]) == FLAT


NOTES = st.recursive(
    st.dictionaries(st.text(), st.builds(Noted, st.integers(1), st.just({}), st.booleans())),
    lambda inner: st.dictionaries(
        st.text(), st.builds(Noted, st.integers(1), inner, st.booleans()), max_size=3
    ),
    max_leaves=10,
)


@given(NOTES)
def test_a_note_is_read_as_it_was_written(note):
    assert read_note("t", {COLUMNS: note_text(note)}) == note


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"a": "x"}', '{"a": [1, 2]}', '{"a": [1]}', "[" * 10_000]
)
def test_a_note_that_is_damaged_is_told_with_what_to_do(text):
    with pytest.raises(StateError, match=r"property frazil.columns of table t cannot be read"):
        read_note("t", {COLUMNS: text})


def grown(edits, table, schema, *, may_grow=True):
    wanted = {1: list(pa.schema(schema))}
    return evolve(pa.schema(table), wanted, may_grow=may_grow, edits=edits)


def test_a_dropped_column_is_not_added_again_and_hinders_no_schema():
    edits = read(FLAT, column(1, "a")).edits
    found = grown(edits, [("a", INT)], [("a", INT), ("b", INT)], may_grow=False)
    assert (found.changed, found.refused) == (False, {})


def test_a_dropped_field_is_not_added_again_beside_one_that_is_new():
    table = column(1, "who", struct(column(2, "name", StringType())))
    seen = read(NESTED, table)
    wanted = [("who", pa.struct([("name", TEXT), ("at", INT), ("new", INT)]))]
    found = grown(seen.edits, arrow_schema(seen.columns), wanted)
    assert found.columns == pa.schema([("who", pa.struct([("name", TEXT), ("new", INT)]))])


def test_a_renamed_column_becomes_wider_as_any_other():
    seen = read(FLAT, column(1, "first", IntegerType()), column(2, "b", LongType()))
    found = grown(seen.edits, arrow_schema(seen.columns), [("a", pa.int64())])
    assert found.columns == pa.schema([("a", pa.int64()), ("b", pa.int64())])


@pytest.mark.parametrize("name", ["first", "First"])
def test_a_new_column_does_not_get_the_name_that_a_renamed_one_has_by_now(name):
    seen = read(FLAT, column(1, "first"), column(2, "b"))
    found = grown(seen.edits, arrow_schema(seen.columns), [(name, INT)])
    assert not found.changed
    assert "the one that schemas call a, which was renamed" in found.refused[1]


def test_a_type_without_its_dropped_fields_is_the_same_but_for_these():
    inside = read(NESTED, column(1, "who", struct(column(2, "name")))).edits
    fields = [pa.field("who", pa.large_list(pa.struct([("name", TEXT), ("at", INT)])))]
    (kept,) = fields_without_dropped(fields, inside)
    assert kept.type == canonical_type(pa.large_list(pa.struct([("name", TEXT)])))
    assert without_dropped(INT, inside) == as_in_table(INT, inside) == INT
