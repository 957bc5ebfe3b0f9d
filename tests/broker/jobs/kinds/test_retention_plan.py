"""What retention lets go of: Kafka's rules, with rows for segments."""

from hypothesis import given
from hypothesis import strategies as st

from broker.jobs.kinds import retention_plan
from broker.jobs.kinds.walk import data_bytes_of
from coordinator.commands.entries import Tick
from coordinator.commands.job_commands import LogsTrimmed, Trimmed
from coordinator.commands.table_commands import (
    ExpireHeldRecords,
    ExportEnd,
    HeldExpiry,
    ReportExport,
)
from protocol.errors import ErrorCode
from storage.formats.spans import ObjectKind
from tests.broker.jobs.kinds.rows import MOMENT, Rows, settings
from tests.coordinator.machine.job_story import JobStory

NOW_MS = 10_000


def due_offset(rows: Rows, **changed: object) -> int | None:
    found = retention_plan.due(
        rows.partition, settings(**{"retention_ms": -1, **changed}), time_ms=NOW_MS
    )
    return None if found is None else found.expiry.offset


def test_rows_go_whose_newest_record_is_older_than_the_topics_limit():
    rows = Rows()
    rows.span(timestamp=NOW_MS - 102)
    rows.span(timestamp=NOW_MS - 101)
    rows.span(timestamp=NOW_MS - 100)
    assert due_offset(rows, retention_ms=100) == 20


def test_a_young_row_keeps_older_ones_behind_it():
    rows = Rows()
    for timestamp in (5, NOW_MS, 5):
        rows.span(timestamp=timestamp)
    assert due_offset(rows, retention_ms=100) == 10


def test_a_row_without_timestamp_goes_with_a_later_one_only():
    rows = Rows()
    for timestamp in (-1, 5, -1):
        rows.span(timestamp=timestamp)
    assert due_offset(rows, retention_ms=100) == 20


def test_what_was_written_at_no_time_at_all_stays():
    rows = Rows()
    rows.spans(3, timestamp=-1)
    assert due_offset(rows, retention_ms=100) is None


def test_rows_of_chunks_are_to_be_read_before_they_go_for_their_age():
    rows = Rows()
    first = rows.span(timestamp=5)
    rows.span(timestamp=5, kind=ObjectKind.SEGMENT)
    rows.marker(timestamp=5)
    last = rows.span(timestamp=5)
    rows.span(timestamp=NOW_MS)
    old = settings(retention_ms=100)
    found = retention_plan.due(rows.partition, old, time_ms=NOW_MS)
    assert found is not None
    assert retention_plan.unread(rows.partition, found, {}) == [first, last]
    assert retention_plan.unread(rows.partition, found, {first: 5}) == [last]
    assert retention_plan.unread(rows.partition, found, {first: 5, last: 5}) == []


def test_rows_that_are_too_much_go_unread():
    rows = Rows()
    rows.spans(4, timestamp=5)
    for more in ({"retention_ms": -1}, {"retention_ms": 100}):
        limits = settings(retention_bytes=0, **more)
        found = retention_plan.due(rows.partition, limits, time_ms=NOW_MS)
        assert found is not None
        assert retention_plan.unread(rows.partition, found, {}) == []


def test_a_row_that_was_found_to_be_young_stays_and_keeps_those_behind_it():
    rows = Rows()
    _, young, _ = rows.spans(3, timestamp=5)
    old = settings(retention_ms=100)
    found = retention_plan.due(rows.partition, old, time_ms=NOW_MS, read={young: NOW_MS})
    assert found is not None
    assert (found.expiry.offset, found.rows) == (10, 1)


def test_a_row_that_was_found_to_have_no_timestamp_goes_with_a_later_one_only():
    rows = Rows()
    first, second, third = rows.spans(3, timestamp=5)
    old = settings(retention_ms=100)
    found = retention_plan.due(rows.partition, old, time_ms=NOW_MS, read={first: -1, third: -1})
    assert found is not None
    assert found.expiry.offset == second.next_offset
    assert (
        retention_plan.due(
            rows.partition, old, time_ms=NOW_MS, read=dict.fromkeys((first, second, third), -1)
        )
        is None
    )


def test_a_row_that_was_found_to_be_old_goes_only_when_apply_knows_it():
    rows = Rows()
    said_young = rows.span(timestamp=NOW_MS)
    old = settings(retention_ms=100)
    assert retention_plan.due(rows.partition, old, time_ms=NOW_MS, read={said_young: 5}) is None


def test_rows_go_without_which_there_is_still_enough():
    rows = Rows()
    rows.spans(5, length=100)
    assert due_offset(rows, retention_bytes=301) == 10
    assert due_offset(rows, retention_bytes=300) == 20
    assert due_offset(rows, retention_bytes=500) is None


def test_the_further_of_both_limits_counts():
    rows = Rows()
    rows.span(timestamp=5)
    rows.spans(4, timestamp=NOW_MS)
    assert due_offset(rows, retention_ms=100, retention_bytes=200) == 30
    assert due_offset(rows, retention_ms=100, retention_bytes=450) == 10


def test_nothing_goes_of_a_topic_that_is_compacted_only():
    rows = Rows()
    rows.spans(5, timestamp=5)
    assert due_offset(rows, retention_ms=0, retention_bytes=0, deleted=False) is None


def test_an_open_transaction_keeps_what_is_behind_its_beginning():
    rows = Rows()
    rows.spans(2, timestamp=5)
    rows.partition.open(7, 20)
    rows.span(timestamp=5)
    assert due_offset(rows, retention_ms=100) == 20
    assert due_offset(rows, retention_bytes=0) == 20


def test_a_page_goes_as_a_whole():
    rows = Rows()
    rows.spans(3, timestamp=5)
    rows.span(timestamp=NOW_MS - 50)
    rows.page(1, 4)
    assert due_offset(rows, retention_ms=100) == 10
    assert due_offset(rows, retention_ms=10) == 40
    assert due_offset(rows, retention_bytes=100) == 10


def test_all_of_a_partition_may_go():
    rows = Rows()
    rows.spans(3, timestamp=5)
    assert due_offset(rows, retention_ms=100) == 30
    assert due_offset(rows, retention_bytes=0) == 30


def test_rows_before_the_log_start_are_dropped_before_anything_else_goes():
    rows = Rows()
    rows.spans(4, length=100)
    rows.partition.start_at(25)
    assert due_offset(rows, retention_bytes=100) is None
    rows.partition.drop_before_start(1000, MOMENT)
    assert due_offset(rows, retention_bytes=200) is None
    assert due_offset(rows, retention_bytes=100) == 30


def test_a_command_names_a_thousand_rows_at_most():
    rows = Rows()
    rows.spans(1500, timestamp=5)
    found = retention_plan.due(rows.partition, settings(retention_ms=100), time_ms=NOW_MS)
    assert found is not None
    assert (found.expiry.offset, found.rows) == (10_000, 1000)


def test_only_the_limit_that_is_exceeded_is_named_to_apply():
    rows = Rows()
    rows.span(timestamp=5)
    rows.spans(3, timestamp=NOW_MS)
    for bytes_max, named in ((350, (100, -1)), (100, (-1, 100)), (300, (100, 300))):
        limits = settings(retention_ms=100, retention_bytes=bytes_max)
        found = retention_plan.due(rows.partition, limits, time_ms=NOW_MS)
        assert found is not None
        assert (found.expiry.retention_ms, found.expiry.retention_bytes) == named


def test_rows_before_the_log_start_are_dropped_after_their_page_came_back():
    rows = Rows()
    rows.spans(3)
    page = rows.page(0, 2)
    assert not retention_plan.has_dead_rows(rows.partition)
    rows.partition.start_at(15)
    assert not retention_plan.has_dead_rows(rows.partition)
    rows.partition.start_at(20)
    assert retention_plan.has_dead_rows(rows.partition)
    assert retention_plan.first_page(rows.partition) == page


def held_offset(rows: Rows, exported: int, **changed: object) -> int | None:
    limits = settings(**{"retention_ms": 100, "hold_ms": 50, **changed})
    found = retention_plan.due(rows.partition, limits, time_ms=NOW_MS, exported=exported)
    assert found is None or isinstance(found.expiry, HeldExpiry)
    return None if found is None else found.expiry.offset


def test_old_rows_wait_for_the_export_but_not_for_ever():
    rows = Rows()
    for age in (160, 151, 150, 120, 100):
        rows.span(timestamp=NOW_MS - age)
    assert held_offset(rows, 0) == 20
    assert held_offset(rows, 29) == 20
    assert held_offset(rows, 30) == 30
    assert held_offset(rows, 50) == 40
    assert held_offset(rows, 0, retention_ms=0) == 50
    assert held_offset(rows, 0, retention_ms=0, hold_ms=120) == 30


def test_rows_that_are_too_much_wait_as_well():
    rows = Rows()
    for age in (60, 51, 50, 40):
        rows.span(timestamp=NOW_MS - age)
    only_size = {"retention_ms": -1, "retention_bytes": 0}
    assert held_offset(rows, 0, **only_size) == 20
    assert held_offset(rows, 30, **only_size) == 30
    assert held_offset(rows, 40, **only_size) == 40


def test_a_row_without_timestamp_waits_for_the_export_or_a_later_row():
    rows = Rows()
    for timestamp in (-1, 5, -1):
        rows.span(timestamp=timestamp)
    only_size = {"retention_ms": -1, "retention_bytes": 0}
    assert held_offset(rows, 0, **only_size) == 20
    assert held_offset(rows, 30, **only_size) == 30


@given(
    st.lists(st.tuples(st.integers(-1, 50), st.integers(1, 50)), min_size=1, max_size=20),
    st.integers(-1, 50),
    st.integers(-1, 500),
    st.integers(0, 30),
    st.integers(0, 200),
)
def test_what_is_held_is_exported_or_old_when_it_goes_and_apply_agrees(
    written, retention_ms, retention_bytes, hold_ms, exported
):
    story = JobStory()
    for timestamp, _ in written:
        story.produce(10, timestamp=timestamp)
    story.do(story.agent, Tick(), clock_ms=1_000)
    now_ms = story.machine.time_ms
    exported = min(exported, story.row.end_offset)
    story.do(story.agent, ReportExport(story.topic_id, (ExportEnd(0, exported),)))
    limits = settings(
        retention_ms=retention_ms + now_ms - 40 if retention_ms >= 0 else -1,
        retention_bytes=retention_bytes,
        hold_ms=hold_ms + (now_ms - 40 if retention_ms < 0 else 0),
    )
    old_ms = now_ms - retention_plan.held_ms(limits)
    rows = story.rows()
    while due := retention_plan.due(story.row, limits, time_ms=now_ms, exported=exported):
        assert isinstance(due.expiry, HeldExpiry)
        outcome = story.do(story.agent, ExpireHeldRecords(story.machine.position, (due.expiry,)))
        assert outcome == LogsTrimmed((Trimmed(ErrorCode.NONE, due.expiry.offset),))
        for row in rows:
            if exported < row.next_offset <= due.expiry.offset:
                assert row.timestamp_max < old_ms


@given(
    st.lists(st.tuples(st.integers(-1, 50), st.integers(1, 50)), min_size=1, max_size=20),
    st.integers(-1, 50),
    st.integers(-1, 500),
)
def test_what_goes_is_over_a_limit_and_what_stays_is_not(written, retention_ms, retention_bytes):
    rows = Rows()
    for timestamp, length in written:
        rows.span(timestamp=timestamp, length=length)
    limits = settings(retention_ms=retention_ms, retention_bytes=retention_bytes)
    every = [rows.partition.row(index) for index in range(rows.partition.row_count)]
    old_ms = 40 - retention_ms if retention_ms >= 0 else -1
    left = every
    while found := retention_plan.due(rows.partition, limits, time_ms=40):
        rows.partition.start_at(found.expiry.offset)
        rows.partition.drop_before_start(1000, MOMENT)
        gone = [row for row in left if row.next_offset <= found.expiry.offset]
        left = left[len(gone) :]
        assert (left[0].base_offset if left else rows.partition.end_offset) == found.expiry.offset
        enough = sum(map(data_bytes_of, left)) >= retention_bytes >= 0
        assert enough or all(row.timestamp_max < old_ms for row in gone)
    if left and retention_bytes >= 0:
        assert sum(map(data_bytes_of, left[1:])) < retention_bytes
    if left and left[0].timestamp_max >= 0:
        assert left[0].timestamp_max >= old_ms
