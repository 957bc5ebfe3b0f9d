"""Which partitions are due for compaction, and how far: Kafka's rules."""

from broker.jobs.kinds import compaction_plan
from broker.jobs.kinds.compaction_plan import LITTLE_BYTES, Cleaning
from storage.formats.spans import ObjectKind
from tests.broker.jobs.kinds.rows import Rows, settings

NOW_MS = 100_000_000
OLD = NOW_MS - compaction_plan.YOUNG_MS
COMPACT = settings(compacted=True, deleted=False)
SEGMENT = ObjectKind.SEGMENT


def due(rows: Rows, *, requested: bool = False, **changed: object) -> Cleaning | None:
    limits = settings(compacted=True, deleted=False, **changed)
    return compaction_plan.cleaning(rows.partition, limits, time_ms=NOW_MS, requested=requested)


def bound(rows: Rows, **changed: object) -> int | None:
    found = due(rows, **changed)
    return None if found is None else found.bound


def test_what_was_never_compacted_is_due_up_to_the_last_stable_offset():
    rows = Rows(*[OLD] * 3)
    assert bound(rows) == 30
    rows.partition.open(7, 20)
    rows.partition.reach(30)
    assert bound(rows) == 20


def test_topics_that_are_not_compacted_are_never_due():
    rows = Rows(*[OLD] * 3)
    found = compaction_plan.cleaning(rows.partition, settings(), time_ms=NOW_MS)
    assert found is None


def test_more_than_the_ratio_must_be_dirty():
    rows = Rows(*[OLD] * 2, kind=SEGMENT)
    rows.partition.clean_to = 20
    rows.spans(2, timestamp=OLD)
    assert due(rows, min_cleanable_dirty_ratio=0.5) is None
    assert bound(rows, min_cleanable_dirty_ratio=0.49) == 40
    rows.span(timestamp=OLD)
    found = due(rows, min_cleanable_dirty_ratio=0.5)
    assert found is not None
    assert (found.dirty_from, found.bound, found.dirty_bytes) == (20, 50, 300)


def test_what_is_beyond_the_bound_counts_neither_as_dirty_nor_as_clean():
    rows = Rows(*[OLD] * 2, kind=SEGMENT)
    rows.partition.clean_to = 20
    rows.spans(1, timestamp=OLD)
    rows.spans(9, timestamp=NOW_MS)
    assert due(rows, min_compaction_lag_ms=1000, min_cleanable_dirty_ratio=0.34) is None
    assert bound(rows, min_compaction_lag_ms=1000, min_cleanable_dirty_ratio=0.33) == 30


def test_what_is_younger_than_the_lag_waits_and_what_is_behind_it_too():
    rows = Rows(OLD)
    rows.span(timestamp=NOW_MS - 10)
    rows.span(timestamp=OLD)
    assert bound(rows, min_compaction_lag_ms=11) == 10
    assert bound(rows, min_compaction_lag_ms=10) == 30


def test_what_waited_for_the_longest_lag_is_due_whatever_the_ratio():
    rows = Rows(*[OLD] * 99, kind=SEGMENT)
    rows.partition.clean_to = 990
    rows.span(timestamp=NOW_MS - 5000)
    assert due(rows, max_compaction_lag_ms=5000) is None
    assert bound(rows, max_compaction_lag_ms=4999) == 1000


def test_little_that_is_young_waits_unless_somebody_asks():
    rows = Rows()
    rows.span(timestamp=NOW_MS - 1000)
    assert due(rows) is None
    assert bound(rows, requested=True) == 10
    rows.span(timestamp=NOW_MS - 1000, length=LITTLE_BYTES)
    assert bound(rows) == 20


def test_nothing_new_is_not_due_even_at_a_ratio_of_zero():
    rows = Rows(*[OLD] * 2, kind=SEGMENT)
    rows.partition.clean_to = 20
    assert due(rows, min_cleanable_dirty_ratio=0.0, requested=True) is None


def test_what_a_client_deleted_is_not_looked_at():
    rows = Rows(*[OLD] * 3)
    rows.partition.start_at(15)
    found = due(rows)
    assert found is not None
    assert (found.dirty_from, found.dirty_bytes) == (15, 200)


def test_windows_are_of_so_many_bytes_and_at_least_a_row():
    rows = Rows()
    for length in (100, 100, 500, 100):
        rows.span(length=length)
    ends = [
        compaction_plan.window_end(rows.partition, offset, 40, bytes_max=200)
        for offset in (0, 20, 30)
    ]
    assert ends == [20, 30, 40]
    assert compaction_plan.window_end(rows.partition, 0, 20, bytes_max=10_000) == 20
