"""Avro: what fastavro writes is read, fast and by the reference alike, also what is broken."""

import io
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iceberg_export.typed.fields import AVRO, Schema, SchemaError, fields_of
from tests.iceberg_export.typed.helpers import decode_both

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERED = iter(range(1 << 60))


def fresh(kind: str) -> str:
    return f"{kind}{next(NUMBERED)}"


SCALARS = {
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": longs,
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=8),
    "string": texts,
}


@st.composite
def shapes(draw, depth=2):
    """(a schema, a strategy for its values)."""
    kinds = ["scalar", "enum", "fixed", "decimal", "moment", "optional"]
    kind = draw(st.sampled_from(kinds + (["record", "array", "map", "union"] if depth else [])))
    if kind == "scalar":
        return draw(st.sampled_from(list(SCALARS.items())))
    if kind == "enum":
        return {"type": "enum", "name": fresh("E"), "symbols": ["A", "B", "C"]}, st.sampled_from(
            "ABC"
        )
    if kind == "fixed":
        return {"type": "fixed", "name": fresh("F"), "size": 3}, st.binary(min_size=3, max_size=3)
    if kind == "decimal":
        schema = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}
        return schema, st.integers(-(10**20) + 1, 10**20 - 1).map(
            lambda one: Decimal(one).scaleb(-3)
        )
    if kind == "moment":
        schema = {
            "type": "long",
            "logicalType": draw(st.sampled_from(["timestamp-millis", "time-micros"])),
        }
        return schema, st.integers(0, 86_399_999_999)
    if kind == "record":
        return draw(records(depth - 1))
    if kind == "optional":
        inner, values = draw(st.sampled_from(list(SCALARS.items())))
        return draw(st.permutations([inner, "null"])), st.none() | values
    inner, values = draw(shapes(depth=depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(texts, values, max_size=4)
    first, second = SCALARS["string"], SCALARS["boolean"]
    return ["null", "string", "boolean"], st.none() | first | second


@st.composite
def records(draw, depth=2):
    count = draw(st.integers(1, 4))
    fields = {f"f{number}": draw(shapes(depth=depth)) for number in range(count)}
    schema = {
        "type": "record",
        "name": fresh("R"),
        "fields": [{"name": name, "type": one} for name, (one, _) in fields.items()],
    }
    return schema, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


def encode(schema: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def of(schema: object) -> Schema:
    return Schema(7, AVRO, json.dumps(schema))


@st.composite
def damaged(draw, payload: bytes) -> bytes:
    raw = bytearray(payload)
    match draw(st.sampled_from(["whole", "cut", "longer", "changed"])):
        case "cut":
            del raw[draw(st.integers(0, len(raw))) :]
        case "longer":
            raw += draw(st.binary(min_size=1, max_size=4))
        case "changed" if raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_fastavro_writes_is_read_fast_as_by_the_reference(data):
    schema, values = data.draw(records())
    some = [encode(schema, one) for one in data.draw(st.lists(values, min_size=1, max_size=6))]
    decoded = decode_both(of(schema), [*some, None])
    assert decoded.bad_values == []
    assert decoded.columns.num_rows == len(some) + 1


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_values_are_told_fast_as_by_the_reference(data):
    schema, values = data.draw(records())
    some = [encode(schema, one) for one in data.draw(st.lists(values, min_size=1, max_size=4))]
    decode_both(of(schema), [data.draw(damaged(one)) for one in some])


def test_every_type_becomes_its_column():
    schema = {
        "type": "record",
        "name": "a.Order",
        "fields": [
            {"name": "nothing", "type": "null"},
            {"name": "text", "type": "string"},
            {"name": "raw", "type": ["null", "bytes"]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "micros", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {
                "name": "price",
                "type": {
                    "type": "fixed",
                    "name": "P",
                    "size": 9,
                    "logicalType": "decimal",
                    "precision": 20,
                    "scale": 2,
                },
            },
            {
                "name": "id",
                "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            },
            {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
            {"name": "again", "type": "K"},
            {
                "name": "either",
                "type": ["null", "long", "string", {"type": "array", "items": "int"}],
            },
            {
                "name": "lists",
                "type": {"type": "array", "items": {"type": "array", "items": "int"}},
            },
            {"name": "counts", "type": {"type": "map", "values": "double"}},
            {"name": "empty", "type": {"type": "record", "name": "N", "fields": []}},
        ],
    }
    fields = [one for one in schema["fields"] if one["name"] != "id"]
    moment = datetime(2026, 11, 22, 1, 2, 3, 456000, tzinfo=UTC)
    value = {
        "nothing": None,
        "text": "hé",
        "raw": b"\x00\xff",
        "day": date(1969, 12, 31),
        "at": moment,
        "micros": moment.replace(tzinfo=None),
        "clock": time(23, 59, 59, 999000),
        "price": Decimal("-123.45"),
        "kind": "B",
        "again": "A",
        "either": [1, -2],
        "lists": [[1], [], [2, 3]],
        "counts": {"b": 1.5, "a": 2.0},
        "empty": {},
    }
    payload = encode({**schema, "fields": fields}, value)
    decoded = decode_both(of({**schema, "fields": fields}), [payload])
    assert decoded.bad_values == []
    (row,) = decoded.columns.to_pylist()
    assert row == {
        **{name: one for name, one in value.items() if name != "nothing"},
        "either": {"long": None, "string": None, "array": [1, -2]},
        "counts": [("a", 2.0), ("b", 1.5)],
        "empty": True,
    }
    only_id = {"type": "record", "name": "O", "fields": [schema["fields"][8]]}
    unique = UUID("00112233-4455-6677-8899-aabbccddeeff")
    found = decode_both(of(only_id), [unique.bytes, None, unique.bytes])
    assert found.columns["id"].to_pylist() == [str(unique), None, str(unique)]
    assert (moment - EPOCH) > timedelta(0)


@pytest.mark.parametrize(
    ("schema", "payload", "sentence"),
    [
        ("long", b"\x02\x02", "1 bytes are left over"),
        ("long", b"", "too early"),
        ("long", b"\xff" * 9 + b"\x02", "over 64 bits"),
        ("long", b"\xff" * 100_000, "over 64 bits"),
        ("int", b"\x80\x80\x80\x80\x10", "over 32 bits"),
        ("boolean", b"\x02", "2 is no boolean"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x06\xed\xa0\x80", "not UTF-8"),
        ("string", b"\x04\xc0\x80", "not UTF-8"),
        ("string", b"\x01", "too early"),
        (["null", "int"], b"\x04", "no branch 2"),
        (["null", "int"], b"\x01\x02", "no branch -1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "no symbol -1"),
        # The first of two equal keys does not count, and is read all the same.
        (
            {"type": "map", "values": {"type": "int", "logicalType": "time-millis"}},
            b"\x04\x02a\x01\x02a\x02\x00",
            "outside the day",
        ),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no symbol 1"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", "outside the day"),
        ({"type": "array", "items": "int"}, b"\x10\x00", "too early"),
        ({"type": "array", "items": "int"}, b"\x01\x7e\x02", "too early"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            b"\x02\x64",
            "over 2 digits",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xfe" + b"\xff" * 8 + b"\x01",
            "beyond 64 bits",
        ),
    ],
)
def test_what_a_schema_does_not_allow_is_poison_with_its_reason(schema, payload, sentence):
    decoded = decode_both(of(schema), [payload])
    ((row, code, message, schema_id),) = decoded.bad_values
    assert (row, code, schema_id) == (0, "UNDECODABLE", 7)
    assert sentence in message


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        (b"", 0),
        (b"\x63", 99),
        (b"\x9d", -99),
        (b"\xff" * 20 + b"\x9d", -99),
        (b"\0" * 20 + b"\x63", 99),
    ],
)
def test_decimals_of_any_length_are_read(raw, number):
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    payload = bytes([2 * len(raw)]) + raw
    assert decode_both(of(schema), [payload]).columns["value"].to_pylist() == [Decimal(number)]


@pytest.mark.parametrize(
    "raw", [b"\x01" + b"\0" * 16, b"\x80" + b"\0" * 15, b"\xff" * 9 + b"\0" * 9]
)
def test_decimals_beyond_128_bits_or_38_digits_are_poison(raw):
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
    assert len(decode_both(of(schema), [bytes([2 * len(raw)]) + raw]).bad_values) == 1


def test_arrays_in_blocks_with_sizes_are_read_as_one():
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "list", "type": {"type": "array", "items": "string"}},
            {"name": "after", "type": "int"},
        ],
    }
    blocks = b"\x03\x08\x02a\x02b" + b"\x02\x02c" + b"\x00" + b"\x08"
    plain = b"\x02\x02z\x00\x02"
    decoded = decode_both(of(schema), [blocks, plain, b"\x00\x06"])
    assert decoded.columns["list"].to_pylist() == [["a", "b", "c"], ["z"], []]
    assert decoded.columns["after"].to_pylist() == [4, 1, 3]


def test_an_array_that_is_longer_than_the_rounds_is_read_all_the_same():
    schema = {"type": "array", "items": "int"}
    long = encode(schema, list(range(1200)))
    decoded = decode_both(of(schema), [encode(schema, [1]), long, encode(schema, [2, 3])])
    assert decoded.columns["value"].to_pylist() == [[1], list(range(1200)), [2, 3]]


def test_of_equal_keys_of_a_map_the_last_counts_and_keys_are_in_order():
    schema = {"type": "map", "values": "int"}
    payload = b"\x06\x02b\x02\x02a\x04\x02b\x06\x00"
    decoded = decode_both(of(schema), [b"\x00", payload, None])
    assert decoded.columns["value"].to_pylist() == [[], [("a", 2), ("b", 3)], None]


def test_types_of_references_are_known():
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "sku", "type": "Sku"}]}
    sku = {"type": "fixed", "name": "shop.Sku", "size": 2}
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "item", "type": "Item"}]}
    names = {"shop.Sku": json.dumps(sku), "shop.Item": json.dumps(item)}
    schema = Schema(7, AVRO, json.dumps(order), names)
    assert decode_both(schema, [b"ab"]).columns.to_pylist() == [{"item": {"sku": b"ab"}}]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "not JSON"),
        ('"nowhere"', 'nowhere" is not a defined name'),
        ('["null", ["int"]]', "another union"),
        ('["int", "int"]', "int is twice in a union"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}',
            "itself",
        ),
        ('{"type": "record", "name": "R"}', "a list of fields"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "\\udfff", "type": "int"}]}',
            "half a surrogate pair",
        ),
        ('{"type": "array", "items": "null"}', "holds nothing"),
        ('{"type": "fixed", "name": "F", "size": 0}', "no size"),
        ('{"type": "enum", "name": "E", "symbols": []}', "no symbols"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 39}', "over 38"),
        ("[]", "no types"),
        ('{"type": "array", "items":' * 70 + '"int"' + "}" * 70, "deep"),
    ],
)
def test_schemas_that_make_no_table_are_refused_with_the_reason(schema, sentence):
    with pytest.raises(SchemaError, match=sentence):
        fields_of(Schema(7, AVRO, schema))


def test_a_schema_of_types_used_twice_at_every_level_is_refused_before_it_grows():
    definitions = '{"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}'
    for level in range(1, 40):
        first = f'{{"name": "a", "type": {definitions}}}'
        second = f'{{"name": "b", "type": "R{level - 1}"}}'
        definitions = f'{{"type": "record", "name": "R{level}", "fields": [{first}, {second}]}}'
    with pytest.raises(SchemaError, match="over 5000 columns"):
        fields_of(Schema(7, AVRO, definitions))


def test_schemas_with_names_that_are_none_make_tables_all_the_same():
    fields = [{"name": "a-b", "type": {"type": "enum", "name": "E", "symbols": ["x y"]}}]
    schema = {"type": "record", "name": "R", "namespace": "my-app.events", "fields": fields}
    assert decode_both(of(schema), [b"\0"]).columns.to_pylist() == [{"a-b": "x y"}]


def test_unknown_and_misplaced_logical_types_are_ignored():
    for schema, kind in [
        ({"type": "string", "logicalType": "uuid"}, pa.large_string()),
        ({"type": "long", "logicalType": "timestamp-nanos"}, pa.int64()),
        ({"type": "int", "logicalType": "timestamp-millis"}, pa.int32()),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
            pa.large_binary(),
        ),
    ]:
        assert fields_of(of(schema)).field("value").type == kind
