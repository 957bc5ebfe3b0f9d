"""What jobs propose about rows is judged against what is there: trims, expiry, moves, pages."""

from dataclasses import replace

import pytest

from coordinator.commands.entries import DONE, DeleteTopic, Rejected
from coordinator.commands.group_commands import SetTopicConfigs
from coordinator.commands.job_commands import (
    JOB_ROWS_MAX,
    SPILL_ROWS_MAX,
    DropRows,
    ExpireRecords,
    Expiry,
    JobKind,
    LogsTrimmed,
    NewSpan,
    Replacement,
    ReplaceRows,
    RowsMoved,
    SpillRows,
    Trim,
    TrimLogs,
    Trimmed,
)
from coordinator.machine import job_applier
from coordinator.tables import partitions
from coordinator.tables.objects import OBJECT_NUMBERS_AHEAD_MAX
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position, TopicId
from storage.formats.spans import Item, ObjectId, ObjectKind, Page, Span
from tests.coordinator.machine.job_story import SPAN_BYTES, JobStory
from tests.coordinator.machine.story import batch, plain, span
from txn.transactions import OF_EPOCH

NONE = ErrorCode.NONE
GONE = ErrorCode.OFFSET_OUT_OF_RANGE
OTHERS = ErrorCode.INVALID_UPDATE_VERSION
NO_SENSE = ErrorCode.INVALID_REQUEST


def trim(story: JobStory, offset: int, *, partition: int = 0) -> Trimmed:
    command = TrimLogs((Trim(story.topic_id, partition, offset),))
    outcome = story.do(story.agent, command)
    assert isinstance(outcome, LogsTrimmed)
    (result,) = outcome.results
    return result


# Trims.


def test_a_log_may_start_within_a_row():
    story = JobStory(10, 10)
    assert trim(story, 13) == (NONE, 13)
    assert (story.row.log_start, story.row.row_count) == (13, 1)
    assert story.rows()[0].base_offset == 10


def test_a_log_starts_at_its_end_when_all_is_deleted():
    story = JobStory(10, 10)
    assert trim(story, -1) == (NONE, 20)
    assert (story.row.row_count, story.row.data_bytes, len(story.machine.objects)) == (0, 0, 0)
    story.produce(5)
    (row,) = story.rows()
    assert (row.base_offset, row.next_offset, story.row.log_start) == (20, 25, 20)


def test_offsets_that_are_gone_already_are_no_error():
    story = JobStory(10)
    trim(story, 5)
    assert trim(story, 3) == (NONE, 5)
    assert trim(story, 0) == (NONE, 5)


@pytest.mark.parametrize("offset", [11, 2**62, -2, -(2**63)])
def test_offsets_beyond_the_end_are_out_of_range(offset: int):
    story = JobStory(10)
    assert trim(story, offset) == (GONE, 0)


@pytest.mark.parametrize("partition", [-1, 1])
def test_a_partition_that_is_not_there_is_not_trimmed(partition: int):
    story = JobStory()
    assert trim(story, 0, partition=partition) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_an_empty_partition_is_trimmed_without_a_trace():
    story, other = JobStory(), JobStory()
    assert trim(story, -1) == (NONE, 0)
    other.do(other.agent, TrimLogs((Trim(other.topic_id, 0, 0),)))
    assert story.machine.digest() == other.machine.digest()


def test_one_trim_drops_no_more_rows_than_a_command_may(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_applier, "JOB_ROWS_MAX", 3)
    story = JobStory(1, 1, 1, 1, 1, partitions=2)
    story.produce(1, 1, partition=1)
    trims = (Trim(story.topic_id, 0, 4), Trim(story.topic_id, 1, 1))
    outcome = story.do(story.agent, TrimLogs(trims))
    assert outcome == LogsTrimmed((Trimmed(NONE, 4), Trimmed(NONE, 1)))
    first, second = story.row, story.partition(story.topic_id, 1)
    assert (first.droppable, second.droppable) == (1, 1)
    places = ((story.topic_id, 0), (story.topic_id, 1), (TopicId(bytes(16)), 0))
    assert story.do(story.agent, DropRows(places)) == DONE
    assert (first.droppable, second.droppable) == (0, 0)
    assert (first.row_count, second.row_count, story.machine.partitions.row_count) == (1, 1, 2)


def test_records_of_an_open_transaction_may_be_deleted_and_the_stable_offset_goes_with_them():
    story = JobStory(4)
    story.send(open_batch(story))
    story.produce(6)
    assert (story.row.last_stable, story.row.end_offset) == (4, 20)
    assert trim(story, 7) == (NONE, 7)
    assert story.row.last_stable == 7


def open_batch(story: JobStory) -> Item:
    """A batch of ten records that opens a transaction."""
    producer_id, _ = story.producer(story.agent, "pay")
    return batch(producer_id, 0, timestamp=1, instance=OF_EPOCH)


# Retention.


def expire(story: JobStory, offset: int, *, ms: int = -1, size: int = -1) -> Trimmed:
    expiry = Expiry(story.topic_id, 0, offset, ms, size)
    outcome = story.do(story.agent, ExpireRecords(story.machine.position, (expiry,)))
    assert isinstance(outcome, LogsTrimmed)
    (result,) = outcome.results
    return result


def aged(*timestamps: int) -> JobStory:
    """Rows of ten records with these timestamps; the machine's time is about 10,000."""
    story = JobStory()
    story.clock_ms = 10_000
    for timestamp in timestamps:
        story.produce(10, timestamp=timestamp)
    return story


def test_rows_go_when_all_of_them_are_too_old():
    story = aged(100, 300, 200, 9_000)
    assert expire(story, 30, ms=5_000) == (NONE, 30)
    assert (story.row.row_count, story.row.log_start) == (1, 30)


def test_nothing_goes_when_one_row_is_not_too_old():
    story = aged(100, 9_000, 200)
    assert expire(story, 30, ms=5_000) == (ErrorCode.POLICY_VIOLATION, 0)
    assert expire(story, 20, ms=5_000) == (ErrorCode.POLICY_VIOLATION, 0)
    assert expire(story, 10, ms=5_000) == (NONE, 10)


def test_a_row_goes_when_it_is_older_than_the_limit_and_not_before():
    story = aged(0, 0)
    story.do(story.agent, DropRows(()), clock_ms=50_000)
    story.clock_ms = 50_000
    age_ms = 50_010 - story.rows()[0].timestamp_max
    assert expire(story, 10, ms=age_ms) == (ErrorCode.POLICY_VIOLATION, 0)
    assert expire(story, 10, ms=age_ms + 9) == (NONE, 10)


def test_a_row_without_a_timestamp_goes_with_a_later_one_that_has_one():
    story = aged(-1, -1, 100, -1)
    assert expire(story, 20, ms=0) == (ErrorCode.POLICY_VIOLATION, 0)
    assert expire(story, 40, ms=0) == (ErrorCode.POLICY_VIOLATION, 0)
    assert expire(story, 30, ms=0) == (NONE, 30)


@pytest.mark.promise("P6")
def test_one_wild_clock_deletes_nothing():
    story = aged(9_000)
    other = story.open("agent-1", clock_ms=10_000)
    story.do(other, DropRows(()), clock_ms=10**15)
    assert expire(story, 10, ms=5_000) == (ErrorCode.POLICY_VIOLATION, 0)


def test_rows_go_when_what_stays_has_the_bytes_that_it_must_have():
    story = aged(1, 2, 3, 4)
    assert expire(story, 30, size=2 * SPAN_BYTES) == (ErrorCode.POLICY_VIOLATION, 0)
    assert expire(story, 20, size=2 * SPAN_BYTES) == (NONE, 20)
    assert story.row.data_bytes == 2 * SPAN_BYTES


def test_without_a_limit_nothing_goes():
    assert expire(aged(1, 2), 10) == (ErrorCode.POLICY_VIOLATION, 0)


def test_only_whole_rows_go():
    story = aged(1, 2)
    assert expire(story, 15, ms=0) == (GONE, 0)
    assert expire(story, 21, ms=0) == (GONE, 0)
    assert expire(story, 20, ms=0) == (NONE, 20)
    assert expire(story, 10, ms=0) == (NONE, 20)


def test_what_is_not_stable_stays():
    story = aged(1)
    story.send(open_batch(story))
    assert story.row.last_stable == 10
    assert expire(story, 20, ms=0) == (GONE, 0)
    assert expire(story, 10, ms=0) == (NONE, 10)


def test_a_topic_whose_configs_have_changed_since_is_left_alone():
    story = aged(1, 2)
    seen = story.machine.position
    story.do(story.agent, SetTopicConfigs(story.topic_id, (("retention.ms", "-1"),)))
    expiry = Expiry(story.topic_id, 0, 10, 0, -1)
    outcome = story.do(story.agent, ExpireRecords(seen, (expiry,)))
    assert outcome == LogsTrimmed((Trimmed(OTHERS, 0),))
    assert expire(story, 10, ms=0) == (NONE, 10)


def test_more_rows_than_a_command_may_touch_do_not_expire(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_applier, "JOB_ROWS_MAX", 3)
    story = aged(1, 2, 3, 4)
    assert expire(story, 40, ms=0) == (NO_SENSE, 0)
    assert expire(story, 30, ms=0) == (NONE, 30)


def test_nothing_of_a_deleted_topic_expires():
    story = aged(1, 2)
    story.do(story.agent, DeleteTopic(story.topic_id))
    assert expire(story, 10, ms=0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_page_that_expired_goes_when_it_has_been_recalled():
    story = aged(1, 2, 3, 4)
    story.spill(1, 2)
    assert expire(story, 30, ms=0) == (NONE, 30)
    (page, last) = story.rows()
    assert isinstance(page, Page)
    assert (story.row.log_start, story.row.droppable) == (30, 1)
    drop = DropRows(((story.topic_id, 0),))
    story.do(story.agent, drop)
    assert story.row.droppable == 1
    assert story.recall(10) == DONE
    story.do(story.agent, drop)
    assert story.rows() == [last]
    assert story.row.data_bytes == SPAN_BYTES


# Rows into segments.


def test_rows_move_into_a_segment_and_their_chunks_are_let_go():
    story = JobStory(10, 20, 5)
    assert story.merge(0, 2) == RowsMoved((NONE,))
    merged, last = story.rows()
    segment = ObjectId(story.agent, 0, ObjectKind.SEGMENT)
    assert merged == Span(segment, 8, 7, 0, 30, 5)
    assert last.base_offset == 30
    assert (story.row.data_bytes, story.row.segment_bytes) == (7 + SPAN_BYTES, 7)
    gone = [each.object_id for each in story.machine.objects.unreferenced()]
    assert gone == [ObjectId(story.agent, 0), ObjectId(story.agent, 1)]
    assert story.machine.object_length(segment) == 100


def test_a_row_may_become_several_spans():
    story = JobStory(10)
    spans = (NewSpan(8, 7, 0, 5), NewSpan(15, 7, 4, 6))
    assert story.merge(0, 1, spans=spans) == RowsMoved((NONE,))
    assert [(row.base_offset, row.next_offset) for row in story.rows()] == [(0, 4), (4, 10)]


def refused(story: JobStory, replacement: Replacement, *, job: JobKind = JobKind.MERGE) -> object:
    """The error; nothing changes but that the segment is there, with nothing that points at it."""
    rows = story.rows()
    command = story.replacing(replacement, job=job)
    outcome = story.do(story.agent, command)
    assert isinstance(outcome, RowsMoved)
    assert story.rows() == rows
    segment = ObjectId(story.agent, command.number, ObjectKind.SEGMENT)
    assert [*story.machine.objects.unreferenced()][-1].object_id == segment
    (error,) = outcome.errors
    return error


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": TopicId(bytes(16))}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"base_offset": 11}, GONE),
        ({"next_offset": 29}, GONE),
        ({"next_offset": 29, "rows": 1}, GONE),
        ({"next_offset": 40}, GONE),
        ({"rows": 1}, GONE),
        ({"digest": bytes(16)}, OTHERS),
        ({"spans": ()}, NO_SENSE),
        ({"spans": (NewSpan(8, 7, 11, 5),)}, NO_SENSE),
        ({"spans": (NewSpan(8, 7, 0, 5),)}, NO_SENSE),
        ({"spans": (NewSpan(8, 7, 10, 5), NewSpan(15, 7, 30, 5))}, NO_SENSE),
        ({"spans": (NewSpan(8, 7, 10, 5), NewSpan(15, 7, 10, 5))}, NO_SENSE),
        ({"spans": (NewSpan(8, 7, 10, 5), NewSpan(15, 7, 9, 5))}, NO_SENSE),
        ({"spans": (NewSpan(94, 7, 10, 5),)}, NO_SENSE),
        ({"spans": (NewSpan(8, 0, 10, 5),)}, NO_SENSE),
        ({"clean_to": 30}, NO_SENSE),
    ],
    ids=str,
)
def test_a_replacement_that_is_not_of_these_rows_changes_nothing(
    changes: dict[str, object], error: ErrorCode
):
    story = JobStory(10, 10, 10, 10)
    assert refused(story, story.replacement(1, 2)._replace(**changes)) is error


def test_rows_that_are_not_stable_stay():
    story = JobStory()
    story.send(open_batch(story))
    assert refused(story, story.replacement(0, 1)) is GONE


def test_rows_in_a_page_must_be_recalled_to_be_replaced():
    story = JobStory(10, 10, 10)
    named = story.replacement(0, 2)
    story.spill(0, 2)
    assert refused(story, named) is GONE
    assert refused(story, named._replace(rows=1)) is OTHERS
    story.recall(0)
    assert story.do(story.agent, story.replacing(named)) == RowsMoved((NONE,))


def test_two_jobs_that_have_read_the_same_rows_do_not_both_replace_them():
    story = JobStory(10, 10)
    named = story.replacement(0, 2)
    assert story.do(story.agent, story.replacing(named)) == RowsMoved((NONE,))
    assert refused(story, named) is GONE
    assert refused(story, named._replace(rows=1)) is OTHERS


def test_rows_are_named_once_in_a_command():
    story = JobStory(10, 10, 10, partitions=2)
    story.produce(10, partition=1)
    both = (
        story.replacement(1, 2),
        story.replacement(0, 2),
        story.replacement(0, 1, partition=1),
        story.replacement(0, 1),
    )
    outcome = story.do(story.agent, story.replacing(*both))
    assert outcome == RowsMoved((NONE, NO_SENSE, NONE, NO_SENSE))
    assert len(story.rows()) == 2


def test_the_number_of_a_segment_grows():
    story = JobStory(10, 10)
    story.merge(0, 1)
    named = story.replacement(1, 1)
    far = 1 + OBJECT_NUMBERS_AHEAD_MAX
    for number in (0, far):
        outcome = story.do(story.agent, ReplaceRows(JobKind.MERGE, number, 100, (named,)))
        assert isinstance(outcome, Rejected)
    assert story.row.row_count == 2
    outcome = story.do(story.agent, ReplaceRows(JobKind.MERGE, far - 1, 100, (named,)))
    assert outcome == RowsMoved((NONE,))


def test_more_rows_than_a_command_may_touch_are_not_replaced():
    story = JobStory(10)
    named = story.replacement(0, 1, rows=JOB_ROWS_MAX + 1)
    outcome = story.do(story.agent, story.replacing(named))
    assert isinstance(outcome, Rejected)
    spans = tuple(NewSpan(8, 7, offset, 5) for offset in range(JOB_ROWS_MAX + 1))
    outcome = story.do(story.agent, story.replacing(story.replacement(0, 1, spans=spans)))
    assert isinstance(outcome, Rejected)
    assert not [*story.machine.objects.unreferenced()]


def test_compaction_says_how_far_it_has_come_and_never_goes_back():
    story = JobStory(10, 10)
    for first, clean_to, after in ((0, 10, 10), (1, 20, 20), (0, 10, 20), (0, -1, 20)):
        named = story.replacement(first, 1, clean_to=clean_to)
        outcome = story.do(story.agent, story.replacing(named, job=JobKind.COMPACT))
        assert outcome == RowsMoved((NONE,))
        assert story.row.clean_to == after
    named = story.replacement(0, 1, clean_to=21)
    assert refused(story, named, job=JobKind.COMPACT) is NO_SENSE


def test_a_topic_whose_configs_have_changed_since_is_not_compacted_but_merged():
    story = JobStory(10, 10)
    seen = story.machine.position
    story.do(story.agent, SetTopicConfigs(story.topic_id, (("cleanup.policy", "delete"),)))
    late = replace(story.replacing(story.replacement(0, 1), job=JobKind.COMPACT), seen=seen)
    assert story.do(story.agent, late) == RowsMoved((OTHERS,))
    now = replace(
        story.replacing(story.replacement(0, 1), job=JobKind.COMPACT), seen=story.machine.position
    )
    assert story.do(story.agent, now) == RowsMoved((NONE,))
    assert story.do(story.agent, story.replacing(story.replacement(1, 1))) == RowsMoved((NONE,))


# Rows into pages.


def test_rows_go_into_a_page_and_come_back():
    story = JobStory()
    story.produce(10, 20, timestamp=700)
    story.produce(5)
    story.merge(1, 1)
    rows = story.rows()
    assert story.spill(0, 2) == RowsMoved((NONE,))
    page, last = story.rows()
    index = ObjectId(story.agent, 0, ObjectKind.INDEX)
    assert isinstance(page, Page)
    assert (page.object_id, page.base_offset, page.next_offset, page.rows) == (index, 0, 30, 2)
    assert (page.data_bytes, page.timestamp_max) == (SPAN_BYTES + 7, 700)
    assert last == rows[2]
    assert (story.row.page_count, story.row.paged_row_count) == (1, 2)
    assert (story.row.data_bytes, story.row.segment_bytes) == (2 * SPAN_BYTES + 7, 7)
    assert story.machine.objects.is_referenced(ObjectId(story.agent, 0))
    assert story.recall(0) == DONE
    assert story.rows() == rows
    assert (story.row.page_count, story.row.paged_row_count) == (0, 0)
    assert not story.machine.objects.is_referenced(index)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"base_offset": 1}, GONE),
        ({"next_offset": 19}, GONE),
        ({"rows": 3}, GONE),
        ({"rows": 0}, NO_SENSE),
        ({"rows": 1001}, NO_SENSE),
        ({"digest": bytes(16)}, OTHERS),
        ({"length": 5}, NO_SENSE),
        ({"start": 1000}, NO_SENSE),
    ],
    ids=str,
)
def test_a_page_that_is_not_of_these_rows_changes_nothing(
    changes: dict[str, object], error: ErrorCode
):
    story = JobStory(10, 10, 10)
    rows = story.rows()
    page = story.page(0, 2)._replace(**changes)
    outcome = story.do(story.agent, SpillRows(0, 200, (page,)))
    assert outcome == RowsMoved((error,))
    assert story.rows() == rows


def test_a_page_that_would_not_fit_into_an_entry_is_refused(monkeypatch: pytest.MonkeyPatch):
    story = JobStory(10, 10)
    monkeypatch.setattr(job_applier, "PAGE_BYTES_MAX", story.page(0, 2).length - 1)
    assert story.spill(0, 2) == RowsMoved((NO_SENSE,))


def test_no_page_goes_into_a_page():
    story = JobStory(10, 10, 10)
    story.spill(0, 2)
    assert story.spill(0, 2) == RowsMoved((OTHERS,))
    assert story.spill(0, 1) == RowsMoved((OTHERS,))


def test_more_rows_than_a_command_may_spill_are_refused():
    story = JobStory(10)
    pages = tuple(story.page(0, 1, rows=1000) for _ in range(SPILL_ROWS_MAX // 1000))
    assert isinstance(story.do(story.agent, SpillRows(0, 900, pages)), RowsMoved)
    outcome = story.do(story.agent, SpillRows(1, 900, (*pages, story.page(0, 1))))
    assert isinstance(outcome, Rejected)


def test_a_page_is_recalled_with_its_own_body_only():
    story = JobStory(10, 10, 10, 10)
    story.spill(0, 2)
    story.spill(1, 2)
    story.bodies[0], story.bodies[20] = story.bodies[20], story.bodies[0]
    for outcome, error in (
        (story.recall(0), ErrorCode.CORRUPT_MESSAGE),
        (story.recall(20), ErrorCode.CORRUPT_MESSAGE),
        (story.recall(0, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        assert isinstance(outcome, Rejected)
        assert outcome.error is error
    story.bodies[10] = story.bodies[0]
    outcome = story.recall(10)
    assert isinstance(outcome, Rejected)
    assert outcome.error is GONE
    assert story.row.page_count == 2


def test_a_deleted_topic_is_purged_page_by_page():
    story = JobStory(10, 10, 10)
    story.spill(1, 1)
    machine = story.machine
    assert not list(machine.partitions.to_recall())
    story.do(story.agent, DeleteTopic(story.topic_id))
    purge = machine.next_purge()
    assert purge is not None
    story.do(story.agent, purge)
    assert machine.next_purge() is None
    (partition,) = machine.partitions.to_recall()
    (first, page) = partition.rows_from(0, 9)
    assert isinstance(page, Page)
    assert isinstance(first, Span)
    assert story.recall(10) == DONE
    assert not list(machine.partitions.to_recall())
    again = machine.next_purge()
    assert again is not None
    story.do(story.agent, again)
    assert machine.next_purge() is None
    assert not list(machine.partitions.to_recall())
    assert len(machine.objects) == 0
    table = machine.partitions
    assert (table.row_count, table.page_count, table.paged_row_count) == (0, 0, 0)
    assert (table.data_bytes, table.segment_bytes, len(table)) == (0, 0, 0)


# Budgets (P15).


@pytest.mark.promise("P15")
def test_over_the_bound_of_rows_nothing_is_appended_until_some_have_gone(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(partitions, "ROWS_MAX", 2)
    story = JobStory(10, 10)
    items = span(story.topic_id, plain(), batch(7, 0))
    full = [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    before = story.row.windows
    assert [each.error for each in story.commit(story.agent, items)] == full
    assert (story.row.row_count, story.row.end_offset, story.row.windows) == (2, 20, before)
    story.merge(0, 2)
    assert [each.error for each in story.commit(story.agent, items)] == [NONE, NONE]


@pytest.mark.promise("P15")
def test_over_the_bound_of_windows_no_producer_is_new(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(partitions, "WINDOWS_MAX", 1)
    story = JobStory()
    story.send(batch(7, 0))
    items = span(story.topic_id, batch(8, 0), batch(7, 10), plain())
    errors = [each.error for each in story.commit(story.agent, items)]
    assert errors == [ErrorCode.NOT_ENOUGH_REPLICAS, NONE, NONE]
    assert story.machine.partitions.window_count == 1


# What a position says.


def test_changes_of_configs_are_dated():
    story = JobStory()
    topic = story.machine.topics.by_id(story.topic_id)
    assert topic is not None
    assert topic.configs_changed == POSITION_ZERO
    story.do(story.agent, SetTopicConfigs(story.topic_id, (("a", "1"),)))
    topic = story.machine.topics.by_id(story.topic_id)
    assert topic is not None
    assert topic.configs_changed == Position(story.machine.position)
