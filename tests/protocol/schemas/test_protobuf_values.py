"""Protobuf messages as JSON and back, and which message of a file is meant."""

import json

import pytest

from protocol.schemas.protobuf import parse_protobuf
from protocol.schemas.protobuf_values import message_at, message_reader, message_writer, path_of

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/any.proto";
message Money { int64 cents = 1; }
message Order {
  message Line { string what = 1; message Part { int32 n = 1; } }
  int64 line_id = 1;
  repeated Line lines = 2;
  map<string, Money> sums = 3;
  oneof by { string name = 4; bytes key = 5; }
  Kind kind = 6;
  google.protobuf.Timestamp at = 7;
  optional double share = 8;
  google.protobuf.Any extra = 9;
}
enum Kind { NONE = 0; BIG = 1; }
"""
FILE = parse_protobuf(TEXT, {}).descriptor
ORDER = message_at(FILE, (1,))
WHOLE = {
    "line_id": "9007199254740993",
    "lines": [{"what": "é"}],
    "sums": {"a": {"cents": "1"}},
    "key": "//8=",
    "kind": "BIG",
    "at": "2026-01-31T08:00:00.500Z",
    "share": "NaN",
    "extra": {"@type": "type.googleapis.com/shop.Money", "cents": "5"},
}


def test_a_message_is_the_same_after_it_was_json():
    data = message_writer(ORDER)(WHOLE)
    assert json.loads(json.dumps(message_reader(ORDER)(data))) == WHOLE
    assert message_writer(ORDER)(message_reader(ORDER)(data)) == data


def test_what_has_no_presence_is_shown_and_what_has_is_not():
    assert message_reader(ORDER)(b"") == {"line_id": "0", "lines": [], "sums": {}, "kind": "NONE"}


def test_names_may_be_written_as_protobufs_json_has_them():
    assert message_writer(ORDER)({"lineId": 7}) == message_writer(ORDER)({"line_id": "7"})


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("Money", (0,)),
        ("shop.Order", (1,)),
        ("Order.Line", (1, 0)),
        ("shop.Order.Line.Part", (1, 0, 0)),
    ],
)
def test_a_message_is_found_by_its_name(name, path):
    assert path_of(FILE, name) == path
    assert message_at(FILE, path).full_name == f"shop.{name.removeprefix('shop.')}"


def test_of_a_message_that_there_is_not_the_others_are_told():
    with pytest.raises(LookupError, match=r'no message "Bill" \(shop\.Money, shop\.Order, '):
        path_of(FILE, "Bill")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"line_id": "x"}, "it is no shop.Order: Failed to parse line_id"),
        ({"strange": 1}, 'no field named "strange"'),
        ({"name": "a", "key": ""}, "oneof"),
        ([], r"\[\] is no shop.Order"),
    ],
)
def test_json_that_is_no_such_message_is_refused(value, said):
    with pytest.raises(ValueError, match=said):
        message_writer(ORDER)(value)


def test_a_message_without_what_is_required_is_refused():
    file = parse_protobuf("message M { required int32 n = 1; }", {}).descriptor
    with pytest.raises(ValueError, match="it lacks n"):
        message_writer(message_at(file, (0,)))({})


@pytest.mark.parametrize("data", [b"\xff", b"\x22\x01\xff", b"\x0a\x05x"])
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(ValueError, match=r"it is no shop\.Order"):
        message_reader(ORDER)(data)
