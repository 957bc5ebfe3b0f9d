"""What names the schema of a key or value: frames and headers, as Confluent's own serializer writes them."""

import uuid

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from protocol.schemas.frames import FIRST_MESSAGE, frame_head, last_header, unframed

GUID = uuid.UUID("0123abcd-0000-4000-8000-00000000ffff")

ids = st.integers(0, (1 << 31) - 1)
paths = st.lists(st.integers(0, 1000), min_size=1, max_size=16).map(tuple)


@given(ids, paths, st.binary(max_size=8))
def test_a_frame_is_taken_apart_again(number, path, payload):
    found = unframed(frame_head(number, path) + payload, None, has_path=True)
    assert found == (number, path, payload)
    assert unframed(frame_head(number) + payload, None, has_path=False).payload == payload


@given(ids, paths)
def test_a_frame_is_what_confluents_serializer_writes(number, path):
    assert frame_head(number) == SchemaId("AVRO", number).id_to_bytes()
    named = SchemaId("PROTOBUF", number, message_indexes=list(path)).id_to_bytes()
    assert frame_head(number, path) == named


def test_a_header_names_a_schema_by_guid_or_id_and_the_value_is_bare():
    by_guid = SchemaId("AVRO", guid=str(GUID)).guid_to_bytes()
    assert unframed(b"\0\0\0\0\7x", by_guid, has_path=False) == (
        str(GUID),
        FIRST_MESSAGE,
        b"\0\0\0\0\7x",
    )
    assert unframed(b"x", frame_head(7), has_path=False) == (7, FIRST_MESSAGE, b"x")
    nested = SchemaId("PROTOBUF", guid=str(GUID), message_indexes=[1, 0]).guid_to_bytes()
    assert unframed(b"x", nested, has_path=True).path == (1, 0)


def test_the_last_header_of_a_name_counts():
    headers = [("a", b"1"), ("b", b"2"), ("a", None)]
    assert last_header(headers, "a") is None
    assert last_header(headers, "b") == b"2"
    assert last_header(headers, "c") is None


@pytest.mark.parametrize(
    ("data", "header", "said"),
    [
        (b"", None, "does not begin with a zero byte"),
        (b"\0\0\0\0", None, "does not begin with a zero byte"),
        (b'{"a":1}', None, "does not begin with a zero byte"),
        (b"\0\xff\xff\xff\xff", None, "4294967295 is no id"),
        (b"\0\0\0\0\1", None, "the path of a message does not follow"),
        (b"\0\0\0\0\1\1", None, "the path of a message does not follow"),
        (b"\0\0\0\0\1\x7f", None, "the path of a message does not follow"),
        (b"x", b"\1\0", "its header names no schema"),
        (b"x", b"", "its header names no schema"),
    ],
)
def test_what_names_no_schema_is_refused(data, header, said):
    with pytest.raises(ValueError, match=said):
        unframed(data, header, has_path=True)
