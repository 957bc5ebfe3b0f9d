"""Which reads bring the wanted spans: whole recent chunks, merged ranges of old ones."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.types import Incarnation
from storage.fetch_plan import GAP_BYTES_MAX, RANGE_BYTES_MAX, SpanRead, plan_ranges, plan_reads
from storage.formats.spans import ObjectId, ObjectKind, Page, Span
from tests.storage.build import CHUNK

OTHER = ObjectId(Incarnation(99), 0)
MiB = 1024 * 1024


def span(start: int, length: int, object_id: ObjectId = CHUNK) -> Span:
    return Span(object_id, start, length, 0, 1, 0)


def wanted(
    start: int, length: int, *, object_id: ObjectId = CHUNK, recent: bool = False
) -> SpanRead:
    return SpanRead(span(start, length, object_id), 64 * MiB, recent)


def ranges(*rows: SpanRead) -> list[tuple[int, int]]:
    return [(read.start, read.length) for read in plan_reads(rows, whole_bytes_max=64 * MiB)]


def test_nothing_wanted_is_nothing_read() -> None:
    assert plan_reads([], whole_bytes_max=1) == []


def test_old_span_is_read_as_a_range() -> None:
    assert ranges(wanted(100, 50)) == [(100, 50)]


def test_recent_chunk_is_read_whole_once_for_all_its_spans() -> None:
    (read,) = plan_reads([wanted(100, 50, recent=True), wanted(9000, 1)], whole_bytes_max=64 * MiB)
    assert (read.start, read.length, read.whole) == (0, 64 * MiB, True)
    assert read.pieces == (span(100, 50), span(9000, 1))


def test_recent_chunk_that_the_cache_cannot_hold_is_read_by_range() -> None:
    (read,) = plan_reads([wanted(100, 50, recent=True)], whole_bytes_max=64 * MiB - 1)
    assert (read.start, read.length, read.whole) == (100, 50, False)


def test_adjacent_and_near_spans_are_one_read() -> None:
    assert ranges(wanted(150, 10), wanted(100, 50), wanted(160 + GAP_BYTES_MAX, 5)) == [
        (100, 65 + GAP_BYTES_MAX)
    ]


def test_spans_far_apart_are_reads_of_their_own() -> None:
    assert ranges(wanted(100, 50), wanted(151 + GAP_BYTES_MAX, 5)) == [
        (100, 50),
        (151 + GAP_BYTES_MAX, 5),
    ]


def test_merged_range_does_not_grow_without_bound() -> None:
    assert ranges(*(wanted(at * MiB, MiB) for at in range(20))) == [
        (0, RANGE_BYTES_MAX),
        (RANGE_BYTES_MAX, RANGE_BYTES_MAX),
        (2 * RANGE_BYTES_MAX, 4 * MiB),
    ]


def test_single_span_of_any_length_is_read() -> None:
    assert ranges(wanted(7, 40 * MiB)) == [(7, 40 * MiB)]


def test_span_wanted_twice_is_read_once() -> None:
    (read,) = plan_reads([wanted(1, 2), wanted(1, 2)], whole_bytes_max=1)
    assert read.pieces == (span(1, 2),)


def test_objects_are_read_in_the_order_in_which_they_are_wanted() -> None:
    rows = [wanted(5, 1, object_id=OTHER), wanted(5, 1), wanted(1, 1, object_id=OTHER)]
    reads = plan_reads(rows, whole_bytes_max=1)
    assert [read.object_id for read in reads] == [OTHER, CHUNK]


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.booleans()), max_size=20))
def test_every_wanted_span_comes_by_just_one_read_that_contains_it(
    rows: list[tuple[int, bool, bool]],
) -> None:
    wants = [
        wanted(slot * 100_000, 90_000, object_id=OTHER if other else CHUNK, recent=recent)
        for slot, other, recent in rows
    ]
    reads = plan_reads(wants, whole_bytes_max=64 * MiB)
    brought = [one for read in reads for one in read.pieces]
    assert sorted(brought) == sorted({want.span for want in wants})
    for read in reads:
        for one in read.pieces:
            assert one.object_id == read.object_id
            assert read.start <= one.start
            assert one.start + one.length <= read.end


def test_page_wanted_twice_is_brought_once() -> None:
    index = ObjectId(Incarnation(1), 1, ObjectKind.INDEX)
    first = Page(index, 100, 50, 0, 10, 1, 0, 5, bytes(16))
    second = first._replace(start=16, length=84, base_offset=10, next_offset=20)
    (read,) = plan_ranges([first, second, first])
    assert (read.start, read.length, read.whole) == (16, 134, False)
    assert read.pieces == (second, first)
