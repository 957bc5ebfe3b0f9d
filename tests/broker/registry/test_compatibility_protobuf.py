"""Which changes of a Protobuf schema are harmless: a table; and its text in both directions."""

import base64

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.registry.compatibility_protobuf import (
    HARMLESS,
    protobuf_changes,
    protobuf_differences,
)
from broker.registry.parsed_schema import ParsedSchema, parse
from coordinator.commands.table_commands import SchemaKind
from protocol.schemas import SchemaError
from protocol.schemas.proto_text import load_files


def protobuf(text: str, references: dict[str, str]) -> ParsedSchema:
    return parse(SchemaKind.PROTOBUF, text, references)


TWO = "message M { int32 a = 1; string b = 2; }"
ONEOF = "message M { oneof o { int32 a = 1; string b = 2; } int32 c = 3; }"


def of(*fields: str) -> str:
    """A message of these fields, numbered from 1."""
    return "message M { " + " ".join(f"{each} = {at};" for at, each in enumerate(fields, 1)) + " }"


# What | before | after | the changes; those after "!" are the harmful ones.
TABLE = [
    ("nothing", TWO, TWO, ""),
    ("a field comes", of("int32 a"), TWO, "FIELD_ADDED #/M/2"),
    ("a field goes", TWO, of("int32 a"), "FIELD_REMOVED #/M/2"),
    ("a field is called otherwise", TWO, TWO.replace("b", "c"), "FIELD_NAME_CHANGED #/M/2"),
    ("integers of another width", of("int32 a"), of("uint64 a"), ""),
    ("an integer becomes a bool", of("int32 a"), of("bool a"), ""),
    ("an integer becomes signed otherwise", of("int32 a"), of("sint32 a"),
     "! FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("an integer becomes fixed", of("int32 a"), of("fixed32 a"),
     "! FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("fixed loses its sign", of("sfixed64 a"), of("fixed64 a"), ""),
    ("fixed of another width", of("fixed32 a"), of("fixed64 a"),
     "! FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("float becomes double", of("float a"), of("double a"), "! FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("a string becomes bytes", of("string a"), of("bytes a"), ""),
    ("a string becomes a number", of("string a"), of("int32 a"),
     "! FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("an integer becomes an enum", of("int32 a"), "message M { E a = 1; } enum E { Z = 0; }",
     "ENUM_ADDED #/E"),
    ("a number becomes a message", of("int32 a"), of("M a"), "! FIELD_KIND_CHANGED #/M/1"),
    ("a map becomes a number", of("map<string, int32> a"), of("int32 a"),
     "! FIELD_KIND_CHANGED #/M/1"),
    ("a map has other values", of("map<string, int32> a"), of("map<string, string> a"),
     "! FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("a map has wider values", of("map<string, int32> a"), of("map<string, int64> a"), ""),
    ("optional numbers are repeated", of("optional int32 a"), of("repeated int32 a"),
     "! FIELD_NUMERIC_LABEL_CHANGED #/M/1"),
    ("optional strings are repeated", of("optional string a"), of("repeated string a"),
     "FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"),
    ("a message comes", TWO, TWO + " message N { }", "MESSAGE_ADDED #/N"),
    ("a message goes", TWO + " message N { }", TWO, "! MESSAGE_REMOVED #/N"),
    ("messages change places", TWO + " message N { }", "message N { } " + TWO,
     "MESSAGE_MOVED #/M MESSAGE_MOVED #/N"),
    ("a message within goes", "message M { message N { } }", "message M { }",
     "! MESSAGE_REMOVED #/M/N"),
    ("a field of a message within", "message M { N n = 1; message N { int32 a = 1; } }",
     "message M { N n = 1; message N { string a = 1; } }",
     "! FIELD_SCALAR_KIND_CHANGED #/M/N/1"),
    ("a field is of another message", "message M { A x = 1; } message A { } message B { }",
     "message M { B x = 1; } message A { } message B { }",
     "! FIELD_NAMED_TYPE_CHANGED #/M/1"),
    ("values of an enum", "enum E { A = 0; B = 1; }", "enum E { A = 0; C = 1; D = 2; }",
     "ENUM_CONST_CHANGED #/E/1 ENUM_CONST_ADDED #/E/2"),
    ("an enum goes", "enum E { A = 0; }", "", "ENUM_REMOVED #/E"),
    ("a oneof gets a field", ONEOF, ONEOF.replace("string b = 2;", "string b = 2; int32 d = 4;"),
     "ONEOF_FIELD_ADDED #/M/o/4"),
    ("a oneof loses a field", ONEOF, ONEOF.replace("string b = 2; }", "}"),
     "! ONEOF_FIELD_REMOVED #/M/o/2"),
    ("a oneof goes with all", ONEOF, "message M { int32 c = 3; }",
     "ONEOF_REMOVED #/M/o"),
    ("a oneof is called otherwise", ONEOF, ONEOF.replace(" o ", " p "),
     "ONEOF_REMOVED #/M/o ONEOF_ADDED #/M/p"),
    ("a field leaves a oneof", ONEOF, ONEOF.replace("string b = 2; }", "} string b = 2;"),
     "ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/2"),
    ("a field joins a oneof", ONEOF,
     ONEOF.replace("string b = 2; }", "string b = 2; int32 c = 3; }").replace("} int32 c = 3;", "}"),
     "! FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"),
    ("one field alone is in a oneof", of("int32 a"), "message M { oneof o { int32 a = 1; } }",
     "ONEOF_ADDED #/M/o"),
    ("fields join a oneof", TWO, "message M { oneof o { int32 a = 1; string b = 2; } }",
     "ONEOF_ADDED #/M/o ! MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"),
    ("another package", "package a; " + TWO, "package b; " + TWO, "! PACKAGE_CHANGED #/"),
    ("a list of itself", "message M { M next = 1; int32 v = 2; }",
     "message M { M next = 1; string v = 2; }", "! FIELD_SCALAR_KIND_CHANGED #/M/2"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "wanted"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_changes_are_found_and_judged(before: str, after: str, wanted: str) -> None:
    check('syntax = "proto3"; ' + before, 'syntax = "proto3"; ' + after, wanted)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (of("optional int32 a"), of("optional int32 a", "required int32 b"),
         "! REQUIRED_FIELD_ADDED #/M/2"),
        (of("optional int32 a", "required int32 b"), of("optional int32 a"),
         "! REQUIRED_FIELD_REMOVED #/M/2"),
        (of("optional int32 a"), of("repeated int32 a"), "! FIELD_NUMERIC_LABEL_CHANGED #/M/1"),
    ],
)  # fmt: skip
def test_proto2_has_required_fields_and_labels_everywhere(
    before: str, after: str, wanted: str
) -> None:
    check('syntax = "proto2"; ' + before, 'syntax = "proto2"; ' + after, wanted)


def check(before: str, after: str, wanted: str) -> None:
    old, new = protobuf(before, {}).schema, protobuf(after, {}).schema
    found = {f"{each.kind} {each.path}" for each in protobuf_changes(original=old, update=new)}
    harmless, _, harmful = wanted.partition("!") if "!" in wanted else (wanted, "", "")
    words = (harmless + harmful).split()
    assert found == {" ".join(pair) for pair in zip(words[::2], words[1::2], strict=True)}
    reasons = [f"{each.kind} {each.path}" for each in protobuf_differences(reader=new, writer=old)]
    assert " ".join(reasons) == harmful.strip()


def test_a_message_that_is_imported_is_compared_where_it_is_used() -> None:
    text = 'syntax = "proto3"; import "n.proto"; message M { n.N n = 1; n.N again = 2; }'
    other = 'syntax = "proto3"; package n; message N { int32 a = 1; N n = 2; }'
    old = protobuf(text, {"n.proto": other}).schema
    wider = protobuf(text, {"n.proto": other.replace("int32", "int64")}).schema
    assert protobuf_differences(reader=wider, writer=old) == []
    broken = protobuf(text, {"n.proto": other.replace("int32", "string")}).schema
    kinds = [each.kind for each in protobuf_differences(reader=broken, writer=old)]
    assert kinds == ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"] * 2
    with pytest.raises(SchemaError, match=r"n\.proto"):
        protobuf(text, {})


RICH = """// What nobody keeps.
syntax = "proto3"; package a.b; import "google/protobuf/timestamp.proto";
option java_package = "x.y"; /* nor this */
message M { string a = 1; map<string, int32> m = 2;
  oneof o { int32 x = 3; string y = 4 [deprecated = true, json_name="why"]; }
  optional int64 z = 5; google.protobuf.Timestamp t = 6; repeated N n = 7 [packed=false];
  message N { E e = 1; } enum E { option allow_alias = true; A = 0; B = 0; C = -1; }
  reserved 20 to 30, 40; reserved "old";
  string s = 8 [(my.limit) = 1.5e-3, (my.text) = "a;b{c}//d"]; }
service S { rpc Get (M) returns (stream M); }
"""


def test_a_text_is_laid_out_and_loses_nothing_but_comments() -> None:
    canonical = protobuf(RICH, {}).canonical
    assert protobuf(canonical, {}).canonical == canonical
    assert "".join(canonical.split()) == "".join(
        "".join(
            line for line in RICH.replace("/* nor this */", "").splitlines() if "What" not in line
        ).split()
    )
    squeezed = " ".join(RICH.split("\n", 1)[1].split())
    assert protobuf(squeezed, {}).canonical == canonical


def test_a_descriptor_is_kept_as_text_that_means_the_same() -> None:
    text = protobuf(RICH, {})
    sent = base64.b64encode(text.serialized).decode()
    kept = protobuf(sent, {})
    assert "message M {" in kept.canonical
    assert kept.serialized == text.serialized
    assert protobuf(kept.canonical, {}).serialized == text.serialized
    assert protobuf_changes(original=text.schema, update=kept.schema) == []


def test_what_a_descriptor_reserves_and_defaults_stays_in_its_text() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto2")
    message = file.message_type.add(name="M")
    message.reserved_range.add(start=5, end=8)
    message.reserved_name.append("gone")
    message.extension_range.add(start=100, end=1 << 29)
    message.field.add(name="a", number=1, type=9, label=1, default_value='say "hi"\n')
    enum = file.enum_type.add(name="E")
    enum.value.add(name="A", number=0)
    enum.reserved_range.add(start=3, end=3)
    kept = protobuf(base64.b64encode(file.SerializeToString()).decode(), {}).canonical
    for line in (
        'reserved 5 to 7;', 'reserved "gone";', "extensions 100 to max;", "reserved 3;",
        'optional string a = 1 [default = "say \\"hi\\"\\n"];',
    ):  # fmt: skip
        assert line in kept


@pytest.mark.parametrize(
    "text",
    [
        "message M {", "message M { int32 a = 1 }", 'syntax = "proto4";', "message M { none n = 1; }",
        'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }',
        'syntax = "proto3"; message M { int32 a = 1; int32 a = 2; }',
        'syntax = "proto3"; import "none.proto";', "AAAA", "bm90IGEgZGVzY3JpcHRvcg==", "{}",
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(SchemaError, match=r"\w"):
        protobuf(text, {})


_TYPES = ["int32", "int64", "uint32", "sint32", "bool", "string", "bytes", "fixed32", "double"]
_FIELDS = st.dictionaries(st.integers(1, 3), st.sampled_from(_TYPES), max_size=3)


@settings(deadline=None, max_examples=100)
@given(before=_FIELDS, after=_FIELDS, number=st.integers(0, 1))
def test_bytes_are_read_without_loss_of_form_by_a_schema_that_counts_as_compatible(
    before: dict[int, str], after: dict[int, str], number: int
) -> None:
    old_text, new_text = (
        'syntax = "proto3"; message M { '
        + " ".join(f"{kind} f{at} = {at};" for at, kind in sorted(fields.items()))
        + " }"
        for fields in (before, after)
    )
    changes = protobuf_changes(
        original=protobuf(old_text, {}).schema, update=protobuf(new_text, {}).schema
    )
    if not all(change.kind in HARMLESS for change in changes):
        return
    writer, reader = (
        GetMessageClass(load_files(text, {})[1].message_types_by_name["M"])
        for text in (old_text, new_text)
    )
    written = writer()
    for at, kind in before.items():
        value = {"string": "1" * number, "bytes": b"1" * number, "bool": bool(number)}
        setattr(written, f"f{at}", value.get(kind, number))
    try:
        read = reader.FromString(written.SerializeToString())
    except DecodeError as error:
        raise AssertionError((before, after)) from error
    for at in before.keys() & after.keys():
        one, other = getattr(written, f"f{at}"), getattr(read, f"f{at}")
        texts = [each.encode() if isinstance(each, str) else each for each in (one, other)]
        assert texts[0] == texts[1], (before, after)
