"""Patched batches of a span, and the slices that fetches get of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records import Record, batch_positions, build_batch, iterate, patch, read_header
from protocol.types import Incarnation, position
from storage.formats.batches import Batches, DamagedSpanError
from storage.formats.spans import MARKER_BYTES, Marker, ObjectId, ObjectKind, Span
from tests.storage.build import CHUNK, all_sound, batch

SIZES = (3, 1, 5)  # Records of the batches below.
PARTS = [batch(records, value=b"v" * 10 * records) for records in SIZES]
DATA = b"".join(PARTS)
BASE = 1000


def span(data: bytes = DATA, records: int = sum(SIZES)) -> Span:
    return Span(CHUNK, 16, len(data), BASE, records, 1000)


def whole() -> Batches:
    return Batches.of(span(), DATA)


def test_base_offsets_follow_each_other_and_leader_epoch_is_zero() -> None:
    view = whole().view()
    starts, _ = batch_positions(view)
    headers = [read_header(view, start) for start in starts]
    assert [header.base_offset for header in headers] == [1000, 1003, 1004]
    assert {header.leader_epoch for header in headers} == {0}


def test_leader_epoch_is_that_of_the_era_in_which_the_chunk_was_written() -> None:
    second = Incarnation(position(2, 5))
    batches = Batches.of(span()._replace(object_id=ObjectId(second, 0)), DATA)
    view = batches.view()
    starts, _ = batch_positions(view)
    assert {read_header(view, start).leader_epoch for start in starts} == {1}


def test_patched_batches_are_still_valid_and_give_the_records_offsets() -> None:
    batches = whole()
    assert all_sound(batches.view())
    (first,) = batches.slice(BASE, bytes_max=1, at_least_one=True).views
    assert [record.offset for record in iterate(first)] == [1000, 1001, 1002]


def test_parts_and_the_whole_give_the_same() -> None:
    assert Batches.of(span(), PARTS).view() == whole().view()


def test_source_is_left_as_it_was() -> None:
    source = bytearray(DATA)
    Batches.of(span(), memoryview(source))
    assert source == DATA


def test_writable_bytes_that_were_read_are_patched_where_they_are() -> None:
    source = bytearray(DATA)
    once = Batches.checked(span(), memoryview(source))
    again = Batches.checked(span(), memoryview(source))
    assert once.view() == again.view() == whole().view() == source


def test_slices_cannot_be_written_to() -> None:
    (view,) = whole().slice(BASE, bytes_max=10**9, at_least_one=True).views
    assert view.readonly


def test_slice_begins_with_the_batch_that_contains_the_offset() -> None:
    for offset, expected in {1000: 0, 1002: 0, 1003: 1, 1004: 2, 1008: 2}.items():
        (view,) = whole().slice(offset, bytes_max=10**9, at_least_one=True).views
        assert len(view) == sum(len(part) for part in PARTS[expected:])


def test_limit_stops_before_a_batch() -> None:
    two = len(PARTS[0]) + len(PARTS[1])
    for bytes_max, expected in {
        two - 1: (len(PARTS[0]), 1003),
        two: (two, 1004),
        two + len(PARTS[2]) - 1: (two, 1004),
        len(DATA): (len(DATA), 1009),
    }.items():
        got = whole().slice(BASE, bytes_max=bytes_max, at_least_one=False)
        assert (got.byte_count, got.next_offset) == expected
        assert sum(map(len, got.views)) == got.byte_count


@pytest.mark.parametrize("bytes_max", [-5, 0, 1, len(PARTS[0]) - 1])
def test_limit_without_room_gives_nothing_and_stays_at_the_offset(bytes_max: int) -> None:
    got = whole().slice(1001, bytes_max=bytes_max, at_least_one=False)
    assert got == ([], 0, 1001)


@pytest.mark.parametrize("bytes_max", [-5, 0, 1, len(PARTS[0]) - 1])
def test_first_batch_comes_whole_when_one_is_demanded(bytes_max: int) -> None:
    got = whole().slice(1001, bytes_max=bytes_max, at_least_one=True)
    assert (got.byte_count, got.next_offset) == (len(PARTS[0]), 1003)


@pytest.mark.parametrize(
    "data",
    [
        DATA[:-1],  # Cut off.
        DATA + b"\0",  # Too long.
        PARTS[0],  # A batch is missing.
        b"\0" * len(DATA),
        b"",
    ],
)
def test_other_bytes_than_the_spans_are_an_error_never_a_gap(data: bytes) -> None:
    with pytest.raises(DamagedSpanError):
        Batches.of(span(), data)
    with pytest.raises(DamagedSpanError):
        Batches.of(span(data or DATA), data)


def test_other_count_of_records_than_the_spans_is_an_error() -> None:
    for records in (8, 10):
        with pytest.raises(DamagedSpanError, match="9 records"):
            Batches.of(span(records=records), DATA)


@pytest.mark.parametrize("at", [21, 60, len(PARTS[0]) + 70, len(DATA) - 1])
def test_damaged_batch_is_found_where_it_is_checked(at: int) -> None:
    damaged = bytearray(DATA)
    damaged[at] ^= 1
    with pytest.raises(DamagedSpanError):
        Batches.checked(span(), memoryview(damaged))


def test_sound_batches_pass_the_check() -> None:
    assert Batches.checked(span(), memoryview(DATA)).view() == whole().view()


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=8),
    st.integers(0, 2000),
    st.booleans(),
    st.data(),
)
def test_reading_slice_by_slice_gives_every_batch_once(
    sizes: list[int], bytes_max: int, at_least_one: bool, data: st.DataObject
) -> None:
    parts = [batch(size, value=b"x" * (7 * size)) for size in sizes]
    batches = Batches.of(span(b"".join(parts), sum(sizes)), parts)
    offset = data.draw(st.integers(BASE, BASE + sum(sizes) - 1))
    first = next(n for n in range(len(sizes)) if BASE + sum(sizes[: n + 1]) > offset)
    got = b""
    while offset < batches.span.next_offset:
        piece = batches.slice(offset, bytes_max=bytes_max, at_least_one=at_least_one)
        if not piece.views:
            assert not at_least_one
            return
        assert piece.byte_count <= bytes_max or (at_least_one and len(piece.views) == 1)
        got += b"".join(piece.views)
        assert piece.next_offset > offset
        offset = piece.next_offset
    assert got == bytes(batches.view())[sum(map(len, parts[:first])) :]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_becomes_one_control_batch_at_its_offset(commit: bool) -> None:
    marker = Marker(1234, producer_id=7, producer_epoch=3, commit=commit, timestamp=99)
    batches = Batches.of_marker(marker)
    assert all_sound(batches.view())
    piece = batches.slice(1234, bytes_max=MARKER_BYTES, at_least_one=False)
    assert (piece.byte_count, piece.next_offset) == (MARKER_BYTES, 1235)
    (view,) = piece.views
    assert view.readonly
    header = read_header(view)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    (record,) = iterate(view)
    assert (record.offset, record.timestamp) == (1234, 99)
    assert record.key == (b"\0\0\0\1" if commit else b"\0\0\0\0")


def test_a_marker_that_does_not_fit_is_left_for_the_next_fetch() -> None:
    batches = Batches.of_marker(Marker(5, 7, 3, commit=True, timestamp=99))
    piece = batches.slice(5, bytes_max=MARKER_BYTES - 1, at_least_one=False)
    assert piece == ([], 0, 5)
    assert batches.slice(5, bytes_max=0, at_least_one=True).byte_count == MARKER_BYTES


def test_nothing_that_begins_at_the_bound_or_later_is_given() -> None:
    # The batches begin at 1000, 1003 and 1004.
    for before, count, next_offset in ((1003, 1, 1003), (1004, 2, 1004), (1009, 3, 1009)):
        for offset in (1000, 1002):
            got = whole().slice(offset, bytes_max=10**9, at_least_one=False, before=before)
            assert got.byte_count == sum(map(len, PARTS[:count]))
            assert got.next_offset == next_offset


def test_the_bound_holds_for_the_first_batch_too_which_lies_before_it() -> None:
    got = whole().slice(1003, bytes_max=0, at_least_one=True, before=1004)
    assert (got.byte_count, got.next_offset) == (len(PARTS[1]), 1004)


SEGMENT = CHUNK._replace(kind=ObjectKind.SEGMENT)
HOLED = [  # Offsets 1002-1004, 1010, 1011-1012; the span is of 1000 to 1012.
    build_batch([Record(-1, 5, b"k", b"v")] * 3, base_offset=1002),
    build_batch([Record(-1, 5, b"k", b"v")], base_offset=1010),
    build_batch([Record(-1, 5, b"k", b"v")] * 2, base_offset=1011),
]


def holed(*, base_offset: int = 1000, records: int = 13, parts: list[bytes] = HOLED) -> Batches:
    data = b"".join(parts)
    segment_span = Span(SEGMENT, 16, len(data), base_offset, records, 5)
    return Batches.checked(segment_span, memoryview(data))


def test_batches_of_a_segment_keep_the_offsets_that_they_say_and_are_not_copied() -> None:
    data = memoryview(b"".join(HOLED))
    batches = Batches.checked(Span(SEGMENT, 16, len(data), 1000, 13, 5), data)
    assert batches.view() == data
    assert batches.view().obj is data.obj


@pytest.mark.parametrize(
    ("offset", "first"),
    [(1000, 0), (1002, 0), (1004, 0), (1005, 1), (1009, 1), (1010, 1), (1011, 2), (1012, 2)],
)
def test_slice_of_a_segment_begins_with_the_first_batch_that_is_not_before_the_offset(
    offset: int, first: int
) -> None:
    got = holed().slice(offset, bytes_max=10**6, at_least_one=False)
    assert b"".join(got.views) == b"".join(HOLED[first:])
    assert got.next_offset == 1013


def test_slice_that_stops_before_a_hole_goes_on_behind_its_last_record() -> None:
    got = holed().slice(1000, bytes_max=len(HOLED[0]), at_least_one=False)
    assert (b"".join(got.views), got.next_offset) == (HOLED[0], 1005)
    got = holed().slice(1005, bytes_max=0, at_least_one=True)
    assert (b"".join(got.views), got.next_offset) == (HOLED[1], 1011)
    got = holed().slice(1005, bytes_max=0, at_least_one=False)
    assert (got.views, got.next_offset) == ([], 1005)


def test_slice_of_a_segment_stops_before_a_batch_at_the_bound() -> None:
    for bound, parts in {1003: 1, 1010: 1, 1011: 2, 1012: 3}.items():
        got = holed().slice(1001, bytes_max=10**6, at_least_one=True, before=bound)
        assert b"".join(got.views) == b"".join(HOLED[:parts])


@pytest.mark.parametrize(
    ("base_offset", "records", "parts"),
    [
        (1003, 10, HOLED),  # The first begins before the span.
        (1000, 14, HOLED),  # The last does not end with it,
        (1000, 12, HOLED),  # or ends behind it.
        (1000, 13, [HOLED[1], HOLED[0], HOLED[2]]),
        (1000, 13, [HOLED[0], HOLED[0], *HOLED[1:]]),
        (1000, 13, [*HOLED[:2], build_batch([Record(), Record(), Record()], base_offset=1010)]),
        (1000, 13, [build_batch([Record()], base_offset=2**63 - 1), *HOLED]),
        (1000, 13, []),
    ],
)
def test_segment_whose_batches_say_other_offsets_than_the_log_is_refused(
    base_offset: int, records: int, parts: list[bytes]
) -> None:
    with pytest.raises(DamagedSpanError):
        holed(base_offset=base_offset, records=records, parts=parts)


@pytest.mark.parametrize(
    ("epoch", "is_damaged"), [(0, False), (1, True), (-2, True), (1 << 24, True)]
)
def test_a_leader_epoch_in_a_segment_that_nobody_can_have_written_is_found(
    epoch: int, is_damaged: bool
) -> None:
    data = bytearray(b"".join(HOLED))
    patch(data, len(HOLED[0]), 1010, epoch)
    segment_span = Span(SEGMENT, 16, len(data), 1000, 13, 5)
    if is_damaged:
        with pytest.raises(DamagedSpanError, match="epoch"):
            Batches.checked(segment_span, memoryview(data))
    else:
        Batches.checked(segment_span, memoryview(data))


def test_damaged_byte_in_a_segment_is_found_when_it_was_away() -> None:
    data = bytearray(b"".join(HOLED))
    data[-1] ^= 1
    with pytest.raises(DamagedSpanError, match="damaged"):
        Batches.checked(Span(SEGMENT, 16, len(data), 1000, 13, 5), memoryview(data))
