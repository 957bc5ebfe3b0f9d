"""Index objects: pinned bytes, and nothing but SealedFormatError for other bytes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.types import Incarnation, position
from storage.formats.index_object import (
    IndexBuilder,
    IndexedPage,
    IndexObject,
    damaged_pages,
    parse_index_object,
)
from storage.formats.job_objects import JobObjectFormatError
from storage.formats.page import digest
from storage.formats.segment import parse_segment
from storage.formats.spans import ObjectId, ObjectKind
from tests.storage.build import TOPIC_A, TOPIC_B
from tests.storage.rows import UNHURRIED

NAME = ObjectId(Incarnation(position(1, 10)), 7, ObjectKind.INDEX)
GOLDEN = bytes.fromhex(
    "00 46 52 41 5a 49 4c 69  0001 000000000000"  # Header.
    "62 6f 64 79 31  62 6f 64 79 32 32"  # Bodies.
    f"63 {'00' * 63} 0001 000100000000000a 00000007 00000002"  # Owner.
    f"{'61' * 16} 00000003 0000000000000005 0000000000000069"
    "0000000000000010 00000005 55c15da3a355d7a5f0b84eae5231fac3"
    f"{'62' * 16} 00000000 0000000000000000 0000000000000001"
    "0000000000000015 00000006 054cc5481e3b7b6b0530c246c9411dc9"
    "000000000000001b 000000d2 b3ce8ce7 0001 000000000000  00 46 52 41 5a 49 4c 69"  # Footer.
)
GOLDEN_INDEX = IndexObject(
    "c",
    NAME,
    (
        IndexedPage(TOPIC_A, 3, 5, 105, 16, 5, digest(b"body1")),
        IndexedPage(TOPIC_B, 0, 0, 1, 21, 6, digest(b"body22")),
    ),
)


def test_index_object_is_written_and_read_as_ever() -> None:
    builder = IndexBuilder()
    pages = (
        builder.add(TOPIC_A, 3, base_offset=5, next_offset=105, body=b"body1"),
        builder.add(TOPIC_B, 0, base_offset=0, next_offset=1, body=b"body22"),
    )
    data = b"".join(builder.object_parts(NAME, cluster_id="c"))
    assert pages == GOLDEN_INDEX.pages
    assert data == GOLDEN
    assert builder.length == len(data)
    assert len(builder) == 2
    assert parse_index_object(GOLDEN) == GOLDEN_INDEX
    assert damaged_pages(GOLDEN, GOLDEN_INDEX) == []


@UNHURRIED
@given(st.integers(0, len(GOLDEN) - 1), st.integers(1, 255))
def test_damaged_byte_of_an_index_object_is_found(at: int, change: int) -> None:
    data = bytearray(GOLDEN)
    data[at] ^= change
    with suppress(JobObjectFormatError):
        assert damaged_pages(data, parse_index_object(data))


def test_index_object_cut_anywhere_is_refused() -> None:
    for length in range(len(GOLDEN)):
        with pytest.raises(JobObjectFormatError):
            parse_index_object(GOLDEN[:length])


def test_index_object_is_no_segment() -> None:
    with pytest.raises(JobObjectFormatError, match="segment"):
        parse_segment(GOLDEN)
