"""Which rows are merged: enough of a size, old, stable; and what has to move in any case."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from broker.jobs.kinds import merge_plan
from broker.jobs.kinds.merge_plan import Limits, PagedObjects, Use, runs
from storage.formats.page import decode_rows, encode_rows
from storage.formats.segment import FORMAT
from storage.formats.spans import ObjectKind, Page, Span
from tests.broker.jobs.kinds.rows import Rows

NOW_MS = 1_000_000
OLD = NOW_MS - 2_000
"""Old enough to be merged, too young to have to move."""
SETTLED = NOW_MS - 100_000
LIMITS = Limits(age_ms=1_000, span_bytes_max=10_000)
SEGMENT = ObjectKind.SEGMENT


def planned(rows: Rows, limits: Limits = LIMITS, **more: object) -> list[tuple[int, int]]:
    found = runs(rows.partition, limits, time_ms=NOW_MS, **more)
    return [(run.base_offset, run.next_offset) for run in found]


def some(count: int, timestamp: int = OLD, **fields: object) -> list[dict[str, object]]:
    return [{"timestamp": timestamp, **fields}] * count


LATER = NOW_MS + 3_600_000
# What is said | rows, of ten records each | limits | runs that are merged.
PLANNED = [
    ("three of a size", some(3), LIMITS, []),
    ("four of a size", some(4), LIMITS, [(0, 40)]),
    ("a big row before small ones", some(1, length=1000, kind=SEGMENT) + some(6), LIMITS, [(10, 70)]),
    ("small rows before a big one", some(5) + some(1, length=2400), LIMITS, [(0, 50)]),
    ("young ones stay", some(5) + some(5, NOW_MS - 500), LIMITS, [(0, 50)]),
    ("old when a later one is", some(3, LATER) + some(1), LIMITS, [(0, 40)]),
    ("times to come", some(merge_plan.NEW_ROWS_MAX + 4, LATER), LIMITS, [(0, 40)]),
    ("no more than a span", some(25, length=1000), LIMITS, [(0, 100), (100, 200), (200, 250)]),
    ("no wider than the topic allows", [some(1, at)[0] for at in range(0, 1000, 100)],
     LIMITS._replace(width_ms_max=400, age_ms=400_000), [(0, 50), (50, 100)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spans", "limits", "expected"), [row[1:] for row in PLANNED], ids=[row[0] for row in PLANNED]
)
def test_rows_of_a_size_that_are_old_become_one(spans, limits, expected):
    rows = Rows()
    for fields in spans:
        rows.span(**fields)
    assert planned(rows, limits) == expected


def test_what_an_open_transaction_may_still_take_back_stays():
    rows = Rows(*[OLD] * 4)
    rows.partition.open(7, 40)
    rows.spans(8, timestamp=OLD)
    assert planned(rows) == [(0, 40)]


def test_markers_are_merged_with_what_is_around_them():
    rows = Rows(*[OLD] * 3)
    rows.marker(timestamp=OLD)
    rows.span(timestamp=OLD)
    assert planned(rows) == [(0, 41)]


def test_pages_and_the_place_that_is_compacted_are_not_crossed():
    rows = Rows(*[OLD] * 20)
    rows.partition.clean_to = 100
    assert planned(rows) == [(0, 100), (100, 200)]
    rows.page(0, 8)
    assert planned(rows) == [(100, 200)]


def test_rows_before_the_log_start_are_left_to_be_dropped():
    rows = Rows(*[OLD] * 10)
    rows.partition.start_at(55)
    assert planned(rows) == [(50, 100)]


def test_nothing_stays_in_a_chunk_for_long():
    rows = Rows()
    rows.span(timestamp=SETTLED, kind=SEGMENT)
    rows.span(timestamp=SETTLED)
    rows.span(timestamp=SETTLED, kind=SEGMENT)
    rows.span(timestamp=OLD)
    assert planned(rows) == [(0, 40)]
    rows.span(timestamp=OLD, length=5000)
    rows.partition.open(7, rows.partition.end_offset)
    rows.span(timestamp=NOW_MS)
    assert planned(rows) == [(0, 40)]
    alone = Rows()
    alone.span(timestamp=SETTLED)
    assert planned(alone) == [(0, 10)]


def test_a_partition_without_anything_new_is_looked_at_now_and_then_only():
    rows = Rows()
    rows.spans(4, timestamp=OLD, kind=SEGMENT)
    rows.marker(timestamp=OLD)
    rows.partition.segment_bytes = rows.partition.data_bytes
    assert planned(rows) == []
    assert planned(rows, everything=True) == [(0, 41)]


def test_what_lies_in_objects_of_little_use_moves_however_big_it_is():
    rows = Rows()
    big = rows.span(timestamp=OLD, length=9000, kind=SEGMENT, object_length=100_000)
    rows.span(timestamp=OLD, length=9000, kind=SEGMENT)
    rows.span(timestamp=OLD)
    assert planned(rows) == []
    assert planned(rows, sparse={big.object_id}, everything=True) == [(0, 10)]


def test_segments_of_least_use_are_emptied_until_little_is_wasted():
    ids = [Rows().span().object_id._replace(number=number) for number in range(4)]
    lengths = dict.fromkeys(ids, FORMAT.length(data_bytes=100, pieces=2))
    whole = dict.fromkeys(ids, Use(100, 2))
    assert merge_plan.sparse_objects(whole, lengths) == frozenset()
    used = {
        **whole,
        ids[0]: Use(50, 1),
        ids[1]: Use(10, 1),
        ids[3]: Use(100 + FORMAT.row.size - 5, 1),
    }
    assert merge_plan.sparse_objects(used, lengths) == {ids[0], ids[1]}


def test_what_rows_use_of_segments_is_counted_and_chunks_are_left_in_any_case():
    rows = Rows()
    first, *_ = spans = [*rows.spans(2, kind=SEGMENT), rows.span()]
    used: dict[object, Use] = {}
    merge_plan.add_used(used, [*spans, rows.marker(), first])
    assert used == {first.object_id: Use(200, 2), spans[1].object_id: Use(100, 1)}


@hypothesis_settings(max_examples=60)
@given(st.lists(st.integers(1, 300), max_size=120), st.booleans())
def test_merging_ends_with_few_rows_of_all_bytes(lengths, wide):
    """Rows as they come, merged now and then: what is left grows with the logarithm."""
    limits = Limits(age_ms=0, span_bytes_max=4_000, width_ms_max=None if wide else 10**9)
    sizes: list[int] = []
    moved = 0
    for count, length in enumerate(lengths, start=1):
        sizes.append(length)
        if count % 7:
            continue
        while True:
            spans = [Span(Rows().span().object_id, 0, size, 0, 1, 5) for size in sizes]
            found = merge_plan.worth_merging(spans, limits)
            if not found:
                break
            ends = 0
            new: list[int] = []
            for first, end in found:
                assert ends <= first < end - 3
                run = sizes[first:end]
                assert max(run) * merge_plan.FANIN <= sum(run) <= limits.span_bytes_max
                moved += sum(run)
                new += [*sizes[ends:first], sum(run)]
                ends = end
            sizes = [*new, *sizes[ends:]]
    assert sum(sizes) == sum(lengths)
    assert moved <= 5 * sum(lengths)
    full = sum(sizes) // (limits.span_bytes_max // merge_plan.FANIN)
    assert len(sizes) <= 3 * full + 35


def test_what_a_round_remembers_of_rows_in_pages_is_a_few_bytes_each():
    """Also where each row of a page lies in another object; each page's rows are read anew."""
    rows = Rows(*range(1_000), 5_000)
    inside = [row for row in map(rows.partition.row, range(1_000)) if isinstance(row, Span)]
    body = encode_rows(inside)
    page = rows.page(0, 1_000)
    paged = PagedObjects()
    paged.add(rows.partition, page, inside)
    tracemalloc.start()
    try:
        for _ in range(50):
            read = decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
            paged.add(rows.partition, page, read)
        del read
        remembered, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert remembered < 8 * 50 * 1_000


def test_pages_come_back_whose_rows_are_in_chunks_or_in_sparse_objects():
    rows = Rows()
    for kind in [SEGMENT] * 6 + [ObjectKind.CHUNK] * 3 + [SEGMENT]:
        rows.span(kind=kind)
    inside = [row for row in map(rows.partition.row, range(9)) if isinstance(row, Span)]
    paged = PagedObjects()
    pages = []
    for first in (0, 1, 2):  # Those before are pages by then.
        pages.append(rows.page(first, first + 3))
        paged.add(rows.partition, pages[-1], inside[3 * first : 3 * first + 3])

    def recalled(*sparse: Span, rows_max: int = 100) -> list[Page]:
        found = paged.to_recall({row.object_id for row in sparse}, rows_max=rows_max)
        return [page for _, page in found]

    assert recalled() == pages[2:]
    assert recalled(inside[4]) == pages[1:]
    assert recalled(inside[0], inside[4]) == pages
    assert recalled(inside[0], inside[4], rows_max=8) == pages[:2]
    assert recalled(inside[0], inside[4], rows_max=1) == pages[:1]
