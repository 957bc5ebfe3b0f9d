"""Avro values as plain JSON, and back: all of a value is in its JSON, and what is no value is told with its place."""

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.schemas.avro import Check, parse_avro
from protocol.schemas.avro_read import value_reader
from protocol.schemas.avro_write import NoValueError, value_writer
from tests.protocol.schemas.test_avro_values import TREE, schemas_with_values, written

CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIXED_CENTS = {"type": "fixed", "name": "C", "size": 3} | {
    "logicalType": "decimal",
    "precision": 6,
    "scale": 2,
}
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
A = {"type": "record", "name": "A", "namespace": "shop", "fields": [{"name": "a", "type": "int"}]}
B = {"type": "record", "name": "B", "namespace": "shop", "fields": [{"name": "b", "type": "int"}]}
NAMESAKE = {"type": "record", "name": "N", "fields": [{"name": "N", "type": "int"}]}


def parsed(schema):
    return parse_avro(json.dumps(schema), check=Check.SHAPE)


def read(schema, data):
    return value_reader(parsed(schema))(data)


def write(schema, value):
    return value_writer(parsed(schema))(value)


@given(schemas_with_values(), st.data())
def test_what_fastavro_writes_is_the_same_after_it_was_json(drawn, data):
    schema, values = drawn
    sent = written(schema, data.draw(values))
    text = json.dumps(read(schema, sent), allow_nan=False)
    assert write(schema, json.loads(text)) == sent


@given(schemas_with_values(), st.data())
def test_damaged_bytes_are_json_or_no_value(drawn, data):
    schema, values = drawn
    value = bytearray(written(schema, data.draw(values)))
    for _ in range(data.draw(st.integers(1, 3))):
        if value:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    found = None
    with contextlib.suppress(ValueError):
        found = read(schema, bytes(value))
    assert json.dumps(found, allow_nan=False)


SHOWN = [
    ("bytes", b"\x04\x00\xff", "\0ÿ"),
    ({"type": "fixed", "name": "F", "size": 2}, b"\x41\xe9", "Aé"),
    ("double", struct.pack("<d", float("nan")), "NaN"),
    ("float", struct.pack("<f", float("-inf")), "-Infinity"),
    ("float", struct.pack("<f", 0.1), 0.1),
    ("double", struct.pack("<d", 0.1), 0.1),
    (CENTS, b"\x04\x04\xe2", "12.50"),
    (CENTS, b"\x02\xff", "-0.01"),
    (CENTS, b"\x02\x00", "0.00"),
    (FIXED_CENTS, b"\xff\xff\x9c", "-1.00"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x63", "99"),
    ({"type": "long", "logicalType": "timestamp-millis"}, b"\xd0\x0f", 1000),
    ({"type": "int", "logicalType": "date"}, b"\x02", 1),
    (UUID, bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ({"type": "string", "logicalType": "uuid"}, b"\x02x", "x"),
    (KIND, b"\x02", "B"),
    ({"type": "map", "values": "int"}, b"\x02\x02k\x02\x00", {"k": 1}),
    ({"type": "array", "items": "string"}, b"\x04\x02x\x02y\x00", ["x", "y"]),
    (["null", "string"], b"\x00", None),
    (["null", "string"], b"\x02\x02x", "x"),
    (["null", "int", "string", KIND], b"\x04\x02x", {"string": "x"}),
    (["null", "int", "string", KIND], b"\x06\x02", {"Kind": "B"}),
    (["null", "int", "string", KIND], b"\x00", None),
    (["null", "int", "long"], b"\x04\x02", {"long": 1}),
    (["null", "double", "string"], b"\x02" + struct.pack("<d", 0.5), {"double": 0.5}),
    ([A, B], b"\x02\x02", {"shop.B": {"b": 1}}),
    (["null", A], b"\x02\x02", {"a": 1}),
    ([{"type": "map", "values": "int"}, "null"], b"\x00\x02\x06map\x02\x00", {"map": 1}),
    (["null", NAMESAKE], b"\x02\x02", {"N": 1}),
    (TREE, b"\x02\x02\x04\x00", {"n": 1, "on": {"n": 2, "on": None}}),
]


@pytest.mark.parametrize(("schema", "data", "value"), SHOWN)
def test_bytes_are_this_json_and_it_is_these_bytes(schema, data, value):
    assert read(schema, data) == value
    assert write(schema, value) == data


@pytest.mark.parametrize(
    ("schema", "value", "same_as"),
    [
        (["null", "string"], {"string": "x"}, "x"),
        (["null", A], {"shop.A": {"a": 1}}, {"a": 1}),
        (["null", "int", "long"], 5, {"int": 5}),
        (["null", "int", "long"], 1 << 40, {"long": 1 << 40}),
        (["null", "string", KIND], "B", {"string": "B"}),
        (["null", CENTS], 12.5, "12.50"),
        (CENTS, 12, "12.00"),
        (CENTS, "1.25e1", "12.50"),
        ("int", 5.0, 5),
        ("double", 5, 5.0),
        (UUID, "".join(map(chr, range(16))), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ],
)
def test_what_is_written_in_other_words_is_the_same(schema, value, same_as):
    assert write(schema, value) == write(schema, same_as)


def test_a_field_that_is_missing_has_its_default():
    defaults = {
        "n": ("long", 7),
        "cents": (CENTS, "\x04\xe2"),
        "kind": (["null", KIND], None),
        "named": ([B, "null", A], {"b": 3}),
        "flags": ({"type": "array", "items": "boolean"}, [True]),
    }
    fields = [
        {"name": name, "type": one, "default": said} for name, (one, said) in defaults.items()
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    assert read(schema, write(schema, {"n": 1})) == {
        "n": 1,
        "cents": "12.50",
        "kind": None,
        "named": {"shop.B": {"b": 3}},
        "flags": [True],
    }


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "lines", "type": {"type": "array", "items": ["null", A]}, "default": []},
        {"name": "by", "type": {"type": "map", "values": KIND}, "default": {}},
    ],
}


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (ORDER, {"id": "x"}, 'id: "x" is no int'),
        (ORDER, {"id": True}, "id: true is no int"),
        (ORDER, {"id": 1 << 31}, "id: 2147483648 is no int"),
        (ORDER, {}, "id: it is missing, and has no default"),
        (ORDER, {"id": 1, "ID": 1}, "Order has no field 'ID'"),
        (ORDER, [], "[] is no record Order"),
        (ORDER, {"id": 1, "lines": [None, {"a": 1.5}]}, "lines.1.a: 1.5 is no int"),
        (ORDER, {"id": 1, "lines": ["x"]}, 'lines.0: "x" is no one of null, shop.A'),
        (ORDER, {"id": 1, "by": {"k": "C"}}, 'by.k: "C" is no symbol of Kind (A, B)'),
        ("bytes", "€", "'€' is no byte: bytes has a character from U+0000 to U+00FF for each byte"),
        (UUID, "x", "1 bytes are no fixed U, which has 16"),
        (CENTS, "1.234", '"1.234" is no decimal of 9 digits, 2 of them behind the point'),
        (CENTS, "x", '"x" is no decimal of 9 digits, 2 of them behind the point'),
        (CENTS, "9" * 5000, '"99999999999999999999999999999999999999999999999999999999999… is no '),
        ("double", float("inf"), "Infinity is no double"),
        ("float", 1e40, "1e+40 is no float"),
        ("string", "\ud800", "it has half of a surrogate pair, which is no text"),
        ([A, B], {"a": 1}, 'it does not say which of shop.A, shop.B it is: {"shop.A": …}'),
        ([A, B], {"shop.B": {"a": 1}}, "shop.B has no field 'a'"),
        (["int", "long"], "x", '"x" is no one of int, long'),
    ],
)
def test_what_is_no_value_is_told_with_its_place(schema, value, said):
    with pytest.raises(NoValueError) as refused:
        write(schema, value)
    assert str(refused.value).startswith(said)


def test_what_is_nested_beyond_all_stacks_is_refused_both_ways():
    tree = None
    for number in range(5_000):
        tree = {"n": number, "on": tree}
    with pytest.raises(NoValueError, match="it is nested too deeply"):
        write(TREE, tree)
    with pytest.raises(ValueError, match="it is nested too deeply"):
        read(TREE, b"\2\2" * 100_000 + b"\2\0")


@pytest.mark.parametrize(
    ("schema", "data", "said"),
    [
        ("string", b"\x02\xff", "the text before 2 is not UTF-8"),
        ("string", b"\x04x", "it ends within its 2 bytes"),
        ("int", b"\x02\x02", "1 bytes follow the value"),
        (KIND, b"\x04", "the number at 0 is no symbol of Kind, which has 2"),
        (["null"], b"\x02", "the branch 1 at 0 is none of the union's 1"),
        (CENTS, b"\x0a\x7f\xff\xff\xff\xff", "a decimal has over 9 digits"),
        ({"type": "array", "items": "null"}, b"\x82\x80\x08\x00", "over 65536 empty items"),
        (
            {"type": "array", "items": {"type": "array", "items": "null"}},
            b"\x06" + b"\x80\x80\x04\x00" * 3 + b"\x00",
            "over 65536 empty items",
        ),
    ],
)
def test_bytes_that_are_no_value_are_refused(schema, data, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        read(schema, data)
