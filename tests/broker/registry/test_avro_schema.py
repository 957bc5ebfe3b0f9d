"""Avro text: what is kept of it, and what is none."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.registry.avro_schema import canonical_avro, parse_avro
from broker.registry.differences import SchemaError

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
    assert canonical_avro(parse_avro(text, strict=True)) == canonical
    assert canonical_avro(parse_avro(canonical, strict=True)) == canonical


def field(avro: str, **more: object) -> str:
    item = {"name": "f", "type": json.loads(avro)} | more
    return json.dumps({"type": "record", "name": "R", "fields": [item]})


REFUSED = [
    "",
    "{",
    "7",
    "nothing",
    '{"type":"recrd"}',
    '{"name":"R"}',
    '{"type":"record","name":"R"}',
    '{"type":"record","fields":[]}',
    '{"type":"record","name":"1R","fields":[]}',
    '{"type":"record","name":"a..R","fields":[]}',
    '{"type":"record","name":"int","fields":[]}',
    '{"type":"record","name":"R","fields":[{"name":"a"}]}',
    '{"type":"record","name":"R","fields":[{"type":"int"}]}',
    '{"type":"record","name":"R","fields":[{"name":"a-b","type":"int"}]}',
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
    '{"type":"enum","name":"E"}',
    '{"type":"enum","name":"E","symbols":["A","A"]}',
    '{"type":"enum","name":"E","symbols":["A-B"]}',
    '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
    '{"type":"fixed","name":"F"}',
    '{"type":"fixed","name":"F","size":-1}',
    '{"type":"fixed","name":"F","size":true}',
    '{"type":"array"}',
    '{"type":"map","items":"int"}',
    '["int","int"]',
    '["int",["string"]]',
    '[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]',
    '["null",{"type":"array","items":"int"},{"type":"array","items":"string"}]',
    field('"int"', order="up"),
    field('"int"', aliases="a"),
    '{"type":"array","items":' * 120 + '"int"' + "}" * 120,
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_schema_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(SchemaError, match=r"\w"):
        parse_avro(text)


@pytest.mark.parametrize(
    ("avro", "good", "bad"),
    [
        ('"null"', [None], [0, "", False]),
        ('"boolean"', [True], [None, 1]),
        ('"int"', [0, -(1 << 31)], [1 << 31, 0.5, True, "1", None]),
        ('"long"', [1 << 62], [1 << 63, "1"]),
        ('"double"', [0, 0.5, "NaN"], ["x", True, None]),
        ('"bytes"', ["\u00ff"], [1]),
        ('["null","int"]', [None, 1], ["x"]),
        ('["int","null"]', [None, 1], ["x"]),
        ('{"type":"array","items":"int"}', [[], [1]], [["x"], {}, None]),
        ('{"type":"map","values":"int"}', [{}, {"a": 1}], [{"a": "x"}, []]),
        ('{"type":"enum","name":"E","symbols":["A"]}', ["A"], ["B", None]),
        (
            (
                '{"type":"record","name":"I","fields":[{"name":"a","type":"int"},'
                '{"name":"b","type":"int","default":1}]}'
            ),
            [{"a": 1}, {"a": 1, "b": 2}],
            [{}, {"b": 1}, {"a": "x"}, None],
        ),
    ],
)
def test_defaults_of_new_schemas_are_values_of_their_types(
    avro: str, good: list, bad: list
) -> None:
    for default in good:
        parse_avro(field(avro, default=default), strict=True)
    for default in bad:
        with pytest.raises(SchemaError, match="default"):
            parse_avro(field(avro, default=default), strict=True)
        parse_avro(field(avro, default=default))  # One that was taken before stays readable.


def test_references_define_names_and_are_not_spelled_out() -> None:
    inner = '{"type":"fixed","name":"n.F","size":1}'
    text = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":"F"}]}'
    assert canonical_avro(parse_avro(text, [inner])) == text
    with pytest.raises(SchemaError, match=r"n\.F"):
        parse_avro(text)
    with pytest.raises(SchemaError, match="redefine"):
        parse_avro(inner, [inner])


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
        schema = parse_avro(json.dumps(value), strict=True)
    except SchemaError:
        return  # A name came twice.
    text = canonical_avro(schema)
    assert canonical_avro(parse_avro(text, strict=True)) == text
    assert canonical_avro(parse_avro(json.dumps(json.loads(text), indent=3))) == text
