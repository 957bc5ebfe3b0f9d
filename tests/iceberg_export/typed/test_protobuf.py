"""Protobuf: what the runtime writes is read, fast and by the reference alike, also broken."""

import base64
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iceberg_export.typed import proto_schema
from iceberg_export.typed.decode_values import KnownMessages, decode
from iceberg_export.typed.fields import PROTOBUF, Schema, SchemaError, fields_of
from iceberg_export.typed.framing import frame
from iceberg_export.typed.proto_schema import read_protobuf
from protocol.schemas.protobuf import parse_protobuf
from tests.iceberg_export.typed.helpers import column, decode_both

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  string name = 1; optional int32 age = 2; repeated sint64 numbers = 3;
  map<string, Item> items = 4; map<uint32, Kind> kinds = 20;
  enum Kind { NONE = 0; SOME = 1; LESS = -3; }
  Kind kind = 5; google.protobuf.Timestamp at = 6; google.protobuf.StringValue note = 7;
  oneof choice { bool yes = 8; uint64 many = 9; Item one = 10; }
  repeated Item list = 11; repeated string tags = 12; repeated Kind some = 13;
  Empty empty = 14; double price = 15; float ratio = 16; fixed32 f = 17; sfixed64 g = 18;
  bytes raw = 19; sint32 z = 21; repeated google.protobuf.Timestamp times = 22;
  uint32 u = 23; int64 big = 24; fixed64 h = 25; repeated float floats = 26;
  repeated google.protobuf.Int32Value boxes = 27;
  message Empty {}
}
message Item { int32 count = 1; optional string label = 2; repeated int32 parts = 3 [packed=false]; }
"""
OLD = """
syntax = "proto2";
message Old {
  enum Kind { A = 1; B = 2; }
  required int32 id = 1; optional string text = 2; optional Kind kind = 3; repeated Kind kinds = 4;
  optional Inner inner = 5;
  message Inner { required string x = 1; optional bool y = 2 [default = true]; }
}
"""
order, old = Schema(7, PROTOBUF, ORDER), Schema(8, PROTOBUF, OLD)
Order, Old = (
    message_factory.GetMessageClass(read_protobuf(one).descriptor) for one in (order, old)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
kinds = st.sampled_from([0, 1, -3, 9])
items = st.fixed_dictionaries(
    {}, optional={"count": int32s, "label": texts, "parts": st.lists(int32s, max_size=3)}
)
times = st.fixed_dictionaries(
    {}, optional={"seconds": st.integers(-10, 1 << 38), "nanos": st.integers(-1, 10**9)}
)
orders = st.fixed_dictionaries(
    {},
    optional={
        "name": texts,
        "age": int32s,
        "numbers": st.lists(int64s, max_size=3),
        "items": st.dictionaries(texts, items, max_size=3),
        "kinds": st.dictionaries(st.integers(0, (1 << 32) - 1), kinds, max_size=3),
        "kind": kinds,
        "at": times,
        "note": texts.map(lambda one: {"value": one}),
        "yes": st.booleans(),
        "many": st.integers(0, (1 << 64) - 1),
        "one": items,
        "list": st.lists(items, max_size=3),
        "tags": st.lists(texts, max_size=3),
        "some": st.lists(kinds, max_size=3),
        "empty": st.just({}),
        "price": st.floats(),
        "ratio": st.floats(width=32),
        "f": st.integers(0, (1 << 32) - 1),
        "g": int64s,
        "raw": st.binary(max_size=5),
        "z": int32s,
        "times": st.lists(times, max_size=2),
        "u": st.integers(0, (1 << 32) - 1),
        "big": int64s,
        "h": st.integers(0, (1 << 64) - 1),
        "floats": st.lists(st.floats(width=32), max_size=3),
        "boxes": st.lists(int32s.map(lambda one: {"value": one}), max_size=2),
    },
)
olds = st.fixed_dictionaries(
    {"id": int32s},
    optional={
        "text": texts,
        "kind": st.sampled_from([1, 2]),
        "kinds": st.lists(st.sampled_from([1, 2]), max_size=3),
        "inner": st.fixed_dictionaries({"x": texts}, optional={"y": st.booleans()}),
    },
)


@st.composite
def written(draw, messages):
    """Serialized, sometimes in two pieces, sometimes damaged."""
    raw = b"".join(draw(st.lists(messages, min_size=1, max_size=2)))
    match draw(st.sampled_from(["whole", "whole", "cut", "changed", "more"])):
        case "cut":
            return raw[: draw(st.integers(0, len(raw)))]
        case "changed" if raw:
            at = draw(st.integers(0, len(raw) - 1))
            return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
        case "more":
            return raw + draw(st.binary(max_size=6))
    return raw


def serialized(kind, values):
    return values.map(lambda one: kind(**one).SerializeToString())


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(written(serialized(Order, orders)), min_size=1, max_size=5))
def test_values_of_proto3_are_read_fast_as_by_the_reference(payloads):
    decode_both(order, [*payloads, None])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(written(serialized(Old, olds)), min_size=1, max_size=5))
def test_values_of_proto2_are_read_fast_as_by_the_reference(payloads):
    decode_both(old, [*payloads, None])


def test_every_type_becomes_its_column():
    message = Order(name="hé", numbers=[-1, 2], kind=9, many=(1 << 64) - 1, tags=["a", ""])
    message.items["b"].count = 2
    message.items["a"].label = ""
    message.kinds[4_000_000_000] = -3
    message.at.seconds, message.at.nanos = 1_790_000_000, 123_456_789
    message.note.value = ""
    message.list.add(parts=[1, 2])
    message.list.add()
    message.empty.SetInParent()
    message.f, message.z, message.raw, message.price = 4_000_000_000, -5, b"\xff", 0.1
    (row,) = decode_both(order, [message.SerializeToString()]).columns.to_pylist()
    assert row["at"] == datetime.fromtimestamp(1_790_000_000, UTC).replace(microsecond=123_456)
    said = {
        "name": "hé",
        "age": None,
        "numbers": [-1, 2],
        "kind": "9",
        "many": Decimal((1 << 64) - 1),
        "yes": None,
        "one": None,
        "tags": ["a", ""],
        "kinds": [(4_000_000_000, "LESS")],
        "items": [
            ("a", {"count": 0, "label": "", "parts": []}),
            ("b", {"count": 2, "label": None, "parts": []}),
        ],
        "note": "",
        "list": [
            {"count": 0, "label": None, "parts": [1, 2]},
            {"count": 0, "label": None, "parts": []},
        ],
        "empty": True,
        "f": 4_000_000_000,
        "z": -5,
        "raw": b"\xff",
        "price": 0.1,
        "some": [],
        "times": [],
    }
    assert {name: row[name] for name in said} == said


def test_an_empty_message_has_zeros_and_a_tombstone_nulls():
    decoded = decode_both(old, [b"\x08\x01", None])
    assert decoded.columns.to_pylist() == [
        {"id": 1, "text": None, "kind": None, "kinds": [], "inner": None},
        {"id": None, "text": None, "kind": None, "kinds": None, "inner": None},
    ]


@pytest.mark.parametrize(
    ("schema", "payload", "sentence"),
    [
        (order, b"\x0a\x02\xff\xff", "no such Protobuf message"),
        (order, b"\x0a\x05a", "no such Protobuf message"),
        (order, b"\x32\x06\x10\x80\x94\xeb\xdc\x03", "outside the years"),
        (old, b"", "lacks a required field"),
        (old, b"\x08\x01\x12\x01\xff", "not UTF-8"),
    ],
)
def test_what_a_schema_does_not_allow_is_poison_with_its_reason(schema, payload, sentence):
    ((row, code, message, schema_id),) = decode_both(schema, [payload]).bad_values
    assert (row, code, schema_id) == (0, "UNDECODABLE", schema.schema_id)
    assert sentence in message


def test_structs_become_json_text():
    text = 'syntax = "proto3"; import "google/protobuf/struct.proto"; message A { google.protobuf.Struct s = 1; }'
    schema = Schema(7, PROTOBUF, text)
    message = message_factory.GetMessageClass(read_protobuf(schema).descriptor)()
    message.s["b"], message.s["a"] = 1, [None, "x"]
    decoded = decode_both(schema, [message.SerializeToString(), b""])
    assert decoded.columns["s"].to_pylist() == ['{"a":[null,"x"],"b":1.0}', None]


def test_each_message_of_a_file_is_decoded_as_itself_if_the_table_has_its_fields():
    text = """syntax = "proto3";
      message A { int32 a = 1; map<string, string> m = 3; message B { int32 a = 1; } message C { int32 c = 1; } }
      message D { int64 a = 1; }"""
    schema = Schema(7, PROTOBUF, text)
    target = fields_of(schema).append(pa.field("more", pa.int32()))
    values = [frame(7, b"\x08\x05", path) for path in [(0,), (0, 0), (0, 1), (1,), (2,), (0, 2)]]
    decoded = decode(column(values), "protobuf", {7: schema}, target=target)
    assert decoded.columns["a"].to_pylist() == [5, 5, None, None, None, None]
    assert [(one.row, one.code) for one in decoded.bad_values] == [
        (2, "INCOMPATIBLE"),
        (3, "INCOMPATIBLE"),
        (4, "SCHEMA_INVALID"),
        (5, "SCHEMA_INVALID"),
    ]
    # For these the target may become wider; what is no message at all is nobody's to find out.
    assert decoded.unknown == {(7, (0, 1)), (7, (1,))}
    known = KnownMessages({(7, (1,))}, {(7, (0, 1)): ("CODE", "because")})
    again = decode(column(values), "protobuf", {7: schema}, known=known, target=target)
    assert again.unknown == set()
    assert [one.code for one in again.bad_values[:2]] == ["CODE", "INCOMPATIBLE"]
    assert fields_of(schema, (1,)).field("a").type == pa.int64()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('syntax = "proto3"; message A { A a = 1; }', "A contains itself"),
        ('syntax = "proto3"; message A { B b = 1; }', "couldn't resolve name 'B'"),
        ('syntax = "proto3"; import "other.proto";', "imports other.proto, which is not known"),
        ('syntax = "proto3";', r"no message \[0\]"),
    ],
)
def test_schemas_that_make_no_table_are_refused_with_the_reason(text, sentence):
    with pytest.raises(SchemaError, match=sentence):
        fields_of(Schema(7, PROTOBUF, text))


def test_a_schema_that_was_registered_as_a_descriptor_is_read():
    descriptor = read_protobuf(Schema(7, PROTOBUF, 'syntax = "proto3"; message A { int32 a = 1; }'))
    text = base64.b64encode(descriptor.descriptor.file.serialized_pb).decode()
    assert decode_both(Schema(7, PROTOBUF, text), [b"\x08\x05"]).columns.to_pylist() == [{"a": 5}]


def test_imports_are_found_among_the_references():
    other = 'syntax = "proto3"; package o; message B { int32 b = 1; }'
    text = 'syntax = "proto3"; import "dir/other.proto"; message A { o.B inner = 1; }'
    schema = Schema(7, PROTOBUF, text, {"dir/other.proto": other})
    assert decode_both(schema, [b"\x0a\x02\x08\x07"]).columns.to_pylist() == [{"inner": {"b": 7}}]


def test_of_two_fields_of_a_oneof_the_later_counts_and_pieces_of_a_message_are_merged():
    first = Order(yes=True, one=None).SerializeToString()
    second = Order(many=5).SerializeToString()
    third = (
        Order(one={"count": 1}).SerializeToString() + Order(one={"label": "x"}).SerializeToString()
    )
    decoded = decode_both(order, [first + second, second + first, second + third])
    rows = decoded.columns.select(["yes", "many", "one"]).to_pylist()
    assert rows == [
        {"yes": None, "many": Decimal(5), "one": None},
        {"yes": True, "many": None, "one": None},
        {"yes": None, "many": None, "one": {"count": 1, "label": "x", "parts": []}},
    ]


def test_an_entry_of_a_map_without_key_and_value_has_empty_ones():
    decoded = decode_both(order, [b"\x22\x00", b"\xa2\x01\x00"])
    assert decoded.columns["items"].to_pylist() == [
        [("", {"count": 0, "label": None, "parts": []})],
        [],
    ]
    assert decoded.columns["kinds"].to_pylist() == [[], [(0, "NONE")]]


def test_a_file_is_read_once_however_many_messages_records_name_that_it_does_not_have(monkeypatch):
    read = []

    def counted(text, references):
        read.append(text)
        return parse_protobuf(text, references)

    monkeypatch.setattr(proto_schema, "parse_protobuf", counted)
    schema = Schema(7, PROTOBUF, 'syntax = "proto3"; message Once { int32 a = 1; }')
    values = [frame(7, b"", (3, number)) for number in range(200)]
    decoded = decode(column(values), "protobuf", {7: schema}, target=fields_of(schema))
    assert {one.code for one in decoded.bad_values} == {"SCHEMA_INVALID"}
    assert len(read) == 1


@pytest.mark.parametrize(
    ("values", "name"), [("A = 0; B = 1; C = 1;", "B"), ("A = 0; C = 1; B = 1;", "C")]
)
def test_of_several_names_of_one_number_of_an_enum_the_first_counts(values, name):
    kind = f"enum E {{ option allow_alias = true; {values} }}"
    message = "message M { E e = 1; repeated E more = 2; map<int32, E> by = 3; }"
    schema = Schema(7, PROTOBUF, f'syntax = "proto3"; {kind} {message}')
    (row,) = decode_both(
        schema, [b"\x08\x01\x12\x02\x00\x01\x1a\x04\x08\x05\x10\x01"]
    ).columns.to_pylist()
    assert row == {"e": name, "more": ["A", name], "by": [(5, name)]}


def test_fields_and_types_may_have_the_names_of_the_runtimes_methods():
    fields = (
        "bool HasField = 1; bool IsInitialized = 2; optional int32 a = 3; int32 DESCRIPTOR = 4;"
    )
    nested = "message FromString {} enum Kind { MergeFromString = 0; }"
    schema = Schema(7, PROTOBUF, f'syntax = "proto3"; message M {{ {fields} {nested} }}')
    decoded = decode_both(schema, [b"\x08\x01\x10\x01\x18\x02\x20\x03", b"\xff"])
    first = {"HasField": True, "IsInitialized": True, "a": 2, "DESCRIPTOR": 3}
    assert decoded.columns.to_pylist() == [first, dict.fromkeys(first)]
    assert [one.row for one in decoded.bad_values] == [1]


def test_what_is_no_message_is_told_of_messages_without_fields_too():
    text = 'syntax = "proto3"; message Empty {} message M { Empty e = 1; repeated Empty many = 2; }'
    schema = Schema(7, PROTOBUF, text)
    payloads = [b"\x08\x01", b"", b"\x82\xb7\x0e\xee"]
    alone = decode_both(schema, payloads)
    assert [one.row for one in alone.bad_values] == [2]
    inner = [b"\x0a%c%s" % (len(one), one) for one in payloads]
    many = [b"\x12\x00\x12%c%s" % (len(one), one) for one in payloads]
    within = decode_both(
        schema._replace(text=text.replace("message Empty {} ", "") + "message Empty {}"),
        inner + many,
    )
    assert [one.row for one in within.bad_values] == [2, 5]
    assert within.columns.to_pylist()[1] == {"e": True, "many": []}
