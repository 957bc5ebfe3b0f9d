"""Values are held to the schemas that they name: Avro, Protobuf and JSON, whatever the bytes."""

import json
import zlib

import pytest

from broker.registry.checks import REFUSED_MAX, CheckValues, SchemaChecks, StoredSchema
from broker.registry.value_checks import why_not
from coordinator.commands.table_commands import SchemaKind
from protocol.schemas import SchemaError

RECORD = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": "string"}],
    }
)
ORDER = b"\x0e\x06Ulm"
PROTO = """
syntax = "proto3";
message Order {
  message Line { string item = 1; }
  map<string, Line> lines = 1;
  message Note { int32 n = 1; }
  string city = 2;
}
message Other { Order order = 1; }
"""
PROTO_2 = 'syntax = "proto2"; message Order { required int32 id = 1; }'
PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
}


def json_check(schema, **references):
    texts = {f"{name}.json": json.dumps(one) for name, one in references.items()}
    return why_not(SchemaKind.JSON, json.dumps(schema), texts)


def test_an_avro_value_is_read_to_its_end():
    check = why_not(SchemaKind.AVRO, RECORD, {})
    assert check(ORDER) == ""
    assert check(ORDER[:-1]) == "it ends within its 4 bytes"
    assert check(ORDER + b"x") == "1 bytes follow the value"


def test_an_avro_schema_may_name_types_of_its_references():
    holder = {"type": "array", "items": "Order"}
    check = why_not(SchemaKind.AVRO, json.dumps(holder), {"order": RECORD})
    assert check(b"\2" + ORDER + b"\0") == ""
    assert check(b"\2" + ORDER)


def test_a_protobuf_message_may_have_fields_and_types_with_the_names_of_the_runtimes_methods():
    fields = "optional bool FindInitializationErrors = 1; required int32 id = 2; optional int32 DESCRIPTOR = 3;"
    proto = f'syntax = "proto2"; message M {{ {fields} message FromString {{}} }}'
    check = why_not(SchemaKind.PROTOBUF, proto, {})
    assert check(b"\0\x08\x01\x10\x01\x18\x01") == ""
    assert check(b"\0\x08\x01") == "it lacks id"
    assert check(b"\0\xff").startswith("it is no M: ")


def test_a_protobuf_value_is_of_the_message_that_it_names():
    check = why_not(SchemaKind.PROTOBUF, PROTO, {})
    assert check(b"\0\x12\x03Ulm") == ""
    assert check(b"\2\0\x12\x03Ulm") == "", "the path (0), written out"
    assert check(b"\2\2\x0a\x05\x12\x03Ulm") == "", "the second message"
    assert check(b"\4\0\2\x08\x07") == "", "Order.Note: the entries of maps do not count"
    assert check(b"\0\x12\x09Ulm").startswith("it is no Order: ")
    assert check(b"\0\x12\x01\xff").startswith("it is no Order: "), "text is UTF-8"
    assert check(b"\0") == "", "no field is set"


@pytest.mark.parametrize("data", [b"", b"\6\0\0\0", b"\2\4", b"\2\1", b"\1", b"\x80", b"\x7e"])
def test_a_protobuf_value_without_the_path_of_a_message_is_none(data):
    check = why_not(SchemaKind.PROTOBUF, PROTO, {})
    assert check(data) == "it does not begin with the path of a message of its file"


def test_a_required_field_must_be_there():
    check = why_not(SchemaKind.PROTOBUF, PROTO_2, {})
    assert check(b"\0\x08\x01") == ""
    assert check(b"\0") == "it lacks id"


def test_a_protobuf_file_may_import_others():
    text = 'syntax = "proto3"; import "order.proto"; message Box { Order order = 1; }'
    check = why_not(SchemaKind.PROTOBUF, text, {"order.proto": PROTO})
    assert check(b"\0\x0a\x05\x12\x03Ulm") == ""
    assert check(b"\0\x0a\x05\x12\x09Ulm")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('{"name": "Ada", "age": 7, "more": 1}', ""),
        ('{"age": 7}', '"name" is a required property'),
        ('{"name": "Ada", "age": -1}', "age: -1 is less than the minimum of 0"),
        ('{"name": "Ada", "age": 1e400}', "age: "),
        ('{"name": "Ada"', "it is no JSON: "),
        ('{"name": "Ada", "age": NaN}', "it is no JSON: NaN"),
        ('"\\ud800"', "it is no JSON: "),
        ("", "it is no JSON: "),
        ("[" * 100_000, "it is nested too deeply"),
        ("9" * 5000, "it is no JSON: "),
    ],
)
def test_a_json_value_is_valid_by_its_schema(value, said):
    found = json_check(PERSON)(value.encode("utf-8", "surrogatepass"))
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_text_that_is_not_utf_8_is_no_json():
    person = '{"name": "Ada"}'
    for data in (b'{"name": "\xff"}', person.encode("utf-16"), person.encode("utf-8-sig")):
        assert json_check(PERSON)(data).startswith("it is no JSON")


def test_a_reference_of_a_json_schema_is_followed_and_nothing_else():
    holder = {"type": "array", "items": {"$ref": "person.json"}}
    check = json_check(holder, person=PERSON)
    assert check(b'[{"name": "Ada"}]') == ""
    assert check(b"[{}]") == '0: "name" is a required property'
    named = {"$id": "http://shop.example/all.json", **holder}
    assert json_check(named, person=PERSON)(b"[{}]")
    with pytest.raises(SchemaError, match="not among the references"):
        json_check({"$ref": "http://127.0.0.1:1/person.json"})


def test_the_draft_is_seven_unless_the_schema_says_another():
    four = {"minimum": 3, "exclusiveMinimum": True}
    with pytest.raises(SchemaError):
        json_check(four)
    check = json_check({"$schema": "http://json-schema.org/draft-04/schema#", **four})
    assert (check(b"3") != "", check(b"4")) == (True, "")
    # Draft 7 does not know it.
    assert json_check({"dependentRequired": {"a": ["b"]}})(b'{"a": 1}') == ""


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"items": {"$ref": "#"}}, True])
def test_schemas_that_contain_themselves_end(schema):
    assert json_check(schema)(b"[" * 500 + b"]" * 500) == ""


def stored(kind, text):
    return StoredSchema(kind, text.encode(), zlib.compress(text.encode()), ())


def test_a_question_may_be_about_values_of_several_schemas():
    schemas = (stored(SchemaKind.AVRO, RECORD), stored(SchemaKind.JSON, json.dumps(PERSON)))
    values = ((0, ORDER), (1, b"{}"), (1, b'{"name": ""}'), (0, b"{}"))
    answer = SchemaChecks().answer(CheckValues(schemas, values))
    assert answer.refused_count == 2
    assert answer.refused == (
        (1, '"name" is a required property'),
        (3, "the length at 1 is -63"),
    )


def test_of_very_many_refused_values_so_many_are_named_and_all_are_counted():
    values = ((0, b""),) * (REFUSED_MAX + 7)
    answer = SchemaChecks().answer(CheckValues((stored(SchemaKind.AVRO, RECORD),), values))
    assert (len(answer.refused), answer.refused_count) == (REFUSED_MAX, REFUSED_MAX + 7)


def test_no_value_passes_a_schema_that_cannot_be_worked_with():
    schema = stored(SchemaKind.JSON, '{"pattern": "("}')
    answer = SchemaChecks().answer(CheckValues((schema,), ((0, b"1"),)))
    ((_, reason),) = answer.refused
    assert reason.startswith("the schema cannot be worked with: ")
