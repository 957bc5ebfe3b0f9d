"""What retention lets go of: Kafka's rules, with rows for segments."""

import pytest
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


YOUNG = NOW_MS
# What is said | timestamps of the rows, of ten records each | limits | the offset before which all goes.
DUE = [
    ("older than the limit", [NOW_MS - 102, NOW_MS - 101, NOW_MS - 100], {"retention_ms": 100}, 20),
    ("a young row keeps older ones behind it", [5, YOUNG, 5], {"retention_ms": 100}, 10),
    ("no timestamp goes with a later one", [-1, 5, -1], {"retention_ms": 100}, 20),
    ("written at no time at all stays", [-1, -1, -1], {"retention_ms": 100}, None),
    ("there is still enough", [5] * 5, {"retention_bytes": 301}, 10),
    ("there is just enough", [5] * 5, {"retention_bytes": 300}, 20),
    ("all is just enough", [5] * 5, {"retention_bytes": 500}, None),
    ("bytes go further", [5, *[YOUNG] * 4], {"retention_ms": 100, "retention_bytes": 200}, 30),
    ("age goes further", [5, *[YOUNG] * 4], {"retention_ms": 100, "retention_bytes": 450}, 10),
    ("compacted only", [5] * 5, {"retention_ms": 0, "retention_bytes": 0, "deleted": False}, None),
    ("all is old", [5] * 3, {"retention_ms": 100}, 30),
    ("all is too much", [5] * 3, {"retention_bytes": 0}, 30),
]


@pytest.mark.parametrize(
    ("timestamps", "limits", "offset"), [row[1:] for row in DUE], ids=[row[0] for row in DUE]
)
def test_rows_go_that_are_too_old_or_too_much(timestamps, limits, offset):
    assert due_offset(Rows(*timestamps), **limits) == offset


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
    rows = Rows(*[5] * 4)
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


def test_an_open_transaction_keeps_what_is_behind_its_beginning():
    rows = Rows(*[5] * 2)
    rows.partition.open(7, 20)
    rows.span(timestamp=5)
    assert due_offset(rows, retention_ms=100) == 20
    assert due_offset(rows, retention_bytes=0) == 20


def test_a_page_goes_as_a_whole():
    rows = Rows(*[5] * 3)
    rows.span(timestamp=NOW_MS - 50)
    rows.page(1, 4)
    assert due_offset(rows, retention_ms=100) == 10
    assert due_offset(rows, retention_ms=10) == 40
    assert due_offset(rows, retention_bytes=100) == 10


def test_rows_before_the_log_start_are_dropped_before_anything_else_goes():
    rows = Rows()
    rows.spans(4, length=100)
    rows.partition.start_at(25)
    assert due_offset(rows, retention_bytes=100) is None
    rows.partition.drop_before_start(1000, MOMENT)
    assert due_offset(rows, retention_bytes=200) is None
    assert due_offset(rows, retention_bytes=100) == 30


def test_a_command_names_a_thousand_rows_at_most():
    rows = Rows(*[5] * 1500)
    found = retention_plan.due(rows.partition, settings(retention_ms=100), time_ms=NOW_MS)
    assert found is not None
    assert (found.expiry.offset, found.rows) == (10_000, 1000)


def test_only_the_limit_that_is_exceeded_is_named_to_apply():
    rows = Rows(5)
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


AGES = [NOW_MS - age for age in (160, 151, 150, 120, 100)]
TOO_MUCH = {"retention_ms": -1, "retention_bytes": 0}
# What is said | timestamps of the rows | how far the export is | limits | as above.
HELD = [
    ("not exported", AGES, 0, {}, 20),
    ("exported in part", AGES, 29, {}, 20),
    ("exported", AGES, 30, {}, 30),
    ("exported and young", AGES, 50, {}, 40),
    ("all old at once", AGES, 0, {"retention_ms": 0}, 50),
    ("held for longer", AGES, 0, {"retention_ms": 0, "hold_ms": 120}, 30),
    ("too much and held for long", [NOW_MS - age for age in (60, 51, 50, 40)], 0, TOO_MUCH, 20),
    ("too much, exported", [NOW_MS - age for age in (60, 51, 50, 40)], 30, TOO_MUCH, 30),
    ("too much, all exported", [NOW_MS - age for age in (60, 51, 50, 40)], 40, TOO_MUCH, 40),
    ("without timestamp", [-1, 5, -1], 0, TOO_MUCH, 20),
    ("without timestamp, exported", [-1, 5, -1], 30, TOO_MUCH, 30),
]


@pytest.mark.parametrize(
    ("timestamps", "exported", "limits", "offset"),
    [row[1:] for row in HELD],
    ids=[row[0] for row in HELD],
)
def test_what_is_held_goes_when_it_is_exported_or_was_held_for_long(
    timestamps, exported, limits, offset
):
    assert held_offset(Rows(*timestamps), exported, **limits) == offset


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
