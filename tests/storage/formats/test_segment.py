"""Merging rows into segments, and the segment format: pinned, and refused when damaged."""

from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol import records
from protocol.compression import Codec
from protocol.records import Record, assemble, build_batch, read_header
from protocol.types import Incarnation, position
from storage.formats.batches import Batches, DamagedSpanError
from storage.formats.job_objects import JobObjectFormatError
from storage.formats.segment import (
    FORMAT,
    Segment,
    SegmentBuilder,
    SegmentSpan,
    damaged_spans,
    merge_rows,
    parse_segment,
    parse_segment_end,
)
from storage.formats.spans import Marker, ObjectId, ObjectKind, Span
from tests.storage.build import CHUNK, TOPIC_A, TOPIC_B
from tests.storage.lies import FAR_MS, saying
from tests.storage.rows import (
    BASE,
    HISTORIES,
    SEGMENT,
    UNHURRIED,
    History,
    batches_of,
    committed,
    seen,
    span_of,
    split,
)


def merged_span(made: History, first: int, last: int) -> tuple[Span, bytes]:
    """Rows `first` to `last` of the history, merged."""
    before = sum(isinstance(row, Span) for row in made.rows[:first])
    rows = made.rows[first:last]
    spans = sum(isinstance(row, Span) for row in rows)
    merged = merge_rows(rows, made.data[before : before + spans], made.aborted)
    span = span_of(
        merged.parts,
        base_offset=rows[0].base_offset,
        next_offset=rows[-1].next_offset,
        timestamp_max=merged.timestamp_max,
    )
    data = b"".join(merged.parts)
    assert len(data) == merged.length
    return span, data


def whole(made: History) -> tuple[Span, bytes]:
    return merged_span(made, 0, len(made.rows))


@UNHURRIED
@given(HISTORIES)
def test_what_is_read_of_merged_rows_is_what_was_read_before_but_for_aborted_batches(
    made: History,
) -> None:
    span, data = whole(made)
    read = Batches.checked(span, memoryview(data))
    expected = committed(batches_of(made.rows, made.data), made.aborted)
    filled = [batch for batch in split(read.view()) if read_header(batch).record_count]
    assert filled == expected


@UNHURRIED
@given(HISTORIES)
def test_a_fetch_from_any_offset_finds_the_first_record_from_there_on(made: History) -> None:
    span, data = whole(made)
    read = Batches.checked(span, memoryview(data))
    records_left = seen(split(data))
    for offset in range(span.base_offset, span.next_offset):
        views = read.slice(offset, bytes_max=1 << 30, at_least_one=True).views
        found = [one for one in seen(split(b"".join(views))) if one.offset >= offset]
        assert found == [one for one in records_left if one.offset >= offset]


@UNHURRIED
@given(HISTORIES, st.data())
def test_merging_what_was_merged_is_merging_all_at_once(made: History, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(made.rows)))
    pieces = [
        merged_span(made, first, last)
        for first, last in ((0, cut), (cut, len(made.rows)))
        if first < last
    ]
    again = merge_rows(
        [span for span, _ in pieces], [content for _, content in pieces], made.aborted
    )
    assert b"".join(again.parts) == whole(made)[1]
    assert again.timestamp_max == whole(made)[0].timestamp_max


@UNHURRIED
@given(HISTORIES)
def test_merged_says_how_many_records_it_holds_and_the_newest_timestamp(made: History) -> None:
    merged = merge_rows(made.rows, made.data, made.aborted)
    batches = split(b"".join(merged.parts))
    assert merged.records == len(seen(batches))
    newest = [read_header(batch).max_timestamp for batch in batches]
    assert merged.timestamp_max == max(newest)


def test_source_is_left_as_it_was() -> None:
    data = bytearray(build_batch([Record()]) * 2)
    before = bytes(data)
    merge_rows([Span(CHUNK, 16, len(data), BASE, 2, -1)], [data])
    assert data == before


def test_rows_of_which_nothing_stays_become_one_batch_without_records() -> None:
    batch = build_batch(
        [Record(-1, 70)] * 3,
        attributes=records.TRANSACTIONAL,
        producer_id=4,
        producer_epoch=0,
        base_sequence=0,
    )
    rows = [Span(CHUNK, 16, len(batch), BASE, 3, 70)]
    merged = merge_rows(rows, [batch], [(4, BASE, BASE + 10)])
    (filler,) = merged.parts
    header = read_header(filler)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (BASE + 2, 0, 0)
    assert (header.producer_id, header.max_timestamp, header.size) == (-1, -1, 61)
    assert header.crc == crc32c(bytes(filler)[21:])
    assert (merged.length, merged.timestamp_max, merged.records) == (61, -1, 0)


@pytest.mark.parametrize(
    ("ranges", "stays"),
    [
        ([(4, BASE, BASE + 1)], False),
        ([(4, BASE - 5, BASE)], False),
        ([(4, BASE + 1, BASE + 2)], True),  # The producer's next transaction.
        ([(4, BASE - 5, BASE - 1)], True),
        ([(5, BASE, BASE + 1)], True),  # Another producer's.
        ([(4, BASE - 9, BASE - 7), (4, BASE, BASE + 7)], False),
    ],
)
def test_batch_is_left_out_only_if_its_own_transaction_was_aborted(
    ranges: list[tuple[int, int, int]], *, stays: bool
) -> None:
    batch = build_batch(
        [Record()], attributes=records.TRANSACTIONAL, producer_id=4, producer_epoch=0
    )
    merged = merge_rows([Span(CHUNK, 16, len(batch), BASE, 1, -1)], [batch], ranges)
    assert merged.records == stays


def test_batch_outside_of_transactions_stays_whoever_wrote_it() -> None:
    batch = build_batch([Record()], producer_id=4, producer_epoch=0, base_sequence=0)
    rows = [Span(CHUNK, 16, len(batch), BASE, 1, -1)]
    assert merge_rows(rows, [batch], [(4, BASE, BASE + 1)]).records == 1


STAMPS = (5000, 5070, 4990, 5030)
"""The second is the newest, the third is older than the base."""


def stamped(codec: Codec = Codec.NONE, stamps: tuple[int, ...] = STAMPS, flags: int = 0) -> bytes:
    return build_batch([Record(-1, at, b"k", b"v") for at in stamps], codec=codec, attributes=flags)


def row_of(batch: bytes, newest: int, *, base_offset: int = BASE) -> Span:
    count = read_header(batch).last_offset_delta + 1
    return Span(CHUNK, 16, len(batch), base_offset, count, newest)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("said", [-1, 0, 4999, 5000, 5069, 5070, 5071, 5000 + FAR_MS])
def test_merged_batch_says_the_newest_timestamp_of_its_records(said: int, codec: Codec) -> None:
    """Kafka's broker computes it when it takes the batch."""
    true = stamped(codec)
    batch = saying(true, said)
    merged = merge_rows([row_of(batch, max(said, 5000))], [batch])
    assert merged.timestamp_max == 5070
    assert b"".join(merged.parts)[17:] == true[17:]  # Behind the leader epoch: CRC and all.


def test_newest_timestamp_may_be_older_than_the_base() -> None:
    batch = build_batch([Record(-1, 5000, b"k")])
    alone = assemble(read_header(batch), batch[61:63] + b"\x13" + batch[64:])  # A delta of -10.
    merged = merge_rows([row_of(alone, 5000)], [alone])
    assert merged.timestamp_max == read_header(merged.parts[0]).max_timestamp == 4990


def test_batch_without_any_timestamp_says_none_whatever_it_said() -> None:
    batch = saying(stamped(stamps=(-1, -1)), 5000)
    merged = merge_rows([row_of(batch, 5000)], [batch])
    assert merged.timestamp_max == read_header(merged.parts[0]).max_timestamp == -1


def test_batch_of_log_append_time_keeps_its_time_when_it_is_merged() -> None:
    batch = saying(stamped(flags=records.LOG_APPEND_TIME), 9000)
    merged = merge_rows([row_of(batch, 9000)], [batch])
    assert merged.timestamp_max == read_header(merged.parts[0]).max_timestamp == 9000


def test_batch_that_cannot_be_read_keeps_its_bytes_and_is_as_new_as_its_row() -> None:
    broken = bytearray(saying(stamped(Codec.GZIP), -1))
    broken[61] ^= 255
    batch = saying(bytes(broken), -1)
    merged = merge_rows([row_of(batch, 5555)], [batch])
    assert merged.timestamp_max == 5555
    assert b"".join(merged.parts)[17:] == batch[17:]


def test_aborted_batch_does_not_make_its_span_newer() -> None:
    aborted = build_batch(
        [Record(-1, 9000)], attributes=records.TRANSACTIONAL, producer_id=4, producer_epoch=0
    )
    batch = saying(stamped(), 0)
    rows = [row_of(batch, 5000), row_of(aborted, 9000, base_offset=BASE + 4)]
    assert merge_rows(rows, [batch, aborted], [(4, BASE, BASE + 9)]).timestamp_max == 5070


@pytest.mark.parametrize("kind", [ObjectKind.CHUNK, ObjectKind.SEGMENT])
@UNHURRIED
@given(at=st.integers(16, 200), change=st.integers(1, 255))
def test_damaged_bytes_are_not_merged(kind: ObjectKind, at: int, change: int) -> None:
    data = bytearray(build_batch([Record(-1, 5, b"k" * 200)], base_offset=BASE))
    data[at] ^= change
    rows = [Span(CHUNK._replace(kind=kind), 16, len(data), BASE, 1, 5)]
    with pytest.raises(DamagedSpanError):
        merge_rows(rows, [data])


@pytest.mark.parametrize(
    ("base_offset", "count"), [(BASE, 2), (BASE, 4), (BASE + 1, 2), (BASE + 1, 3)]
)
def test_span_of_other_offsets_than_the_log_says_is_not_merged(
    base_offset: int, count: int
) -> None:
    data = build_batch([Record()] * 3, base_offset=BASE)
    with pytest.raises(DamagedSpanError):
        merge_rows([Span(SEGMENT, 16, len(data), base_offset, count, -1)], [data])


def test_span_with_a_leader_epoch_that_nobody_can_have_written_is_not_merged() -> None:
    data = bytearray(build_batch([Record(-1, 5, b"k", b"v")], base_offset=BASE))
    span = Span(SEGMENT, 16, len(data), BASE, 1, 5)
    assert merge_rows([span], [data]).records == 1
    records.patch(data, 0, BASE, 1)
    with pytest.raises(DamagedSpanError, match="epochs"):
        merge_rows([span], [data])


@pytest.mark.parametrize("kind", [ObjectKind.CHUNK, ObjectKind.SEGMENT])
def test_span_that_ends_inside_a_batch_is_not_merged(kind: ObjectKind) -> None:
    data = build_batch([Record()], base_offset=BASE)
    for length in (len(data) - 1, 60, 1):
        span = Span(CHUNK._replace(kind=kind), 16, length, BASE, 1, -1)
        with pytest.raises(DamagedSpanError):
            merge_rows([span], [data[:length]])
        with pytest.raises(DamagedSpanError):
            merge_rows([span], [data])


# The format.

BATCH = build_batch([Record(-1, 1000, b"key", b"value")], base_offset=8, leader_epoch=0)
ROWS = [
    Span(CHUNK, 16, len(BATCH), 8, 1, 1000),
    Marker(9, 7, 2, True, 1001),
]
NAME = ObjectId(Incarnation(position(1, 10)), 7, ObjectKind.SEGMENT)
GOLDEN_SEGMENT = Segment(
    "c",
    NAME,
    (
        SegmentSpan(TOPIC_A, 3, 8, 10, 16, 154, 0x9E77F793, 1001),
        SegmentSpan(TOPIC_B, 9, 0, 5, 170, 61, 0x1F121EAC, -1),
    ),
)
GOLDEN = bytes.fromhex(
    "00 46 52 41 5a 49 4c 73  0001 000000000000"  # Header.
    "0000000000000008 00000040 00000000 02 44c98e4f 0000 00000000"  # A batch of one record.
    "00000000000003e8 00000000000003e8 ffffffffffffffff ffff ffffffff 00000001"
    "1c000000066b65790a76616c756500"
    "0000000000000009 00000042 00000000 02 f73007a3 0030 00000000"  # A marker: commit.
    "00000000000003e9 00000000000003e9 0000000000000007 0002 ffffffff 00000001"
    "2000000008000000010c00000000000000"
    "0000000000000004 00000031 00000000 02 3830a8fa 0000 00000000"  # A batch without records.
    "ffffffffffffffff ffffffffffffffff ffffffffffffffff ffff ffffffff 00000000"
    f"63 {'00' * 63} 0001 000100000000000a 00000007 00000002"  # Owner.
    f"{'61' * 16} 00000003 0000000000000008 000000000000000a"
    "0000000000000010 000000000000009a 9e77f793 00000000000003e9"
    f"{'62' * 16} 00000009 0000000000000000 0000000000000005"
    "00000000000000aa 000000000000003d 1f121eac ffffffffffffffff"
    "00000000000000e7 000000d2 5902b888 0001 000000000000  00 46 52 41 5a 49 4c 73"  # Footer.
)


def built() -> SegmentBuilder:
    builder = SegmentBuilder()
    merged = merge_rows(ROWS, [BATCH])
    start = builder.add(
        TOPIC_A,
        3,
        base_offset=8,
        next_offset=10,
        parts=merged.parts,
        timestamp_max=merged.timestamp_max,
    )
    assert start == 16
    start = builder.add(
        TOPIC_B,
        9,
        base_offset=0,
        next_offset=5,
        parts=[records.empty_batch(4)],
        timestamp_max=-1,
    )
    assert start == 16 + merged.length
    return builder


def test_segment_is_written_and_read_as_ever() -> None:
    builder = built()
    data = b"".join(builder.object_parts(NAME, cluster_id="c"))
    assert data == GOLDEN
    assert builder.length == len(data)
    assert len(builder) == 2
    assert parse_segment(GOLDEN) == GOLDEN_SEGMENT
    assert damaged_spans(GOLDEN, GOLDEN_SEGMENT) == []


@UNHURRIED
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_damaged_byte_of_a_segment_is_found(at: int, change: int) -> None:
    data = bytearray(GOLDEN)
    at %= len(data)
    data[at] ^= change
    with suppress(JobObjectFormatError):
        assert damaged_spans(data, parse_segment(data))


def test_segment_cut_anywhere_is_refused() -> None:
    for length in range(len(GOLDEN)):
        with pytest.raises(JobObjectFormatError):
            parse_segment(GOLDEN[:length])


@pytest.mark.parametrize(
    ("starts", "lengths", "data_end"),
    [
        ([17, 21], [4, 5], 26),  # A hole before the first,
        ([16, 21], [4, 5], 26),  # between two,
        ([16, 20], [4, 5], 26),  # behind the last.
        ([16, 19], [4, 6], 25),  # Two that overlap.
    ],
)
def test_segment_whose_table_names_other_bytes_than_it_has_is_refused(
    starts: list[int], lengths: list[int], data_end: int
) -> None:
    rows = [
        SegmentSpan(TOPIC_A, 0, at, at + 1, start, length, 0, -1)
        for at, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]
    tail = FORMAT.tail(NAME, cluster_id="c", rows=rows, data_end=data_end)
    with pytest.raises(JobObjectFormatError, match="piece"):
        parse_segment(FORMAT.header() + bytes(data_end - 16) + tail)


def test_table_of_a_segment_is_read_by_its_last_bytes() -> None:
    take = 32
    while isinstance(found := parse_segment_end(GOLDEN[-take:], object_length=len(GOLDEN)), int):
        assert found > take
        take = found
    assert take < len(GOLDEN)
    assert found == parse_segment(GOLDEN)
    with pytest.raises(JobObjectFormatError, match="outside of the object"):
        parse_segment_end(GOLDEN[-take:], object_length=len(GOLDEN) + 1)
