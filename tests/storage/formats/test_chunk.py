"""The chunk format: pinned bytes, roundtrips, and nothing but ChunkFormatError for other bytes."""

import struct
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol.types import POSITION_ZERO, Incarnation, TopicId, position
from storage.accumulator import Accumulator, Limits
from storage.formats import chunk
from storage.formats.chunk import (
    FOOTER_BYTES,
    ChunkFormatError,
    ChunkIndex,
    IndexSpan,
    damaged_spans,
    encode_index,
    encode_tail,
    index_bytes,
    parse_chunk,
    parse_footer,
    parse_index,
)
from storage.formats.spans import Item, ObjectId
from tests.storage.build import CHUNK, CLUSTER, TOPIC_A, TOPIC_B, add, batch, closed, object_of

# Versions 1 and 2, which every later version must still read.
GOLDEN_1 = bytes.fromhex(
    "00 46 52 41 5a 49 4c 63  0001 000000000000"  # Header.
    "64 61 74 61 31  64 61 74 61 32 32"  # Data.
    f"63 {'00' * 63} 0001 000100000000000a 00000007 00000002"  # Owner.
    f"{'61' * 16} 00000000 0000000000000010 0000000000000005 b1e32336 00000001"
    "00000000 00000005 00000003 00000000000003e8 ffffffffffffffff ffff ffffffff"
    f"{'62' * 16} 00000009 0000000000000015 0000000000000006 a1b18ff4 00000002"
    "00000000 00000004 00000001 ffffffffffffffff 0000000000000005 0002 00000008"
    "00000000 00000002 00000002 0000000000000001 0000000000000005 0002 00000009"
    "000000000000001b 00000110 177e25c9 0001 000000000000  00 46 52 41 5a 49 4c 63"  # Footer.
)
GOLDEN = bytes.fromhex(
    "00 46 52 41 5a 49 4c 63  0002 000000000000"  # Header.
    "64 61 74 61 31  64 61 74 61 32 32"  # Data.
    f"63 {'00' * 63} 0001 000100000000000a 00000007 00000002"  # Owner.
    f"{'61' * 16} 00000000 0000000000000010 0000000000000005 b1e32336 00000001"
    "00000000 00000005 00000003 00000000000003e8 ffffffffffffffff ffff ffffffff"
    " ffffffffffffffff"  # The transaction: none.
    f"{'62' * 16} 00000009 0000000000000015 0000000000000006 a1b18ff4 00000002"
    "00000000 00000004 00000001 ffffffffffffffff 0000000000000005 0002 00000008"
    " fffffffffffffffe"  # That of the epoch.
    "00000000 00000002 00000002 0000000000000001 0000000000000005 0002 00000009"
    " 0000000000000003"
    "000000000000001b 00000128 694445c1 0002 000000000000  00 46 52 41 5a 49 4c 63"  # Footer.
)
GOLDEN_INDEX = ChunkIndex(
    "c",
    ObjectId(Incarnation(position(1, 10)), 7),
    (
        IndexSpan(TOPIC_A, 0, 16, 5, crc32c(b"data1"), (Item(0, 5, 3, 1000),)),
        IndexSpan(
            TOPIC_B,
            9,
            21,
            6,
            crc32c(b"data22"),
            (Item(0, 4, 1, -1, 5, 2, 8, -2), Item(0, 2, 2, 1, 5, 2, 9, 3)),
        ),
    ),
)


def test_chunk_of_version_2_is_written_as_ever() -> None:
    tail = encode_tail(GOLDEN_INDEX, data_end=27)
    assert chunk.encode_header(POSITION_ZERO) + b"data1" + b"data22" + tail == GOLDEN


def test_a_header_says_how_far_the_log_was() -> None:
    reached = position(3, (1 << 48) - 2)
    header = chunk.encode_header(reached)
    assert header.hex() == "004652415a494c630002fffffffffffe"
    assert chunk.position_in(header, Incarnation(position(3, 7))) == reached
    with pytest.raises(ChunkFormatError):
        chunk.position_in(b"x" * 16, Incarnation(position(3, 7)))


def test_chunk_of_version_2_is_read_as_ever() -> None:
    assert parse_chunk(GOLDEN) == GOLDEN_INDEX
    assert damaged_spans(GOLDEN, GOLDEN_INDEX) == []


def test_chunk_of_version_1_is_read_as_one_without_transactions() -> None:
    spans = tuple(
        span._replace(items=tuple(item._replace(instance=-1) for item in span.items))
        for span in GOLDEN_INDEX.spans
    )
    assert parse_chunk(GOLDEN_1) == ChunkIndex("c", GOLDEN_INDEX.chunk, spans)
    assert damaged_spans(GOLDEN_1, GOLDEN_INDEX) == []


def test_header_and_footer_of_different_versions_are_refused() -> None:
    mixed = GOLDEN_1[:16] + GOLDEN[16:]
    with pytest.raises(ChunkFormatError, match="does not begin like a chunk"):
        parse_chunk(mixed)


def test_index_tells_the_era_of_its_incarnation() -> None:
    assert GOLDEN_INDEX.era == 1


def test_index_can_be_read_without_the_data() -> None:
    footer = parse_footer(GOLDEN[-FOOTER_BYTES:], object_length=len(GOLDEN))
    encoded = GOLDEN[footer.index_start : footer.index_start + footer.index_length]
    assert parse_index(encoded, footer) == GOLDEN_INDEX


def test_closed_chunk_describes_its_own_bytes() -> None:
    first, second, third = batch(2), batch(3, value=b"longer"), batch(1)
    made = closed([(1, 2, first), (0, 3, second), (1, 1, third)])
    whole = object_of(made)
    index = parse_chunk(whole)
    assert len(whole) == made.length
    assert (index.cluster_id, index.chunk) == (CLUSTER, CHUNK)
    assert [(span.partition, span.length) for span in index.spans] == [
        (0, len(second)),
        (1, len(first) + len(third)),
    ]
    span = index.spans[1]
    assert whole[span.start : span.start + span.length] == first + third
    assert damaged_spans(whole, index) == []


def test_damaged_data_is_found_by_span() -> None:
    made = closed([(0, 1, batch()), (1, 1, batch()), (2, 1, batch())])
    whole = bytearray(object_of(made))
    index = parse_chunk(whole)
    whole[index.spans[1].start + 70] ^= 1
    assert damaged_spans(whole, parse_chunk(whole)) == [index.spans[1]]


def test_object_that_does_not_begin_like_a_chunk_is_refused() -> None:
    for at in range(10):
        damaged = bytearray(GOLDEN)
        damaged[at] ^= 0xFF
        with pytest.raises(ChunkFormatError):
            parse_chunk(damaged)


def test_any_damaged_byte_of_the_index_is_noticed() -> None:
    for at in range(27, len(GOLDEN) - 14):
        damaged = bytearray(GOLDEN)
        damaged[at] ^= 0x10
        with pytest.raises(ChunkFormatError):
            parse_chunk(damaged)


def test_chunk_cut_off_anywhere_is_refused() -> None:
    for length in range(len(GOLDEN)):
        with pytest.raises(ChunkFormatError):
            parse_chunk(GOLDEN[:length])


def test_newer_version_is_refused_with_its_number() -> None:
    newer = bytearray(GOLDEN)
    struct.pack_into(">H", newer, len(GOLDEN) - 16, 3)
    with pytest.raises(ChunkFormatError, match="chunk format 3 is not known"):
        parse_chunk(newer)


def resealed(index: ChunkIndex, *, data_end: int = 27) -> bytes:
    """A chunk with golden data, an index of any content, and right checksums."""
    return GOLDEN[:27] + encode_tail(index, data_end=data_end)


def test_index_whose_spans_leave_a_hole_is_refused() -> None:
    first, second = GOLDEN_INDEX.spans
    index = ChunkIndex("c", GOLDEN_INDEX.chunk, (first, second._replace(start=22)))
    with pytest.raises(ChunkFormatError, match="begins at byte 22"):
        parse_chunk(resealed(index))


def test_index_whose_items_are_longer_than_their_span_is_refused() -> None:
    first, second = GOLDEN_INDEX.spans
    longer = first._replace(items=(Item(0, 6, 1, 0),))
    with pytest.raises(ChunkFormatError, match="longer than their span"):
        parse_chunk(resealed(ChunkIndex("c", GOLDEN_INDEX.chunk, (longer, second))))


def test_index_that_leaves_data_out_is_refused() -> None:
    index = ChunkIndex("c", GOLDEN_INDEX.chunk, GOLDEN_INDEX.spans[:1])
    with pytest.raises(ChunkFormatError, match="the data at 27"):
        parse_chunk(resealed(index))


def test_era_that_does_not_fit_the_incarnation_is_refused() -> None:
    encoded = bytearray(encode_index(GOLDEN_INDEX))
    encoded[65] = 9
    footer = parse_footer(GOLDEN[-FOOTER_BYTES:], object_length=len(GOLDEN))
    with pytest.raises(ChunkFormatError, match="era 9"):
        parse_index(encoded, footer._replace(index_checksum=crc32c(encoded)))


def test_lying_counts_cost_no_memory() -> None:
    encoded = bytearray(encode_index(GOLDEN_INDEX))
    footer = parse_footer(GOLDEN[-FOOTER_BYTES:], object_length=len(GOLDEN))
    for at in (78, 78 + 4 + 16 + 4 + 8 + 8 + 4):  # Spans of the index, items of its first span.
        lying = bytearray(encoded)
        struct.pack_into(">I", lying, at, 0xFFFFFFFF)
        with pytest.raises(ChunkFormatError):
            parse_index(lying, footer._replace(index_checksum=crc32c(lying)))


@given(st.binary(max_size=400))
def test_any_bytes_are_a_chunk_or_refused(data: bytes) -> None:
    with pytest.raises(ChunkFormatError):
        parse_chunk(data)


@given(st.binary(max_size=300), st.sampled_from([1, 2]))
def test_any_bytes_with_a_good_footer_are_an_index_or_refused(encoded: bytes, version: int) -> None:
    tail = struct.pack(">QIIH6x8s", 27, len(encoded), crc32c(encoded), version, chunk.MAGIC)
    head = (GOLDEN_1 if version == 1 else GOLDEN)[:27]
    with suppress(ChunkFormatError):
        parse_chunk(head + encoded + tail)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([TOPIC_A, TOPIC_B]),
            st.integers(0, 3),
            st.integers(1, 5),
            st.integers(-1, 2),
        ),
        min_size=1,
        max_size=20,
    ),
    st.text(min_size=1, max_size=16).filter(lambda text: "\0" not in text),
)
def test_index_roundtrips(rows: list[tuple[TopicId, int, int, int]], cluster_id: str) -> None:
    accumulator = Accumulator(Limits())
    for topic_id, partition, records, producer_id in rows:
        add(
            accumulator,
            b"x" * records,
            topic_id=topic_id,
            partition=partition,
            records=records,
            producer_id=producer_id,
            instance=-1 if producer_id < 0 else producer_id - 2,
        )
    made = accumulator.close(0)
    whole = b"".join(made.object_parts(CHUNK, cluster_id=cluster_id, reached=POSITION_ZERO))
    index = parse_chunk(whole)
    assert index.cluster_id == cluster_id
    assert [
        (span.topic_id, span.partition, span.start, span.length, span.items) for span in index.spans
    ] == [
        (span.topic_id, span.partition, span.start, span.length, span.items) for span in made.spans
    ]
    items = sum(len(span.items) for span in made.spans)
    assert len(encode_index(index)) == index_bytes(span_count=len(made.spans), item_count=items)
