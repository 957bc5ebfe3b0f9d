"""Confluent's wire format is told from everything else, and the payload found."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_export.typed.framing import (
    FIRST_MESSAGE,
    NULL_VALUE,
    UNFRAMED,
    frame,
    message_indexes,
    split_frames,
)
from tests.iceberg_export.typed.helpers import column

ids = st.integers(0, (1 << 31) - 1)
paths = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=16).map(tuple)


def payloads(values: pa.Array, *, indexes: bool) -> list[bytes]:
    found = split_frames(values, indexes=indexes)
    spans = zip(found.starts.tolist(), found.lengths.tolist(), strict=True)
    return [found.data[start : start + length].tobytes() for start, length in spans]


@settings(deadline=None)
@given(st.lists(st.tuples(ids, st.binary(max_size=6))), st.integers(0, 2))
def test_frames_give_back_ids_and_payloads_also_of_a_slice(some, skipped):
    values = column([b"front", None, *(frame(number, raw) for number, raw in some)])[skipped:]
    found = split_frames(values, indexes=False)
    expected = [UNFRAMED, NULL_VALUE, *(number for number, _ in some)][skipped:]
    assert found.schema_ids.tolist() == expected
    assert payloads(values, indexes=False)[2 - skipped :] == [raw for _, raw in some]


@settings(deadline=None)
@given(ids, paths, st.binary(max_size=6))
def test_message_indexes_are_read_as_they_are_written(number, path, raw):
    values = column([frame(number, raw, path)])
    found = split_frames(values, indexes=True)
    assert found.schema_ids.tolist() == [number]
    assert payloads(values, indexes=True) == [raw]
    said = found.data[found.index_starts[0] : found.starts[0]].tobytes()
    assert message_indexes(said) == path


def test_the_first_message_is_one_byte_and_two_bytes_mean_the_same():
    assert frame(1, b"x", FIRST_MESSAGE) == b"\0\0\0\0\x01\0x"
    assert message_indexes(b"\x02\x00") == FIRST_MESSAGE
    assert payloads(column([b"\0\0\0\0\x01\x02\x00x"]), indexes=True) == [b"x"]


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"\0\0\0\0", b"\1\0\0\0\1x", b"\0\xff\xff\xff\xff", b"\0\0\0\0\1"),
        *(b"\0\0\0\0\1\1", b"\0\0\0\0\1\x04\x02", b"\0\0\0\0\1\x22" + b"\0" * 20),
        *(b"\0\0\0\0\1\x02\x01", b"\0\0\0\0\1" + b"\xff" * 9 + b"\1"),
    ],
)
def test_what_is_no_frame_of_protobuf_is_unframed_and_whole(raw):
    found = split_frames(column([raw]), indexes=True)
    assert found.schema_ids.tolist() == [UNFRAMED]
    assert (found.starts.tolist(), found.lengths.tolist()) == ([0], [len(raw)])


def test_an_id_beyond_31_bits_is_no_frame():
    values = column([b"\0\x80\0\0\0x", b"\0\x7f\xff\xff\xffx"])
    assert split_frames(values, indexes=False).schema_ids.tolist() == [UNFRAMED, 0x7FFFFFFF]
