"""Which rows leave the memory."""

from broker.jobs.kinds import spill_plan
from broker.jobs.kinds.spill_plan import PAGE_ROWS_MIN, PARTITION_ROWS_MAX, ROWS_LEFT
from tests.broker.jobs.kinds.rows import Rows, settings

NOW_MS = 10_000_000
KEPT = settings(deleted=False)


def planned(
    rows: Rows, *, crowded: bool = False, limits: object = KEPT, age_ms: int = 1000
) -> list[tuple[int, int]]:
    found = spill_plan.spills(
        rows.partition, limits, time_ms=NOW_MS, age_ms=age_ms, crowded=crowded
    )
    return [(spill.rows[0].base_offset, spill.rows[-1].next_offset) for spill in found]


def test_old_rows_of_a_partition_with_very_many_go_but_the_newest():
    rows = Rows()
    rows.spans(PARTITION_ROWS_MAX, records=1)
    assert planned(rows) == []
    rows.span(records=1)
    assert planned(rows) == [(0, PARTITION_ROWS_MAX + 1 - ROWS_LEFT)]


def test_fewer_go_when_all_together_have_too_many():
    rows = Rows()
    rows.spans(ROWS_LEFT + PAGE_ROWS_MIN - 1, records=1)
    assert planned(rows, crowded=True) == []
    rows.span(records=1)
    assert planned(rows) == []
    assert planned(rows, crowded=True) == [(0, PAGE_ROWS_MIN)]


def test_young_and_unstable_rows_stay():
    rows = Rows()
    rows.spans(100, records=1)
    rows.spans(100, records=1, timestamp=NOW_MS)
    assert planned(rows, crowded=True) == [(0, 100)]
    rows.partition.open(7, 80)
    rows.partition.reach(200)
    assert planned(rows, crowded=True) == [(0, 80)]


def test_a_page_has_a_thousand_rows_at_most_and_the_rest_waits():
    rows = Rows()
    rows.spans(2100 + ROWS_LEFT, records=1)
    assert planned(rows) == [(0, 1000), (1000, 2000), (2000, 2100)]


def test_pages_that_are_there_are_left_and_counted_no_more():
    rows = Rows()
    rows.spans(1200, records=1)
    rows.page(0, 1000)
    assert planned(rows) == []
    assert planned(rows, crowded=True) == [(1000, 1200 - ROWS_LEFT)]


def test_a_page_does_not_cross_the_place_that_is_compacted_nor_the_log_start():
    rows = Rows()
    rows.spans(300, records=2)
    rows.partition.clean_to = 200
    rows.partition.start_at(21)
    assert planned(rows, crowded=True) == [(22, 200), (200, 472)]


def test_a_page_is_small_beside_what_the_topic_keeps():
    rows = Rows()
    for timestamp in range(0, 400_000, 1000):
        rows.span(timestamp=timestamp, records=1, length=100)
    by_time = settings(retention_ms=8 * 100_000)
    assert planned(rows, crowded=True, limits=by_time) == [(0, 101), (101, 202), (202, 303)]
    by_size = settings(retention_ms=-1, retention_bytes=8 * 10_000)
    assert planned(rows, crowded=True, limits=by_size) == [(0, 100), (100, 200), (200, 300)]
