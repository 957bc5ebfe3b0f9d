"""Avro text: what it says, and what is none."""

import json

import pytest

from protocol.schemas import SchemaError
from protocol.schemas.avro import AvroSchema, Check, Named, parse_avro


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
        parse_avro(field(avro, default=default), check=Check.DEFAULTS)
    for default in bad:
        with pytest.raises(SchemaError, match="default"):
            parse_avro(field(avro, default=default), check=Check.DEFAULTS)
        parse_avro(field(avro, default=default))  # One that was taken before stays readable.


def test_references_define_names() -> None:
    inner = '{"type":"fixed","name":"n.F","size":1}'
    text = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":"F"}]}'
    schema = parse_avro(text, [inner])
    assert schema.referred == ("n.F",)
    assert root(schema).fields[0].type.full_name == "n.F"
    with pytest.raises(SchemaError, match=r"n\.F"):
        parse_avro(text)
    with pytest.raises(SchemaError, match="redefine"):
        parse_avro(inner, [inner])


def root(schema: AvroSchema) -> Named:
    assert isinstance(schema.root, Named)
    return schema.root


ENUM = '{"type":"enum","name":"E",'


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"record","name":"R","namespace":"my-app.events","fields":[]}',
        '{"type":"record","name":"1R","fields":[{"name":"a-b","type":"int"}]}',
        '{"type":"record","name":"string","namespace":"a","fields":[],"aliases":"A"}',
        ENUM + '"symbols":["a-b","a-b"]}',
        ENUM + '"symbols":["A"],"default":"B"}',
        field('"int"', order="up", default="x"),
    ],
)
def test_what_values_do_not_need_is_checked_only_when_asked_for(text: str) -> None:
    parse_avro(text, check=Check.SHAPE)
    with pytest.raises(SchemaError, match=r"\w"):
        parse_avro(text, check=Check.NAMES)
