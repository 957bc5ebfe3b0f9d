"""Text of .proto files becomes the descriptors that protoc would make; what is none is refused."""

import pytest

from protocol.schemas import SchemaError
from protocol.schemas.proto_text import load_files, parse_proto

FILE = """
/* A file with everything */
syntax = "proto3";  // and comments
package a.b;
import public "google/protobuf/timestamp.proto";
import 'other/x.proto';
option java_package = "x";
option (my.opt) = { a: 1 b: [1, 2] c { d: "}" } };
message Order {
  option deprecated = true;
  reserved 4, 6 to 9; reserved "foo";
  message Item { string name = 1 [json_name = "n1", (x.y).z = {a: 1}]; optional int32 n = 0x2; }
  enum Kind { option allow_alias = true; A = 0; B = 1 [deprecated = true]; C = -5; D = 1; }
  repeated Item items = 1 [packed = false]; Kind kind = 2; map<string, Item> item_map = 3;
  oneof choice { string s = 10; .a.b.Order.Item it = 11; }
  google.protobuf.Timestamp ts = 12; x.Thing message = 13; optional bool reserved_ = 14;
};
extend google.protobuf.MessageOptions { string ours = 50000; }
service S { rpc A(Order) returns (stream Order) { option x = 1; } rpc B(Order) returns (Order); }
"""
OTHER = """syntax = "proto2"; package x;
message Thing { required string a = 1 [default = "x\\n\\101\\x41"]; optional double d = 2 [default = -inf];
  extensions 100 to 199, 500 to max; }"""


def test_a_file_with_everything_is_read():
    _, file = load_files(FILE, {"other/x.proto": OTHER})
    order = file.message_types_by_name["Order"]
    fields = [
        (one.name, one.number, one.has_presence, bool(one.is_repeated)) for one in order.fields
    ]
    assert fields == [
        ("items", 1, False, True),
        ("kind", 2, False, False),
        ("item_map", 3, False, True),
        ("s", 10, True, False),
        ("it", 11, True, False),
        ("ts", 12, True, False),
        ("message", 13, True, False),
        ("reserved_", 14, True, False),
    ]
    assert order.nested_types_by_name["ItemMapEntry"].GetOptions().map_entry
    assert order.enum_types_by_name["Kind"].values_by_name["C"].number == -5
    assert [one.name for one in order.oneofs] == ["choice", "_reserved_"]
    assert order.fields_by_name["it"].message_type.full_name == "a.b.Order.Item"
    thing = order.fields_by_name["message"].message_type
    assert thing.fields_by_name["a"].default_value == "x\nAA"
    assert order.nested_types_by_name["Item"].fields_by_name["name"].json_name == "n1"


def test_a_file_without_a_syntax_is_proto2():
    assert parse_proto("message A { optional int32 a = 1; }", "a").syntax == "proto2"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("message A {", "ends too early"),
        ("message A }", "line 1: '}' where '{' belongs"),
        ("\n\nmassage A {}", "line 3: 'massage' begins nothing"),
        ("message A { int32 a = 1; }", "has no label"),
        ('syntax = "proto3"; message A { int32 a = 0; }', "no number of a field"),
        ('syntax = "proto3"; message A { int32 a = 1.5; }', "no whole number"),
        ('syntax = "proto3"; message A { int32 a = 1 }', "where ';' belongs"),
        ('syntax = "proto3"; enum E { A = 99999999999; }', "no number of an enum"),
        ("message A { optional group G = 1 { } }", "groups are not read"),
        ('edition = "2023";', "only the syntaxes"),
        ("message A { \x01 }", "is not Protobuf"),
        ("message A { " * 70, "deep"),
    ],
)
def test_what_is_no_proto_file_is_refused_with_its_line(text, sentence):
    with pytest.raises(SchemaError, match=sentence):
        parse_proto(text, "a")


@pytest.mark.parametrize(
    ("text", "references", "sentence"),
    [
        ('import "b";', {}, "schema.proto imports b, which is not known"),
        ('import "b";', {"b": 'import "c";', "c": 'import "b";'}, "b imports itself"),
        ("message A { optional B b = 1; }", {}, "no valid Protobuf file"),
        ("message A { optional int32 a = 1; optional int32 b = 1; }", {}, "no valid Protobuf file"),
    ],
)
def test_files_that_do_not_hang_together_are_refused(text, references, sentence):
    with pytest.raises(SchemaError, match=sentence):
        load_files(text, references)


@pytest.mark.parametrize("kind", ["string", "bytes", "int32"])
def test_a_default_of_a_repeated_field_is_refused_as_protoc_does(kind):
    """The library that resolves names dies of it."""
    with pytest.raises(SchemaError, match="repeated, so it has no default"):
        load_files(f"message m {{ repeated {kind} a = 1 [default = 1]; }}", {})


def test_a_number_of_thousands_of_digits_is_refused():
    with pytest.raises(SchemaError, match="no number of 64 bits"):
        parse_proto(f"enum e {{ a = 0x{'f' * 5000}; }}", "f")


CONNECT = """
syntax = "proto3";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Value {
  option (confluent.message_meta) = { doc: "a row" };
  confluent.type.Decimal price = 1 [(confluent.field_meta) = { params: [
    { value: "2", key: "scale" }, { value: "10", key: "precision" } ] }];
  int32 small = 2 [(confluent.field_meta) = { params: { key: "connect.type", value: "int16" } }];
  confluent.Meta meta = 3;
}
"""


def test_what_kafka_connect_imports_is_known_without_references():
    _, file = load_files(CONNECT, {})
    fields = file.message_types_by_name["Value"].fields_by_name
    assert [(one.name, one.number) for one in fields["price"].message_type.fields] == [
        ("value", 1),
        ("precision", 2),
        ("scale", 3),
    ]
    assert fields["meta"].message_type.full_name == "confluent.Meta"


def test_a_reference_stands_before_what_is_known_by_itself():
    own = 'syntax = "proto3"; package confluent.type; message Decimal { string text = 1; }'
    _, file = load_files(CONNECT, {"confluent/type/decimal.proto": own})
    price = file.message_types_by_name["Value"].fields_by_name["price"]
    assert [one.name for one in price.message_type.fields] == ["text"]
