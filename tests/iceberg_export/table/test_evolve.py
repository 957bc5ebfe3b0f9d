"""Columns grow with schemas and never shrink: every case of a table and a schema that comes."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_export.table import evolve as evolution
from iceberg_export.table.evolve import canonical_type, evolve, iceberg_type

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.large_string()


def grown(table, schema, *, may_grow=True):
    return evolve(pa.schema(table), {1: list(pa.schema(schema))}, may_grow=may_grow)


@pytest.mark.parametrize(
    ("table", "schema", "after"),
    [
        ([], [("a", INT)], [("a", INT)]),
        ([("a", INT)], [("b", pa.string())], [("a", INT), ("b", TEXT)]),
        ([("a", INT)], [("a", LONG)], [("a", LONG)]),
        ([("a", LONG)], [("a", INT)], [("a", LONG)]),
        ([("a", pa.float32())], [("a", pa.float64())], [("a", pa.float64())]),
        ([("a", pa.decimal128(5, 2))], [("a", pa.decimal128(9, 2))], [("a", pa.decimal128(9, 2))]),
        ([("a", pa.decimal128(9, 2))], [("a", pa.decimal128(5, 2))], [("a", pa.decimal128(9, 2))]),
        ([("a", pa.binary())], [("a", pa.large_binary())], [("a", pa.large_binary())]),
        (
            [("a", pa.struct([("x", INT)]))],
            [("a", pa.struct([("y", TEXT), ("x", LONG)]))],
            [("a", pa.struct([("x", LONG), ("y", TEXT)]))],
        ),
        (
            [("a", pa.list_(pa.struct([("x", INT)])))],
            [("a", pa.large_list(pa.struct([("y", INT)])))],
            [("a", canonical_type(pa.list_(pa.struct([("x", INT), ("y", INT)]))))],
        ),
        (
            [("a", pa.map_(TEXT, INT))],
            [("a", pa.map_(pa.string(), LONG))],
            [("a", pa.map_(TEXT, LONG))],
        ),
    ],
)
def test_columns_are_added_and_widened_at_every_depth(table, schema, after):
    found = grown(table, schema)
    assert (found.columns, found.refused) == (pa.schema(after), {})
    assert found.changed == (
        pa.schema(after) != pa.schema([(n, canonical_type(t)) for n, t in table])
    )


TIME = pa.time64("us")


def test_a_time_of_day_becomes_text_that_every_engine_reads_at_every_depth():
    wanted = [
        ("a", TIME),
        ("b", pa.list_(pa.struct([("x", TIME), ("y", INT)]))),
        ("c", pa.map_(TEXT, TIME)),
    ]
    found = grown([], wanted)
    text = pa.list_(pa.struct([("x", TEXT), ("y", INT)]))
    assert found.columns == pa.schema(
        [("a", TEXT), ("b", canonical_type(text)), ("c", pa.map_(TEXT, TEXT))]
    )
    again = evolve(found.columns, {1: list(pa.schema(wanted))}, may_grow=False)
    assert (again.changed, again.refused) == (False, {})


def test_a_table_that_has_times_keeps_them_and_gets_no_more():
    found = grown([("a", TIME)], [("a", TIME), ("b", TIME)])
    assert found.columns == pa.schema([("a", TIME), ("b", TEXT)])


def test_all_that_iceberg_has_is_given_to_whom_asks_for_it():
    wanted = {1: list(pa.schema([("a", TIME)]))}
    found = evolve(pa.schema([]), wanted, may_grow=True, portable=False)
    assert found.columns == pa.schema([("a", TIME)])


@pytest.mark.parametrize(
    ("table", "schema", "said"),
    [
        ([], [("Status", INT), ("status", INT)], "column status differs from Status only in case"),
        ([("Status", INT)], [("status", INT)], "column status differs from Status only in case"),
        (
            [("a", pa.struct([("x", INT)]))],
            [("a", pa.struct([("x", INT), ("X", INT)]))],
            "column a.X differs from a.x only in case",
        ),
        (
            [],
            [("a", pa.list_(pa.struct([("x", INT), ("X", INT)])))],
            "column a.element.X differs from a.element.x only in case",
        ),
        (
            [("a", pa.struct([("b", INT)]))],
            [("a.B", INT)],
            "column a.b would be there twice",
        ),
        (
            [],
            [("l", pa.list_(INT)), ("l.element", INT)],
            "column l.element would be there twice",
        ),
        (
            [("s", pa.struct([("m.value.x", INT)]))],
            [("s", pa.struct([("m", pa.map_(TEXT, pa.struct([("x", INT)])))]))],
            "column s.m.value.x would be there twice",
        ),
    ],
)
def test_names_that_differ_only_in_case_are_refused_before_the_table_has_both(table, schema, said):
    found = grown(table, schema)
    assert not found.changed
    assert said in found.refused[1]


def test_a_table_that_has_both_names_already_goes_on():
    both = [("Status", INT), ("status", INT)]
    found = grown(both, [*both, ("other", INT)])
    assert found.columns == pa.schema([*both, ("other", INT)])


@pytest.mark.parametrize(
    ("have", "want", "said"),
    [
        (INT, TEXT, "column a of the table is int, the schema has string"),
        (INT, pa.float64(), "int, the schema has double"),
        (LONG, pa.float64(), "is long, the schema has double"),
        (
            pa.decimal128(5, 2),
            pa.decimal128(9, 3),
            "is decimal(5, 2), the schema has decimal(9, 3)",
        ),
        (pa.date32(), pa.timestamp("us"), "is date, the schema has timestamp"),
        (pa.struct([("x", INT)]), INT, "struct<x: int>"),
        (
            pa.struct([("x", INT)]),
            pa.struct([("x", TEXT)]),
            "column a.x of the table is int, the schema has string",
        ),
        (pa.map_(INT, INT), pa.map_(TEXT, INT), "map<int, int>"),
        (pa.list_(INT), pa.list_(TEXT), "column a.element of the table"),
        (pa.binary(4), pa.binary(5), "is fixed[4], the schema has fixed[5]"),
    ],
)
def test_a_schema_of_another_type_is_refused_with_the_column(have, want, said):
    found = grown([("a", have)], [("b", INT), ("a", want)])
    assert found.columns == pa.schema([("a", canonical_type(have))])
    assert not found.changed
    assert said in found.refused[1]


def test_what_no_table_can_have_is_refused():
    assert "without fields" in grown([], [("a", pa.list_(pa.struct([])))]).refused[1]
    assert "50 digits" in grown([], [("a", pa.decimal256(50, 1))]).refused[1]


def test_a_table_that_may_not_grow_takes_what_fits_and_refuses_the_rest():
    table = [("a", LONG), ("b", INT)]
    assert grown(table, [("a", INT)], may_grow=False).refused == {}
    assert "no column c" in grown(table, [("c", INT)], may_grow=False).refused[1]
    assert "column b" in grown(table, [("b", LONG)], may_grow=False).refused[1]
    inside = [("a", pa.struct([("x", INT)]))]
    more = [("a", pa.struct([("y", INT)]))]
    assert "no column a.y" in grown(inside, more, may_grow=False).refused[1]


def test_schemas_are_taken_in_order_of_their_ids_each_whole():
    wanted = {
        7: [pa.field("a", TEXT), pa.field("c", INT)],
        3: [pa.field("a", INT), pa.field("b", INT)],
        9: [pa.field("a", LONG)],
    }
    found = evolve(pa.schema([]), wanted, may_grow=True)
    assert found.columns == pa.schema([("a", LONG), ("b", INT)])
    assert list(found.refused) == [7]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.timestamp("us", "UTC"), "timestamptz"),
        (pa.timestamp("us"), "timestamp"),
        (pa.time64("us"), "time"),
        (pa.uuid(), "uuid"),
        (pa.binary(16), "fixed[16]"),
        (pa.decimal128(5, 2), "decimal(5, 2)"),
        (pa.map_(pa.string(), LONG), "map<string, long>"),
        (pa.list_(pa.struct([("a", pa.bool_()), ("b", pa.date32())])),
         "list<struct<a: boolean, b: date>>"),
    ],
)  # fmt: skip
def test_types_are_told_as_iceberg_calls_them(kind, name):
    assert iceberg_type(kind) == name


leaves = st.sampled_from(
    [INT, LONG, pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.decimal128(4, 1),
     pa.decimal128(8, 1), pa.date32()]
)  # fmt: skip
kinds = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(st.tuples(st.sampled_from("xyz"), inner), max_size=3, unique_by=lambda f: f[0])
        .filter(bool)
        .map(pa.struct),
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    ),
    max_leaves=5,
)
schemas = st.lists(
    st.tuples(st.sampled_from("abcd"), kinds), max_size=4, unique_by=lambda field: field[0]
).map(lambda fields: list(pa.schema(fields)))


def holds(wide, narrow):
    """Without the module's own rules: every path of `narrow` is there, as wide or wider."""
    for field in narrow:
        if wide.get_field_index(field.name) < 0:
            return False
        ours, theirs = wide.field(field.name).type, canonical_type(field.type)
        nested = [pa.types.is_struct, pa.types.is_large_list, pa.types.is_map]
        if [is_kind(ours) for is_kind in nested] != [is_kind(theirs) for is_kind in nested]:
            return False
        if pa.types.is_struct(theirs):
            if not holds(ours, theirs):
                return False
        elif pa.types.is_large_list(theirs):
            inner = pa.struct([("e", ours.value_type)]), pa.struct([("e", theirs.value_type)])
            if not holds(*inner):
                return False
        elif pa.types.is_map(theirs):
            inner = pa.struct([("e", ours.item_type)]), pa.struct([("e", theirs.item_type)])
            if not holds(*inner):
                return False
        elif ours != theirs and (theirs, ours) not in {
            (INT, LONG),
            (pa.float32(), pa.float64()),
            (pa.decimal128(4, 1), pa.decimal128(8, 1)),
        }:
            return False
    return True


@settings(deadline=None)
@given(table=schemas, wanted=st.dictionaries(st.integers(1, 9), schemas, max_size=4))
def test_the_columns_hold_the_table_and_every_schema_that_was_not_refused(table, wanted):
    found = evolve(pa.schema(table), wanted, may_grow=True)
    whole = pa.struct(list(found.columns))
    assert holds(whole, table)
    for schema_id, fields in wanted.items():
        assert holds(whole, fields) or schema_id in found.refused
    again = evolve(found.columns, wanted, may_grow=True)
    assert (again.columns, again.changed) == (found.columns, False)
    assert again.refused.keys() == found.refused.keys()
    fixed = evolve(found.columns, wanted, may_grow=False)
    assert (fixed.changed, fixed.refused.keys()) == (False, found.refused.keys())


def test_a_table_grows_to_a_bounded_number_of_columns_and_what_it_has_may_still_become_wider(
    monkeypatch,
):
    monkeypatch.setattr(evolution, "COLUMNS_MAX", 4)
    table = pa.schema([("a", pa.struct([("x", INT), ("y", INT)]))])
    wanted = {
        1: [pa.field("b", INT), pa.field("c", INT)],
        2: [pa.field("b", INT)],
        3: [pa.field("a", pa.struct([("z", INT)]))],
        4: [pa.field("b", LONG)],
    }
    found = evolve(table, wanted, may_grow=True)
    assert found.columns == pa.schema([*table, ("b", LONG)])
    assert found.refused == dict.fromkeys(
        (1, 3), "the table would have 5 columns, nested ones counted, at most 4"
    )


def test_names_with_dots_that_read_like_no_other_column_are_columns():
    wanted = {1: [pa.field("a.b", INT), pa.field("a", pa.struct([("c", INT)]))]}
    assert not evolve(pa.schema([]), wanted, may_grow=True).refused
