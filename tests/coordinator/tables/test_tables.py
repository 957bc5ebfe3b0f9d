"""Exports that are reported, topics that are widened, and snapshots of clusters that do neither."""

import pytest

from coordinator.commands.entries import DeleteTopic, PurgePartitions, Rejected
from coordinator.commands.job_commands import JobKind, LogsTrimmed, ReleaseJobs, Trimmed
from coordinator.commands.table_commands import (
    EXPORT_ENDS_MAX,
    ExpireHeldRecords,
    ExportEnd,
    GrowTopic,
    HeldExpiry,
    ReportExport,
    SetSubjectRules,
)
from coordinator.machine.machine import Machine
from coordinator.snapshot import snapshot
from coordinator.snapshot.snapshot import SnapshotError, dump, restore
from coordinator.tables import topics
from coordinator.tables.exports import ExportRow
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, TopicId
from tests.coordinator.machine.job_story import JobStory

NONE = ErrorCode.NONE
HELD = ErrorCode.POLICY_VIOLATION


def report(story: JobStory, *ends: tuple[int, int]) -> ErrorCode:
    command = ReportExport(story.topic_id, tuple([ExportEnd(*end) for end in ends]))
    outcome = story.do(story.agent, command)
    return outcome.error if isinstance(outcome, Rejected) else NONE


def grow(story: JobStory, count: int, topic_id: TopicId | None = None) -> ErrorCode:
    outcome = story.do(story.agent, GrowTopic(topic_id or story.topic_id, count))
    return outcome.error if isinstance(outcome, Rejected) else NONE


# Exports.


def test_what_is_reported_of_some_partitions_leaves_the_others():
    story = JobStory(partitions=3)
    exports = story.machine.exports
    for partition in range(3):
        story.produce(10, partition=partition)
    assert exports.offset(story.topic_id, 1) == 0
    assert report(story, (2, 10), (0, 4)) == NONE
    first_ms = story.machine.time_ms
    assert exports.get(story.topic_id) == ExportRow(first_ms, {0: 4, 2: 10})
    assert report(story, (0, 3), (1, 9)) == NONE
    assert exports.get(story.topic_id) == ExportRow(story.machine.time_ms, {0: 3, 1: 9, 2: 10})
    assert [exports.offset(story.topic_id, partition) for partition in range(3)] == [3, 9, 10]
    assert story.machine.time_ms > first_ms


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        (((0, 10), (0, 11)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (((0, 1), (1, 0)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((), ErrorCode.INVALID_REQUEST),
        (((0, 1),) * (EXPORT_ENDS_MAX + 1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_report_that_cannot_be_changes_nothing(ends, error: ErrorCode):
    story = JobStory(10)
    assert report(story, *ends) == error
    assert len(story.machine.exports) == 0


def test_a_deleted_topic_has_no_export():
    story = JobStory(10)
    report(story, (0, 10))
    story.do(story.agent, DeleteTopic(story.topic_id))
    assert len(story.machine.exports) == 0
    assert report(story, (0, 10)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Records that wait for the export.


def aged(*timestamps: int) -> JobStory:
    """Rows of ten records with these timestamps; the machine's time is about 10,000."""
    story = JobStory()
    story.clock_ms = 10_000
    for timestamp in timestamps:
        story.produce(10, timestamp=timestamp)
    return story


def expire(story: JobStory, offset: int, *, ms: int = 1_000, size: int = -1, held: int) -> Trimmed:
    expiry = HeldExpiry(story.topic_id, 0, offset, ms, size, held)
    command = ExpireHeldRecords(story.machine.position, (expiry,))
    outcome = story.do(story.agent, command)
    assert isinstance(outcome, LogsTrimmed)
    (result,) = outcome.results
    return result


def test_old_records_wait_until_they_are_exported():
    story = aged(100, 200, 300)
    assert expire(story, 10, held=50_000) == (HELD, 0)
    report(story, (0, 19))
    assert expire(story, 20, held=50_000) == (HELD, 0)
    assert expire(story, 10, held=50_000) == (NONE, 10)
    report(story, (0, 30))
    assert expire(story, 30, held=50_000) == (NONE, 30)


def test_old_records_do_not_wait_for_ever():
    story = aged(100, 5_000)
    assert expire(story, 20, held=9_000) == (HELD, 0)
    assert expire(story, 10, held=9_000) == (NONE, 10)
    assert expire(story, 20, held=5_500) == (HELD, 10)
    assert expire(story, 20, held=4_000) == (NONE, 20)


def test_what_is_exported_goes_no_sooner_for_it():
    story = aged(100, 9_900)
    report(story, (0, 20))
    assert expire(story, 20, held=0) == (HELD, 0)
    assert expire(story, 20, ms=-1, size=1, held=0) == (HELD, 0)
    assert expire(story, 20, ms=-1, size=0, held=50_000) == (NONE, 20)


def test_of_what_is_exported_nobody_asks_how_old_it_is():
    story = aged(9_900, 100)
    report(story, (0, 10))
    assert expire(story, 20, ms=-1, size=0, held=50_000) == (HELD, 0)
    assert expire(story, 20, ms=-1, size=0, held=5_000) == (NONE, 20)


def test_a_table_that_was_rolled_back_is_waited_for_again():
    story = aged(100, 200)
    report(story, (0, 20))
    report(story, (0, 10))
    assert expire(story, 20, held=50_000) == (HELD, 0)


def test_only_who_holds_the_job_lets_records_go():
    story = aged(100)
    story.do(story.agent, ReleaseJobs((JobKind.RETENTION,), INCARNATION_NONE))
    expiry = HeldExpiry(story.topic_id, 0, 10, 0, -1, 0)
    outcome = story.do(story.agent, ExpireHeldRecords(story.machine.position, (expiry,)))
    assert isinstance(outcome, Rejected)
    assert outcome.error == ErrorCode.NOT_COORDINATOR


# Topics that grow.


def test_a_topic_gets_partitions_behind_those_it_has():
    story = JobStory(partitions=2)
    story.produce(10, partition=1)
    before, version = story.machine.topics.by_id(story.topic_id), story.machine.topics.version
    assert grow(story, 4) == NONE
    topic = story.machine.topics.by_id(story.topic_id)
    assert topic is not None
    assert (topic.partition_count, len(story.machine.partitions)) == (4, 4)
    assert topic is story.machine.topics.by_name("events")
    assert topic is not before
    assert story.machine.topics.version > version
    assert story.row.end_offset == 0
    story.produce(7, partition=3)
    assert [story.partition(story.topic_id, index).end_offset for index in range(4)] == [
        0,
        10,
        0,
        7,
    ]
    assert story.machine.partitions.get(story.topic_id, 4) is None


def test_partitions_that_a_topic_got_later_are_purged_with_it():
    story = JobStory(partitions=1)
    grow(story, 3)
    story.produce(10, partition=2)
    story.do(story.agent, DeleteTopic(story.topic_id))
    assert len(story.machine.partitions) == 3
    assert story.machine.next_purge() == PurgePartitions(story.topic_id, 2, 1)
    story.do(story.agent, PurgePartitions(story.topic_id, 2, 1))
    assert len(story.machine.partitions) == 0


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 10_001])
def test_a_topic_gets_neither_fewer_partitions_nor_too_many(count: int):
    story = JobStory(partitions=2)
    assert grow(story, count) == ErrorCode.INVALID_PARTITIONS
    assert len(story.machine.partitions) == 2


def test_the_partitions_of_a_cluster_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(topics, "PARTITIONS_MAX", 5)
    story = JobStory(partitions=2)
    story.topic(story.agent, "other", 2)
    assert grow(story, 4) == ErrorCode.INVALID_PARTITIONS
    assert grow(story, 3) == NONE


def test_a_topic_that_is_not_there_does_not_grow():
    story = JobStory()
    assert grow(story, 5, TopicId(bytes(16))) == ErrorCode.UNKNOWN_TOPIC_ID


# Snapshots.


def test_a_snapshot_has_nothing_about_tables_where_there_are_none(monkeypatch: pytest.MonkeyPatch):
    """So that the release before can read it."""
    story = JobStory(10)
    plain = dump(story.machine)
    report(story, (0, 10))
    reported = dump(story.machine)
    story.do(story.agent, DeleteTopic(story.topic_id))
    deleted = dump(story.machine)
    story.do(story.agent, SetSubjectRules("a", "", None))
    ruled = dump(story.machine)
    monkeypatch.setattr(snapshot, "dump_tables", lambda *_, **__: None)
    without = dump(story.machine)
    assert len(ruled[0]) > len(without[0])
    for name in ("tables", "rights", "credentials", "tokens", "configs", "eras", "losses"):
        monkeypatch.setattr(snapshot, f"restore_{name}", lambda *_: None)
    for parts, reads in ((plain, True), (reported, False), (deleted, True), (ruled, False)):
        if reads:
            restore(Machine(), parts)
        else:
            with pytest.raises(SnapshotError, match="goes on"):
                restore(Machine(), parts)
