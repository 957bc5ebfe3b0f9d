"""Which rows are of a route: what a loop over bytes finds is what a parser of JSON says, for all that is JSON."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.names import HEADERS, KEY, VALUE
from iceberg_export.records.decode import Tally
from iceberg_export.records.routed_rows import piece_of_route, rows_of_route
from iceberg_export.records.rows import ROW_SCHEMA, SpanRows
from iceberg_export.routes import Route


def rows(values=(), keys=None, headers=None):
    count = len(values)
    columns = {
        VALUE: values,
        KEY: keys or [None] * count,
        HEADERS: [
            [{"key": key, "value": value} for key, value in one] for one in headers or [()] * count
        ],
    }
    arrays = [
        pa.array(columns.get(field.name, [0] * count), field.type)
        if field.name in columns
        else pa.array(range(count), pa.int64()).cast(field.type)
        if pa.types.is_integer(field.type)
        else pa.nulls(count, field.type)
        for field in ROW_SCHEMA
    ]
    return pa.table(arrays, schema=ROW_SCHEMA)


def taken(route, *values, **more):
    found = rows_of_route(route, rows(list(values), **more))
    return (found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found).to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"a"}',
        ' { "x" : [1, {"type": "b"}] , "type" : "a" } ',
        '{"x":{"type":"b"},"type":"a"}',
        '{"type":"b","type":"a"}',
        '{"type":{"type":"b"},"type":"a"}',
        '{"t\\u0079pe":"a"}',
        '{"\\u0074\\u0079\\u0070\\u0065":"\\u0061"}',
        '{"typ\\u0065x":"b","type":"a"}',
        '{"tyq\\u0065":"b","typ\\u00e9":"b","ty\\npe":"b","type\\u00":"b","type":"a"}',
        '{"type":"\\u0061"}',
        '{"type":"b","t\\u0079pe":"a"}',
        '{"x":"\\"type\\":\\"b\\"","type":"a"}',
        '{"x":"type","type":"a"}',
    ],
)
def test_a_field_has_the_value_however_it_is_written(text):
    assert taken(Route("type", ("a",)), text.encode()) == [True]


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"b"}',
        '{"type":null}',
        '{"type":["a"]}',
        '{"type":{"a":"a"}}',
        '{"type":"a","type":null}',
        '{"x":{"type":"a"}}',
        '{"x":"type","a":"a"}',
        '[{"type":"a"}]',
        '"type"',
        '{"Type":"a"}',
        '{"type":"aa"}',
        '{"type":"a"',
        '{"type":"a"}}',
        '{"type":"a"} {}',
        '{"type":"a',
        '{"type":"\\',
        '{"type"',
        "",
        "\0\0\0",
    ],
)
def test_what_has_no_such_field_or_is_no_json_is_of_the_topics_own_table(text):
    assert taken(Route("type", ("a",)), text.encode()) == [False]
    assert taken(Route("type", ("a",), takes_others=True), text.encode(), None) == [True, True]


def test_numbers_are_as_they_are_written_and_true_and_false_are_text():
    said = [b'{"v":1}', b'{"v":1.0}', b'{"v":-2e3}', b'{"v":true}', b'{"v":"true"}', b'{"v":"1"}']
    assert taken(Route("v", ("-2e3", "1", "true")), *said) == [True, False, True, True, True, True]


@pytest.mark.parametrize("name", ["é", "ß", "€uro", "😀", "a/b", "\u007f", "\u0800", "\uffff"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_names_of_all_alphabets_are_found_with_and_without_escapes(name, ascii_only):
    text = json.dumps({name + "x": "b", name[:-1]: "b", name: "a"}, ensure_ascii=ascii_only)
    assert taken(Route(name, ("a",)), text.encode()) == [True]
    assert taken(Route(f"{name}.{name}", ("a",)), f'{{"{name}":{text}}}'.encode()) == [True]


def test_half_a_pair_of_surrogates_is_no_name_and_ends_nothing():
    said = [b'{"\\ud83d":"a"}', b'{"\\ud83d\\ud83d":"a"}', b'{"\\ude00":"a"}', b'{"\\ud83":"a"}',
            b'{"\\ud83d\\u":"a"}']  # fmt: skip
    assert taken(Route("😀", ("a",)), *said) == [False] * 5
    assert taken(Route("😀", ("a",)), b'{"\\ud83d\\ude00":"a"}', b'{"\\uD83D\\uDE00":"a"}') == [
        True,
        True,
    ]


def test_a_text_that_is_longer_than_all_that_are_listed_is_none_of_them():
    assert taken(Route("t", ("aa",)), b'{"t":"aaa"}', b'{"t":"\\u0061\\u0061"}') == [False, True]


def test_a_frame_of_a_registrys_schema_is_not_looked_at():
    assert taken(Route("type", ("a",)), b'\0\0\0\0\x07{"type":"a"}') == [True]
    assert taken(Route("type", ("a",)), b'\0\0\0\0"{"type":"\\u0061"}') == [True]


def test_a_path_leads_through_objects_and_the_last_of_equal_names_counts():
    route = Route("a.b", ("x",))
    assert taken(
        route,
        b'{"a":{"b":"x"}}',
        b'{"a":{"c":{"b":"x"}}}',
        b'{"b":"x","a":{"c":1}}',
        b'{"a":{"b":"x"},"a":{}}',
        b'{"a":1,"a":{"b":"x"}}',
        b'{"a":{"b":"x"},"b":"y"}',
        b'{"a":[{"b":"x"}]}',
    ) == [True, False, False, False, True, True, False]


def test_a_header_has_the_value_the_last_of_its_name_and_none_is_none():
    said = [
        (("kind", b"a"),),
        (("kind", b"b"), ("kind", b"a")),
        (("kind", b"a"), ("kind", b"b")),
        (("kind", None),),
        (("other", b"a"),),
        (),
    ]
    route = Route("kafka_headers.kind", ("a",))
    assert taken(route, *[None] * 6, headers=said) == [True, True, False, False, False, False]
    assert taken(route._replace(takes_others=True), *[None] * 6, headers=said)[2:] == [True] * 4


def test_a_key_has_the_value_as_a_whole():
    keys = [b"a", b"ab", None, b""]
    assert taken(Route("kafka_key", ("a",)), *[None] * 4, keys=keys) == [True, False, False, False]


def test_rows_in_the_middle_of_a_column_are_found_by_their_own_values():
    some = rows([b'{"t":"a"}', b'{"t":"b"}', b'{"t":"a"}'], headers=[(("h", b"x"),), (), ()])
    assert rows_of_route(Route("t", ("b",)), some.slice(1)).to_pylist() == [True, False]
    assert rows_of_route(Route("kafka_headers.h", ("x",)), some.slice(1)).to_pylist() == [False] * 2


def test_a_batch_that_cannot_be_read_is_of_the_topics_own_table_alone():
    piece = SpanRows(rows([b'{"t":"a"}']), Tally(1), reasons=("damaged",))
    assert piece_of_route(Route("t", ("a",)), piece).num_rows == 0
    assert piece_of_route(Route("t", ("a",), takes_others=True), piece).num_rows == 1
    assert piece_of_route(None, piece).num_rows == 1


NAMES = st.sampled_from(["t", "u", "tt", "", "t\n", "é"])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.sampled_from(["a", "b", 'a"', "a\\", "é", ""])
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def said_by_a_parser(document, path):
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    if isinstance(document, bool):
        return str(document).lower()
    return str(document) if isinstance(document, str | int) else None


@given(document=DOCUMENTS, path=st.lists(st.sampled_from(["t", "u", "tt"]), min_size=1, max_size=3),
       ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))  # fmt: skip
def test_drawn_documents_are_of_the_route_of_the_value_that_a_parser_finds(
    document, path, ascii_only, indent
):
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    found = said_by_a_parser(document, path)
    by = ".".join(path)
    values = () if found is None else (found,)
    assert taken(Route(by, values), text) == [found is not None]
    assert taken(Route(by, ("none of them", *values), takes_others=True), text) == [found is None]


@given(text=st.text(alphabet='{}[]":,\\tu a1n', max_size=24))
def test_text_that_is_no_json_is_of_one_route_in_whatever_company_it_is_asked(text):
    value = text.encode()
    alone = taken(Route("t", ("a", "1")), value)
    assert taken(Route("t", ("a", "1")), b'{"t":"a"}', value, b"{") == [True, *alone, False]
    assert taken(Route("t", ("a", "1"), takes_others=True), value) == [not alone[0]]
