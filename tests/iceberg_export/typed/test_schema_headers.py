"""Schemas named in record headers, read as Confluent's own deserializer reads them."""

import struct

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.typed.decode_values import KnownMessages, SchemaSelection, decode
from iceberg_export.typed.fields import PROTOBUF, Schema, fields_of
from iceberg_export.typed.framing import FIRST_MESSAGE, NULL_VALUE, UNFRAMED, frame
from iceberg_export.typed.schema_headers import (
    GUID,
    KEY_HEADER,
    VALUE_HEADER,
    find_schema_headers,
    guid_number,
    guid_text,
    parse_schema_header,
)
from tests.iceberg_export.typed.helpers import column
from tests.iceberg_export.typed.test_decode_values import record

KIND = ROW_SCHEMA.field("kafka_headers").type
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
OTHER = "ffffffff-0405-0607-0809-0a0b0c0d0e0f"


def listed(*rows):
    return pa.array([[{"key": key, "value": value} for key, value in row] for row in rows], KIND)


def schema_headers(*rows, name=VALUE_HEADER):
    return find_schema_headers(listed(*rows), name)


def by_guid(text: str, *rest: int) -> bytes:
    return b"\x01" + bytes.fromhex(text.replace("-", "")) + bytes(rest)


def confluents(raw: bytes, kind: str) -> tuple[int, tuple[int, ...]] | None:
    """What Confluent's deserializer says of a header; None where it raises."""
    context = SerializationContext("t", MessageField.VALUE, [(VALUE_HEADER, raw)])
    found = SchemaId(kind)
    try:
        assert dual_schema_id_deserializer(b"payload", context, found).read() == b"payload"
    except (SerializationError, DecodeError, EOFError, ValueError, struct.error):
        return None
    number = found.id if found.guid is None else GUID | found.guid.int
    return number, tuple(found.message_indexes or FIRST_MESSAGE)


_NUMBERS = st.one_of(
    st.integers(0, (1 << 31) - 1).map(lambda number: b"\0" + number.to_bytes(4, "big")),
    st.binary(min_size=16, max_size=16).map(lambda raw: b"\1" + raw),
)
_PATHS = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=16)


@settings(deadline=None)
@given(st.sampled_from(["AVRO", "JSON", "PROTOBUF"]), st.uuids(), _PATHS)
def test_what_confluents_serializer_writes_is_read_as_it_was_meant(kind, guid, path):
    protobuf = kind == "PROTOBUF"
    context = SerializationContext("t", MessageField.VALUE, [])
    meant = SchemaId(kind, 7, str(guid), path if protobuf else None)
    assert header_schema_id_serializer(b"payload", context, meant) == b"payload"
    ((name, raw),) = context.headers
    found = schema_headers([(name, raw)])
    head = parse_schema_header(found.contents[found.codes[0]], indexes=protobuf)
    assert guid_text(head.number) == str(guid)
    assert head.indexes == (tuple(path) if protobuf else FIRST_MESSAGE)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(["AVRO", "PROTOBUF"]),
    st.one_of(
        st.binary(max_size=20),
        st.tuples(_NUMBERS, st.binary(max_size=4)).map(b"".join),
        _NUMBERS.map(lambda raw: raw[:-1]),
    ),
)
@example("AVRO", b"")
@example("AVRO", b"\0\0\0\0\7rest")
@example("PROTOBUF", by_guid(UUID))
@example("PROTOBUF", by_guid(UUID, 2, 4))
@example("AVRO", b"\2" + bytes(16))
def test_a_header_means_what_it_means_to_confluents_deserializer(kind, raw):
    head = parse_schema_header(raw, indexes=kind == "PROTOBUF")
    said = confluents(raw, kind)
    if head is not None:
        assert tuple(head) == said
    elif said is not None:
        # Ids beyond Java's, and paths that no message can have, name nothing here.
        number, path = said
        beyond = number < GUID and number >> 31 > 0
        assert beyond or len(path) > 16 or not all(0 <= one < 1 << 28 for one in path)


@settings(deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([VALUE_HEADER, KEY_HEADER, "h"]),
                st.one_of(st.none(), st.sampled_from([b"", b"\1a", b"\1b"])),
            ),
            max_size=4,
        ),
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_the_last_header_of_the_name_counts_also_in_a_slice_of_rows(rows, skipped):
    for name in (KEY_HEADER, VALUE_HEADER):
        expected = []
        for row in rows[skipped:]:
            named = [value for key, value in row if key == name]
            expected.append(named[-1] if named else None)
        found = find_schema_headers(listed(*rows)[skipped:], name)
        codes = [] if found is None else found.codes.tolist()
        got = [None if code < 0 else found.contents[code] for code in codes]
        assert got == expected or (found is None and set(expected) <= {None})


def test_a_header_counts_before_a_frame_and_then_the_value_is_all_payload():
    schemas = {1: record(1, a="int"), 2: record(2, b="int")}
    target = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    said = schema_headers(
        [(VALUE_HEADER, by_guid(UUID))],
        [],
        [(VALUE_HEADER, b"\0\0\0\0\2")],
        [(VALUE_HEADER, by_guid(OTHER))],
        [(VALUE_HEADER, b"\2?")],
        [(VALUE_HEADER, by_guid(UUID))],
        [(VALUE_HEADER, by_guid(OTHER)), (VALUE_HEADER, None)],
    )
    framed = frame(1, b"\x06")
    values = column([b"\x02", framed, b"\x04", b"\x02", b"\x02", None, framed])
    selection = SchemaSelection(schema_headers=said, guids={guid_number(UUID): 2})
    found = decode(values, "avro", schemas, selection=selection, target=target)
    assert found.columns.to_pydict() == {
        "a": [None, 3, None, None, None, None, 3],
        "b": [1, None, 2, None, None, None, None],
    }
    assert found.schema_ids.tolist() == [2, 1, 2, UNFRAMED, UNFRAMED, NULL_VALUE, 1]
    assert found.unknown == {(guid_number(OTHER), FIRST_MESSAGE)}
    assert [(one.row, one.code) for one in found.bad_values] == [
        (3, "SCHEMA_UNKNOWN"),
        (4, "NOT_FRAMED"),
    ]
    refused = {(guid_number(OTHER), FIRST_MESSAGE): ("SCHEMA_UNKNOWN", "no such schema")}
    known = KnownMessages(refused=refused)
    again = decode(values, "avro", schemas, selection=selection, known=known, target=target)
    assert again.unknown == frozenset()
    assert again.bad_values[0].message == "no such schema"


def test_a_header_for_json_that_names_no_schema_is_not_read_by_the_newest():
    text = '{"type": "object", "properties": {"a": {"type": "integer"}}}'
    schema = Schema(1, "JSON", text)
    selection = SchemaSelection(
        default=schema, schema_headers=schema_headers([(VALUE_HEADER, b"?")], [])
    )
    found = decode(
        column([b'{"a": 1}'] * 2),
        "json",
        {1: schema},
        selection=selection,
        target=fields_of(schema),
    )
    assert [one.row for one in found.bad_values] == [0]
    assert found.columns["a"].to_pylist() == [None, 1]


def test_protobufs_message_is_named_in_the_header_too():
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; }'
    schema = Schema(3, PROTOBUF, text)
    target = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    said = schema_headers([(VALUE_HEADER, by_guid(UUID, 0))], [(VALUE_HEADER, by_guid(UUID, 2, 2))])
    selection = SchemaSelection(schema_headers=said, guids={guid_number(UUID): 3})
    known = KnownMessages(messages={(3, (0,)), (3, (1,))})
    found = decode(
        column([b"\x08\x05", b"\x08\x06"]), "protobuf", {3: schema},
        selection=selection, known=known, target=target,
    )  # fmt: skip
    assert found.columns.to_pydict() == {"a": [5, None], "b": [None, 6]}


@pytest.mark.parametrize("mode", ["avro", "protobuf", "json"])
def test_a_pinned_schema_decodes_values_that_begin_like_frames(mode):
    if mode == "avro":
        # One long and a text that begin with bytes of zero: as it happens, a frame of schema 5.
        schema, payload = record(1, a="int", b="int", c="int", d="int", e="int"), b"\0\0\0\0\x0a"
        wanted = {"a": 0, "b": 0, "c": 0, "d": 0, "e": 5}
    elif mode == "protobuf":
        schema = Schema(1, PROTOBUF, 'syntax = "proto3"; message A { int32 a = 1; }')
        payload, wanted = b"\x08\x05", {"a": 5}
    else:
        schema = Schema(1, "JSON", '{"properties": {"a": {"type": "integer"}}}')
        payload, wanted = b'{"a": 5}', {"a": 5}
    found = decode(
        column([payload, None]), mode, {1: schema},
        selection=SchemaSelection(pinned=1), target=fields_of(schema),
    )  # fmt: skip
    assert found.bad_values == []
    assert found.columns.slice(0, 1).to_pylist() == [wanted]
    assert found.schema_ids.tolist() == [1, NULL_VALUE]


def test_a_value_whose_header_names_its_schema_may_begin_like_a_frame():
    schema = record(2, a="int", b="int", c="int", d="int", e="int")
    selection = SchemaSelection(schema_headers=schema_headers([(VALUE_HEADER, b"\0\0\0\0\2")]))
    # Taken for a frame of schema 5, nothing would be left of it.
    found = decode(
        column([b"\0\0\0\0\x0a"]),
        "avro",
        {2: schema},
        selection=selection,
        target=fields_of(schema),
    )
    assert found.bad_values == []
    assert found.columns.to_pylist() == [{"a": 0, "b": 0, "c": 0, "d": 0, "e": 5}]
