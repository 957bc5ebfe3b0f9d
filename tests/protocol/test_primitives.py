"""Varints, strings, arrays and tagged fields at their edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import primitives
from protocol.errors import ProtocolError
from tests.protocol.kio_oracle import texts


def view(data: bytes) -> memoryview:
    return memoryview(data)


@given(st.integers(0, primitives.INT32_MAX), st.binary(max_size=3))
def test_an_unsigned_varint_is_read_as_it_was_written(value, rest):
    written = primitives.uvarint(value)
    assert primitives.read_uvarint(view(written + rest), 0) == (value, len(written))


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), ((1 << 31) - 1, "ffffffff07")],
)
def test_unsigned_varints_are_these_bytes(value, written):
    assert primitives.uvarint(value).hex() == written


@pytest.mark.parametrize("written", ["8080808008", "ffffffff0f", "808080808001"])
def test_a_varint_above_31_bits_is_refused(written):
    with pytest.raises(ProtocolError, match="varint"):
        primitives.read_uvarint(view(bytes.fromhex(written)), 0)


@given(st.one_of(st.none(), texts()), st.booleans())
def test_a_string_is_read_as_it_was_written(value, flexible):
    written = primitives.nullable_string(value, flexible=flexible)
    found = primitives.read_nullable_string(view(written), 0, flexible=flexible)
    assert found == (value, len(written))


@pytest.mark.parametrize("flexible", [True, False])
def test_null_for_a_string_that_cannot_be_null_is_refused(flexible):
    written = primitives.nullable_string(None, flexible=flexible)
    with pytest.raises(ProtocolError, match="null"):
        primitives.read_string(view(written), 0, flexible=flexible)


def test_a_string_longer_than_its_buffer_is_refused():
    with pytest.raises(ProtocolError, match="5 bytes with 2 bytes left"):
        primitives.read_string(view(b"\0\5ab"), 0, flexible=False)
    with pytest.raises(ProtocolError, match="5 bytes with 2 bytes left"):
        primitives.read_string(view(b"\6ab"), 0, flexible=True)


def test_a_string_of_a_negative_length_is_refused():
    with pytest.raises(ProtocolError, match="-2 bytes"):
        primitives.read_nullable_string(view(b"\xff\xfe"), 0, flexible=False)


@given(st.integers(-1, 100), st.booleans())
def test_a_count_is_read_as_it_was_written(count, flexible):
    written = primitives.array_count(count, flexible=flexible)
    found = primitives.read_count(view(written + bytes(100)), 0, flexible=flexible)
    assert found == (count, len(written))


@pytest.mark.parametrize("flexible", [True, False])
def test_a_count_beyond_the_bytes_that_are_left_is_refused(flexible):
    written = primitives.array_count(4, flexible=flexible)
    with pytest.raises(ProtocolError, match="4 with 3 bytes left"):
        primitives.read_count(view(written + b"abc"), 0, flexible=flexible)


def test_a_count_of_minus_two_is_refused():
    with pytest.raises(ProtocolError, match="-2"):
        primitives.read_count(view(b"\xff\xff\xff\xfe"), 0, flexible=False)


@given(st.dictionaries(st.integers(0, 1000), st.binary(max_size=5), max_size=3))
def test_tagged_fields_are_read_as_they_were_written(fields):
    written = primitives.tagged_fields(sorted(fields.items()))
    found, at = primitives.read_tagged_fields(view(written), 0)
    assert ({tag: bytes(value) for tag, value in found.items()}, at) == (fields, len(written))
    assert primitives.skip_tagged_fields(view(written), 0) == len(written)


def test_tagged_fields_out_of_order_are_read_as_kafka_reads_them():
    written = primitives.tagged_fields([(5, b"a"), (1, b"b")])
    assert primitives.read_tagged_fields(view(written), 0)[0] == {5: b"a", 1: b"b"}


def test_a_tagged_field_beyond_the_end_is_refused():
    with pytest.raises(ProtocolError, match="a tagged field of 9 bytes with 1 bytes left"):
        primitives.read_tagged_fields(view(b"\x01\x00\x09a"), 0)
    with pytest.raises(ProtocolError, match="a tagged field of 9 bytes with 1 bytes left"):
        primitives.skip_tagged_fields(view(b"\x01\x00\x09a"), 0)


@pytest.mark.parametrize("tag", [1, 128, 70_000])
@pytest.mark.parametrize("size", [0, 127, 128, 70_000])
def test_tagged_fields_of_any_size_are_skipped_where_the_next_ones_begin(tag, size):
    written = primitives.tagged_fields([(0, b"a"), (tag, bytes(size)), (tag + 1, b"")])
    assert primitives.skip_tagged_fields(view(written + b"rest"), 0) == len(written)


def test_a_topic_id_that_ends_early_is_refused():
    with pytest.raises(ProtocolError, match="topic id"):
        primitives.read_topic_id(view(bytes(15)), 0)
