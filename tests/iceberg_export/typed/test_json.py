"""JSON: Arrow's reader and Python's say the same of every value, also of broken ones."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iceberg_export.typed.decode_values import SchemaSelection, decode
from iceberg_export.typed.fields import JSON, Schema, SchemaError, fields_of
from iceberg_export.typed.framing import FIRST_MESSAGE
from tests.iceberg_export.typed.helpers import column, decode_both

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "buyer": {"$ref": "#/$defs/person"},
    },
    "$defs": {"person": {"type": "object", "properties": {"age": {"type": "integer"}}}},
}


def of(schema: object) -> Schema:
    return Schema(7, JSON, json.dumps(schema))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
whole = {
    "id": st.integers(-(1 << 63), (1 << 63) - 1),
    "name": st.none() | st.text(max_size=6),
    "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "paid": st.booleans(),
    "at": st.datetimes().map(lambda one: f"{one.isoformat()}+01:30"),
    "day": st.dates().map(lambda one: one.isoformat()),
    "tags": st.lists(st.none() | st.text(max_size=4), max_size=3),
    "buyer": st.none() | st.fixed_dictionaries({}, optional={"age": st.integers(0, 9)}),
    "more": anything,
}
good = st.fixed_dictionaries({}, optional=whole)
odd = st.dictionaries(st.sampled_from(list(whole)), anything, max_size=4)
SNIPPETS = (
    *("1.0", "1e2", "-0", "1e999", "9223372036854775808", '"2026-02-30"', "NaN", "[[1]]", "{}"),
    *('"\\ud800"', '"\\ud83d\\ude00"', '"2026-11-22T25:00:00Z"', "null", "tru", '"a\nb"'),
)


@st.composite
def written(draw):
    value = draw(good | odd)
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1)))
    raw = text.encode(errors="surrogatepass")
    match draw(st.sampled_from(["whole", "whole", "cut", "twice", "changed", "snippet"])):
        case "cut":
            return raw[: draw(st.integers(0, len(raw)))]
        case "twice":
            return raw + draw(st.sampled_from([b" ", b"\n", b""])) + raw
        case "changed":
            at = draw(st.integers(0, len(raw) - 1))
            return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
        case "snippet":
            name = draw(st.sampled_from(list(whole)))
            return f'{{"{name}": {draw(st.sampled_from(SNIPPETS))}}}'.encode()
    return raw


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(written(), min_size=1, max_size=5))
def test_values_are_read_fast_as_by_the_reference(payloads):
    decode_both(of(ORDER), [*payloads, None])


def test_every_type_becomes_its_column():
    text = (
        '{"id": 1, "name": "hé\\u00e9", "price": 1.5, "paid": true, "day": "2024-02-29",'
        '"at": "2026-11-22T01:02:03.123456789+01:00", "tags": ["a", null], "buyer": {"age": 7},'
        '"unknown": [1]}'
    )
    decoded = decode_both(of(ORDER), [text.encode()])
    (row,) = decoded.columns.to_pylist()
    assert row["at"] == datetime(2026, 11, 22, 0, 2, 3, 123456, tzinfo=UTC)
    assert row["day"].isoformat() == "2024-02-29"
    assert (row["id"], row["name"], row["price"], row["paid"]) == (1, "héé", 1.5, True)
    assert (row["tags"], row["buyer"]) == (["a", None], {"age": 7})
    assert "unknown" not in row


def test_what_is_not_columns_is_text_and_objects_of_one_kind_are_maps():
    schema = {
        "properties": {
            "any": {},
            "either": {"type": ["integer", "string"]},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "itself": {"$ref": "#"},
            "letters": {"enum": ["a", "b"]},
            "free": {"type": "object"},
        }
    }
    value = {"any": [1, {"b": None}], "either": "x", "counts": {"b": 2, "a": 1}, "itself": {}}
    (row,) = decode_both(of(schema), [json.dumps(value).encode()]).columns.to_pylist()
    assert row == {
        "any": '[1,{"b":null}]',
        "either": '"x"',
        "counts": [("a", 1), ("b", 2)],
        "itself": "{}",
        "letters": None,
        "free": None,
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"id": "1"}', 'field id is "1", the schema says integer'),
        ('{"id": 1.5}', "no integer of 64 bits"),
        ('{"id": 9223372036854775808}', "no integer of 64 bits"),
        ('{"name": 1}', "the schema says string"),
        ('{"price": 1e999}', "too great for a double"),
        ('{"price": NaN}', "NaN is not JSON"),
        ('{"at": "2026-11-22"}', "no date-time"),
        ('{"at": "2026-11-22T01:02:03"}', "no date-time"),
        ('{"day": "2023-02-29"}', "no date"),
        ('{"name": "\\ud800"}', "half a surrogate pair"),
        ('{"tags": "a"}', "the schema says array"),
        ("[]", "the schema says object"),
        ('{"id": 1} {"id": 2}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("", "not JSON"),
    ],
)
def test_what_a_schema_does_not_allow_is_poison_with_its_reason(text, sentence):
    decoded = decode_both(of(ORDER), [b'{"id": 5}', text.encode(), b'{"id": 6}'])
    ((row, code, message, _),) = decoded.bad_values
    assert (row, code) == (1, "UNDECODABLE")
    assert sentence in message
    assert decoded.columns["id"].to_pylist() == [5, None, 6]


def test_one_poisoned_value_among_many_is_found_and_the_others_are_read():
    payloads = [b'{"id": %d}' % number for number in range(500)]
    payloads[321] = b'{"id": true}'
    decoded = decode_both(of(ORDER), payloads)
    assert [one.row for one in decoded.bad_values] == [321]
    assert decoded.columns["id"].to_pylist() == [None if n == 321 else n for n in range(500)]


def test_integers_may_be_written_with_a_point():
    assert decode_both(of(ORDER), [b'{"id": 2.0}']).columns["id"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9007199254740993.0", 9007199254740993),
        ("12345678901234567e1", 123456789012345670),
        ("1.2345678901234566e17", 123456789012345660),
        ("9223372036854775807.0", (1 << 63) - 1),
        ("-9223372036854775808.000", -(1 << 63)),
        ("-0.0", 0),
        ("0e999", 0),
        ("123456789012345678.9", None),
        ("9007199254740992.5", None),
        ("9223372036854775807.5", None),
        ("1e-400", None),
        ("1e400", None),
        ("1e-9999999999999999999", None),
    ],
)
def test_an_integer_with_a_point_is_the_one_that_was_written_or_none(text, number):
    decoded = decode_both(of(ORDER), [f'{{"id": {text}}}'.encode()])
    assert decoded.columns["id"].to_pylist() == [number]
    assert [one.code for one in decoded.bad_values] == ["UNDECODABLE"] * (number is None)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("12345678901234567.89", "12345678901234567.89"),
        ("1e400", "1e400"),
        ("-1E+400", "-1E+400"),
        ("1e-400", "1e-400"),
        ("1e9999999999999999999", "1e9999999999999999999"),
        ("1.50", "1.5"),
        ("1E2", "100.0"),
        ("0.12345678901234567", "0.12345678901234567"),
        ('{"é": [1e999, 1.50, {"b": "\\n"}, null]}', '{"é":[1e999,1.5,{"b":"\\n"},null]}'),
    ],
)
def test_numbers_in_json_text_are_those_that_were_written(written, kept):
    schema = of({"properties": {"any": {}}})
    decoded = decode_both(schema, [f'{{"any": {written}}}'.encode()])
    assert (decoded.columns["any"].to_pylist(), decoded.bad_values) == ([kept], [])


def test_unframed_json_is_decoded_by_the_default_schema_beside_framed():
    target = pa.schema([("id", pa.int64()), ("old", pa.large_string())])
    values = column([b'{"id": 1}', b'\0\0\0\0\x07{"id": 2}', None, b"\0\0\0\0\x08{}"])
    known = {7: of({"properties": {"id": {"type": "integer"}}})}
    decoded = decode(
        values, "json", known, selection=SchemaSelection(default=known[7]), target=target
    )
    assert decoded.columns.to_pylist() == [
        {"id": 1, "old": None},
        {"id": 2, "old": None},
        {"id": None, "old": None},
        {"id": None, "old": None},
    ]
    assert decoded.unknown == {(8, FIRST_MESSAGE)}
    assert decoded.schema_ids.tolist() == [-1, 7, -2, 8]


def test_references_to_other_schemas_and_into_them_are_followed():
    names = {
        "person.json": json.dumps({"$defs": {"p": {"properties": {"age": {"type": "integer"}}}}})
    }
    text = json.dumps({"properties": {"buyer": {"$ref": "person.json#/$defs/p"}}})
    decoded = decode_both(Schema(7, JSON, text, names), [b'{"buyer": {"age": 3}}'])
    assert decoded.columns.to_pylist() == [{"buyer": {"age": 3}}]


def test_references_by_anchor_and_by_id_are_followed():
    person = {"$anchor": "person", "properties": {"age": {"type": "integer"}}}
    names = {"person.json": json.dumps({"$id": "http://x/p.json", "$defs": {"p": person}})}
    for ref in ("http://x/p.json#person", "person.json#/%24defs/p"):
        text = json.dumps({"properties": {"buyer": {"$ref": ref}}})
        decoded = decode_both(Schema(7, JSON, text, names), [b'{"buyer": {"age": 3}}'])
        assert decoded.columns.to_pylist() == [{"buyer": {"age": 3}}]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "not JSON"),
        ("3", "an object, true or false"),
        ('{"$ref": "elsewhere.json"}', "leads nowhere"),
        ('{"$ref": "#/$defs/none"}', "leads nowhere"),
        ('{"properties": {"\\ud800": {"type": "integer"}}}', "half a surrogate pair"),
    ],
)
def test_schemas_that_make_no_table_are_refused_with_the_reason(schema, sentence):
    with pytest.raises(SchemaError, match=sentence.replace("$", r"\$")):
        fields_of(Schema(7, JSON, schema))


def test_the_calendar_is_that_of_the_reference_to_its_edges():
    years = (1, 4, 100, 400, 1582, 1900, 1969, 1970, 2000, 2022, 2023, 2024, 2100, 9999)
    ends = (
        "01-31",
        "02-28",
        "02-29",
        "03-01",
        "04-30",
        "04-31",
        "07-31",
        "08-31",
        "09-31",
        "12-31",
    )
    days = [f"{year:04}-{end}" for year in years for end in ends]
    decoded = decode_both(of(ORDER), [b'{"day": "%s"}' % day.encode() for day in days])
    found = [None if one is None else one.isoformat() for one in decoded.columns["day"].to_pylist()]
    leap = {4, 400, 2000, 2024}
    real = [
        not day.endswith(("04-31", "09-31")) and (not day.endswith("02-29") or int(day[:4]) in leap)
        for day in days
    ]
    assert found == [day if is_day else None for day, is_day in zip(days, real, strict=True)]
    good_days = [day for day, is_day in zip(days, real, strict=True) if is_day]
    assert not decode_both(
        of(ORDER), [b'{"day": "%s"}' % day.encode() for day in good_days]
    ).bad_values
    for day in days:
        decode_both(of(ORDER), [b'{"day": "%s"}' % day.encode()] * 2)


def test_a_format_that_is_no_text_says_nothing():
    for form in (["date"], {"date": 1}, 3, None):
        schema = of({"properties": {"a": {"type": "string", "format": form}}})
        assert decode_both(schema, [b'{"a": "x"}']).columns.to_pylist() == [{"a": "x"}]
