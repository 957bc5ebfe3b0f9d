"""Bytes are a value of an Avro schema or not; fastavro, which shares no code with it, agrees."""

import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.schemas.avro import parse_avro
from protocol.schemas.avro_values import EMPTY_ITEMS_MAX, value_check

LEAVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=9),
    "string": st.text(max_size=9),
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "n", "type": "int"}, {"name": "on", "type": ["null", "Tree"]}],
}


def why_not(schema, data):
    return value_check(parse_avro(json.dumps(schema)))(data)


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@st.composite
def schemas_with_values(draw, depth=3, name="N"):
    """A schema, and what draws values of it."""
    kind = draw(st.sampled_from(["leaf", "array", "map", "record", "union", "enum", "fixed"]))
    if kind == "leaf" or depth == 0:
        leaf = draw(st.sampled_from(sorted(LEAVES)))
        return leaf, LEAVES[leaf]
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from("AB")
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    inner, values = draw(schemas_with_values(depth - 1, f"{name}a"))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        keys = st.text(max_size=3)
        return {"type": "map", "values": inner}, st.dictionaries(keys, values, max_size=3)
    if kind == "union" and not isinstance(inner, list) and inner != "null":
        return ["null", inner], st.none() | values
    other, more = draw(schemas_with_values(depth - 1, f"{name}b"))
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": other}]
    both = st.fixed_dictionaries({"a": values, "b": more})
    return {"type": "record", "name": name, "fields": fields}, both


@given(schemas_with_values(), st.data())
def test_what_fastavro_writes_is_a_value_and_no_part_of_it_is(drawn, data):
    schema, values = drawn
    value = written(schema, data.draw(values))
    assert why_not(schema, value) == ""
    assert why_not(schema, value + b"\0") == "1 bytes follow the value"
    if value:
        assert why_not(schema, value[:-1])


@given(schemas_with_values(), st.data())
def test_what_passes_is_read_by_fastavro_to_its_end(drawn, data):
    schema, values = drawn
    value = bytearray(written(schema, data.draw(values)))
    for _ in range(data.draw(st.integers(0, 3))):
        if value:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    if why_not(schema, bytes(value)) == "":
        stream = io.BytesIO(bytes(value))
        fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
        assert stream.tell() == len(value)


@pytest.mark.parametrize(
    ("schema", "data", "said"),
    [
        ("boolean", "02", "the byte 2 at 0 is neither true nor false"),
        ("int", "ffffffff1f", "the number at 0 is longer than an int"),
        ("int", "ffffffff0f", ""),
        ("int", "808080808000", "the number at 0 is longer than an int"),
        ("long", "ff" * 9 + "03", "the number at 0 is longer than a long"),
        ("long", "ff" * 9 + "01", ""),
        ("bytes", "01", "the length at 0 is -1"),
        ("string", "04ff", "it ends within its 2 bytes"),
        ("string", "02ff", "the text at 1 is not UTF-8"),
        ("string", "04c3b6", ""),
        (["null", "int"], "04", "the branch 2 at 0 is none of the union's 2"),
        (["null", "int"], "01", "the branch -1 at 0 is none of the union's 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "02", "the number at 0 is no symbol of E"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "01", "the number at 0 is no symbol of E"),
        ({"type": "fixed", "name": "F", "size": 4}, "000000", "it ends within its 3 bytes"),
        # A block of two items says its size: right, too large, below 0.
        ({"type": "array", "items": "int"}, "0304020400", ""),
        ({"type": "array", "items": "int"}, "0306020400", "the block at 2 has 2 bytes, it says 3"),
        ({"type": "array", "items": "int"}, "0301020400", "a block before 2 says that it has -1 bytes"),
        ({"type": "array", "items": "int"}, "03040204", "it ends within its 4 bytes"),
        ({"type": "map", "values": "int"}, "0202610200", ""),
    ],
)  # fmt: skip
def test_why_bytes_are_no_value(schema, data, said):
    found = why_not(schema, bytes.fromhex(data))
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_items_without_bytes_are_bounded():
    schema = {"type": "array", "items": "null"}
    long = as_long(EMPTY_ITEMS_MAX)
    assert why_not(schema, long + b"\0") == ""
    assert "empty items" in why_not(schema, as_long(EMPTY_ITEMS_MAX + 1) + b"\0")
    assert "empty items" in why_not(schema, as_long(1 << 60) + b"\0")
    assert "empty items" in why_not(schema, long + b"\2\0")


def as_long(value):
    return written("long", value)


def test_a_value_that_is_nested_without_end_is_none_and_one_of_some_depth_is():
    tree = {"n": 1, "on": None}
    for _ in range(50):
        tree = {"n": 1, "on": tree}
    assert why_not(TREE, written(TREE, tree)) == ""
    assert why_not(TREE, b"\2\2" * 100_000 + b"\2\0") == "it is nested too deeply"
