"""Canonical text: what is kept of a schema."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.registry.canonical import canonical_avro
from protocol.schemas import SchemaError
from protocol.schemas.avro import Check, parse_avro

CANONICAL = [
    ("int", '"int"'),
    ('"int"', '"int"'),
    ('{"type":"int"}', '"int"'),
    ('{"type": {"type": "int"}}', '"int"'),
    ('{"logicalType":"date","type":"int"}', '{"type":"int","logicalType":"date"}'),
    ('[ "null" , "string" ]', '["null","string"]'),
    ('{"items":"long","type":"array"}', '{"type":"array","items":"long"}'),
    ('{"type":"map","values":"long","x":1}', '{"type":"map","values":"long","x":1}'),
    (
        '{"name":"a.b.F","size":4,"type":"fixed"}',
        '{"type":"fixed","name":"F","namespace":"a.b","size":4}',
    ),
    (
        '{"type":"enum","name":"E","namespace":"n","symbols":["A","B"],"default":"B","doc":"d"}',
        '{"type":"enum","name":"E","namespace":"n","doc":"d","symbols":["A","B"],"default":"B"}',
    ),
    (  # Names in the namespace of what surrounds them are short; order and aliases stay.
        """{"type":"record","namespace":"n","name":"R","doc":"what","zed":true,"fields":[
            {"type":"n.R","name":"self"},
            {"name":"f","doc":"a field","type":{"type":"fixed","name":"n.F","size":1},
             "order":"ascending","aliases":["g"],"x":[1]},
            {"name":"again","type":"F","default":"\\u00ff","order":"ignore"},
            {"name":"other","type":{"type":"enum","name":"m.E","symbols":[],"aliases":["A"]}}],
            "aliases":["Old","m.Older"]}""",
        (
            '{"type":"record","name":"R","namespace":"n","doc":"what","fields":['
            '{"name":"self","type":"R"},'
            '{"name":"f","type":{"type":"fixed","name":"F","size":1},"doc":"a field","aliases":["g"],'
            '"x":[1]},'
            '{"name":"again","type":"F","default":"ÿ","order":"ignore"},'
            '{"name":"other","type":{"type":"enum","name":"E","namespace":"m","symbols":[],'
            '"aliases":["A"]}}],'
            '"zed":true,"aliases":["Old","m.Older"]}'
        ),
    ),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_the_canonical_text_has_avros_order_and_short_names(text: str, canonical: str) -> None:
    assert canonical_avro(parse_avro(text, check=Check.DEFAULTS)) == canonical
    assert canonical_avro(parse_avro(canonical, check=Check.DEFAULTS)) == canonical


def test_references_are_not_spelled_out() -> None:
    inner = '{"type":"fixed","name":"n.F","size":1}'
    text = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":"F"}]}'
    assert canonical_avro(parse_avro(text, [inner])) == text


def test_normalizing_sorts_attributes_of_ones_own_and_nothing_else() -> None:
    text = '{"type":"record","name":"R","fields":[],"z":{"b":1,"a":2},"c":1}'
    assert canonical_avro(parse_avro(text)) == text
    sorted_text = '{"type":"record","name":"R","fields":[],"c":1,"z":{"b":1,"a":2}}'
    assert canonical_avro(parse_avro(text), normalize=True) == sorted_text


@st.composite
def avro_schemas(draw: st.DrawFn, names: list[str] | None = None) -> object:
    """Schemas as JSON values; `names` are those already given."""
    names = [] if names is None else names
    return draw(_avro(names, 3))


def _avro(names: list[str], depth: int) -> st.SearchStrategy:
    primitives = st.sampled_from(["int", "long", "float", "double", "bytes", "string", "boolean"])
    if depth == 0:
        return primitives

    @st.composite
    def some(draw: st.DrawFn) -> object:
        kind = draw(st.sampled_from(["plain", "array", "map", "union", "record", "enum", "fixed"]))
        if kind == "plain":
            return draw(st.one_of(primitives, st.sampled_from(names)) if names else primitives)
        if kind in ("array", "map"):
            inner = draw(_avro(names, depth - 1))
            return {"type": kind, "items" if kind == "array" else "values": inner}
        if kind == "union":
            branch = draw(_avro(names, depth - 1))
            return branch if isinstance(branch, list) else ["null", branch]
        name = f"N{len(names)}"
        names.append(name)
        if kind == "fixed":
            return {"type": "fixed", "name": name, "size": draw(st.integers(0, 3))}
        if kind == "enum":
            symbols = draw(st.lists(st.sampled_from("ABCD"), unique=True, min_size=1))
            default = {"default": symbols[0]} if draw(st.booleans()) else {}
            return {"type": "enum", "name": name, "symbols": symbols} | default
        count = draw(st.integers(0, 3))
        # A record is known within itself, but a value of it would then have no end.
        names.remove(name)
        fields = [
            {"name": f"f{each}", "type": draw(_avro(names, depth - 1))} for each in range(count)
        ]
        return {"type": "record", "name": f"{name}r{depth}_{len(names)}", "fields": fields}

    return some()


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_canonical_text_means_the_same_as_what_was_written(data: st.DataObject) -> None:
    value = data.draw(avro_schemas())
    try:
        schema = parse_avro(json.dumps(value), check=Check.DEFAULTS)
    except SchemaError:
        return  # A name came twice.
    text = canonical_avro(schema)
    assert canonical_avro(parse_avro(text, check=Check.DEFAULTS)) == text
    assert canonical_avro(parse_avro(json.dumps(json.loads(text), indent=3))) == text
