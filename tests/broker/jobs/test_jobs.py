"""Jobs one by one: what a round does, and what it leaves when it is disturbed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from broker.jobs.kinds import collection_plan, compacting, spill_plan
from coordinator.commands.entries import DeleteTopic, Pin
from coordinator.commands.group_commands import SetTopicConfigs
from coordinator.commands.job_commands import JobKind, Trim, TrimLogs
from coordinator.commands.table_commands import TABLES_LEVEL, ExportEnd, ReportExport
from coordinator.settings import FEATURE_LEVEL_MAX
from coordinator.tables.partition import Partition
from protocol.types import TopicId
from storage.cleaner import ENTRY_BYTES
from storage.formats.segment import parse_segment
from storage.formats.spans import Page, Span
from tests.broker.jobs.world import SETTINGS, Steps, World

Place = tuple[TopicId, int]


@contextmanager
def opened(*, level: int = FEATURE_LEVEL_MAX, **changed: int) -> Iterator[World]:
    world = World(replace(SETTINGS, **changed), level=level)
    try:
        yield world
    finally:
        world.close()


def partition_of(world: World, place: Place) -> Partition:
    partition = world.partition(place)
    assert partition is not None
    return partition


def run(world: World, kind: JobKind, steps: Steps | None = None, **more: bool) -> bool:
    return world.runner.run(world.job(kind, steps=steps, **more))


def values(world: World, place: Place, *, committed: bool = True) -> list[bytes | None]:
    partition = partition_of(world, place)
    read = world.runner.run(world.read(partition, committed=committed))
    return [record.value for record in read]


def fill(world: World, place: Place, count: int, *, size: int = 20) -> list[bytes]:
    written = [b"%04d" % number + bytes(size) for number in range(count)]
    for value in written:
        world.produce((place, [(b"key", value)]))
    return written


def keys(world: World, prefix: str) -> list[str]:
    return sorted(key for key in world.store._objects if key.startswith(prefix))


# Merging.


def test_rows_of_many_partitions_are_merged_into_one_segment():
    with opened() as world:
        places = [(world.topic(name), 0) for name in ("a", "b")]
        written = [fill(world, place, 10) for place in places]
        world.pass_time(2_000)
        assert run(world, JobKind.MERGE)
        (key,) = keys(world, "segments/")
        segment = parse_segment(world.store._objects[key])
        assert [(span.topic_id, span.base_offset, span.next_offset) for span in segment.spans] == [
            (place[0], 0, 10) for place in places
        ]
        assert [values(world, place) for place in places] == written


def test_aborted_records_are_gone_after_merging_and_so_is_what_the_log_knows_of_them():
    with opened() as world:
        place = (world.topic("a"), 0)
        producer = world.producer("p")
        for commit in (False, True, False, True):
            world.produce((place, [(b"k", b"%d" % commit)]), producer=producer)
            world.end(producer, commit=commit)
        world.pass_time(2_000)
        assert values(world, place, committed=False) == [b"0", b"1", b"0", b"1"]
        assert run(world, JobKind.MERGE)
        partition = partition_of(world, place)
        assert (partition.row_count, partition.aborted_count) == (1, 0)
        assert values(world, place, committed=False) == values(world, place) == [b"1", b"1"]


def test_what_a_merge_wrote_and_could_not_commit_is_collected_when_all_agents_are_younger():
    with opened() as world:
        place = (world.topic("a"), 0)
        written = fill(world, place, 10)
        world.pass_time(2_000)
        stop_at = 1
        while not keys(world, "segments/"):
            assert not run(world, JobKind.MERGE, Steps(stop_at=stop_at))
            stop_at += 1
        assert partition_of(world, place).segment_bytes == 0
        # Another batch, so that the next segment has other bytes under the same name.
        written += fill(world, place, 1)
        world.pass_time(2_000)
        assert run(world, JobKind.MERGE)
        assert len(keys(world, "segments/")) == 2
        assert run(world, JobKind.COLLECT)
        assert len(keys(world, "segments/")) == 2
        world.pass_time(2_000)
        for _ in world.agents:
            world.take_over()
        assert run(world, JobKind.COLLECT)
        assert len(keys(world, "segments/")) == 1
        assert values(world, place) == written


def test_rows_whose_object_is_gone_are_left_and_told_and_others_are_merged(caplog):
    with opened() as world:
        bad, good = ((world.topic(name), 0) for name in ("bad", "good"))
        for place in (bad, good):
            fill(world, place, 10)
        row = partition_of(world, bad).row(4)
        assert isinstance(row, Span)
        del world.store._objects[row.object_id.key]
        world.pass_time(2_000)
        assert run(world, JobKind.MERGE)
        assert partition_of(world, bad).row_count == 10
        assert partition_of(world, good).row_count == 1
        assert "cannot be moved" in caplog.text


def test_damaged_bytes_are_not_copied(caplog):
    with opened() as world:
        place = (world.topic("a", cleanup_policy="compact"), 0)
        fill(world, place, 10)
        row = partition_of(world, place).row(4)
        assert isinstance(row, Span)
        data = world.store._objects[row.object_id.key]
        world.store._objects[row.object_id.key] = data[:-1] + b"?"
        world.pass_time(2_000)
        for kind in (JobKind.MERGE, JobKind.COMPACT):
            assert run(world, kind)
        assert partition_of(world, place).row_count == 10
        assert "damaged" in caplog.text


def test_segments_are_emptied_when_most_of_them_is_used_no_more():
    with opened(segment_bytes_max=64_000) as world:
        short, long = (
            (world.topic("short", retention_ms="5000"), 0),
            (world.topic("long", retention_ms="-1"), 0),
        )
        fill(world, short, 10, size=1000)
        written = fill(world, long, 10, size=1000)
        world.pass_time(2_000)
        assert run(world, JobKind.MERGE)
        (first,) = keys(world, "segments/")
        world.pass_time(10_000)
        assert run(world, JobKind.RETENTION)
        assert run(world, JobKind.MERGE)
        assert len(keys(world, "segments/")) == 2
        assert first not in world.referenced()
        assert values(world, long) == written


# Retention.


def test_what_is_too_old_goes_and_the_rest_stays():
    with opened() as world:
        place = (world.topic("a", retention_ms="5000"), 0)
        fill(world, place, 5)
        world.pass_time(4_000)
        young = fill(world, place, 3)
        world.pass_time(2_000)
        assert run(world, JobKind.RETENTION)
        assert partition_of(world, place).log_start == 5
        assert values(world, place) == young


def test_retention_that_is_changed_holds_at_once():
    with opened() as world:
        place = (world.topic("a", retention_ms="-1"), 0)
        fill(world, place, 5)
        world.pass_time(100_000)
        assert run(world, JobKind.RETENTION)
        assert partition_of(world, place).log_start == 0
        world.do(SetTopicConfigs(place[0], (("retention.ms", "1000"),)))
        assert run(world, JobKind.RETENTION)
        assert partition_of(world, place).log_start == 5


HELD = {
    "retention_ms": "5000",
    "frazil_iceberg_retention_hold": "true",
    "frazil_iceberg_retention_hold_max_ms": "20000",
}


def test_records_of_a_topic_that_waits_for_its_export_go_when_they_are_in_the_table():
    with opened() as world:
        held = (world.topic("held", **HELD), 0)
        other = (world.topic("other", retention_ms="5000"), 0)
        written = fill(world, held, 5)
        fill(world, other, 5)
        world.pass_time(10_000)
        assert run(world, JobKind.RETENTION)
        assert partition_of(world, other).log_start == 5
        assert values(world, held) == written
        world.do(ReportExport(held[0], (ExportEnd(0, 3),)))
        assert run(world, JobKind.RETENTION)
        assert values(world, held) == written[3:]


def test_records_that_were_held_for_long_enough_go_without_an_export():
    with opened() as world:
        place = (world.topic("held", **HELD), 0)
        fill(world, place, 5)
        world.pass_time(15_000)
        young = fill(world, place, 2)
        world.pass_time(11_000)
        assert run(world, JobKind.RETENTION)
        assert partition_of(world, place).log_start == 5
        assert values(world, place) == young


def test_nothing_that_is_held_goes_while_an_agent_cannot_be_told_why():
    with opened(level=TABLES_LEVEL - 1) as world:
        place = (world.topic("held", **HELD), 0)
        written = fill(world, place, 5)
        world.pass_time(100_000)
        assert run(world, JobKind.RETENTION)
        assert values(world, place) == written


def test_many_rows_go_in_slices():
    with opened() as world:
        place = (world.topic("a", retention_bytes="500", retention_ms="-1"), 0)
        written = fill(world, place, 2_500)
        assert run(world, JobKind.RETENTION)
        partition = partition_of(world, place)
        assert partition.row_count < 10
        assert values(world, place) == written[partition.log_start :]
        assert partition.data_bytes >= 500


def test_what_clients_deleted_is_dropped_of_all_partitions():
    with opened() as world:
        topic_id = world.topic("a", partitions=3, retention_ms="-1")
        places = [(topic_id, number) for number in range(3)]
        for place in places:
            fill(world, place, 1_200)
        world.do(TrimLogs(tuple(Trim(*place, 1_190) for place in places)))
        assert world.machine.partitions.row_count > 2_000
        assert run(world, JobKind.RETENTION)
        assert world.machine.partitions.row_count == 30


# Pages.


@pytest.fixture
def small_pages(monkeypatch) -> None:
    monkeypatch.setattr(spill_plan, "ROWS_LEFT", 2)
    monkeypatch.setattr(spill_plan, "PAGE_ROWS_MIN", 3)


def spilled(world: World, place: Place, count: int = 20) -> list[bytes]:
    written = fill(world, place, count)
    world.pass_time(2_000)
    assert run(world, JobKind.SPILL)
    assert partition_of(world, place).page_count > 0
    return written


def test_rows_that_left_the_memory_are_read_as_ever(small_pages):
    with opened() as world:
        place = (world.topic("a"), 0)
        written = spilled(world, place)
        assert partition_of(world, place).row_count == 3
        assert values(world, place) == written


def test_rows_are_spilled_only_until_there_are_few_enough(small_pages):
    with opened(spill_rows=25) as world:
        places = [(world.topic(name), 0) for name in ("a", "b", "c")]
        for place in places:
            fill(world, place, 20)
        world.pass_time(2_000)
        assert run(world, JobKind.SPILL)
        assert [partition_of(world, place).page_count for place in places] == [1, 1, 0]


def test_a_page_that_is_too_old_comes_back_to_be_dropped(small_pages):
    with opened() as world:
        place = (world.topic("a", retention_ms="5000"), 0)
        spilled(world, place)
        world.pass_time(10_000)
        assert run(world, JobKind.RETENTION)
        partition = partition_of(world, place)
        assert (partition.log_start, partition.row_count) == (20, 0)
        assert world.referenced() == frozenset()


def test_a_deleted_topic_with_pages_is_purged_to_the_end(small_pages):
    with opened() as world:
        place = (world.topic("a"), 0)
        for _ in range(3):
            spilled(world, place)
        world.do(DeleteTopic(place[0]))
        while (command := world.machine.next_purge()) is not None:
            world.do(command)
        assert world.machine.partitions.find(*place) is not None
        assert run(world, JobKind.RETENTION)
        assert world.machine.partitions.find(*place) is None
        assert world.referenced() == frozenset()


def test_a_page_that_is_lost_holds_up_the_purge_of_no_other_topic(small_pages):
    with opened() as world:
        places = [(world.topic(name), 0) for name in ("lost", "whole")]
        for place in places:
            spilled(world, place)
        lost = partition_of(world, places[0]).row(0)
        assert isinstance(lost, Page)
        world.runner.run(world.store.delete([lost.object_id.key]))
        for place in places:
            world.do(DeleteTopic(place[0]))
        while (command := world.machine.next_purge()) is not None:
            world.do(command)
        assert run(world, JobKind.RETENTION)
        assert world.machine.partitions.find(*places[0]) is not None
        assert world.machine.partitions.find(*places[1]) is None


def test_chunks_are_left_also_by_rows_in_pages(small_pages):
    with opened() as world:
        place = (world.topic("a"), 0)
        written = spilled(world, place)
        world.pass_time(10_000)
        assert run(world, JobKind.MERGE)
        assert not [key for key in world.referenced() if key.startswith("chunks/")]
        assert values(world, place) == written


# Compaction.


def test_of_each_key_the_newest_record_stays_at_its_offset():
    with opened() as world:
        place = (world.topic("a", cleanup_policy="compact"), 0)
        for number in range(30):
            world.produce((place, [(b"k%d" % (number % 3), b"%d" % number)]))
        assert run(world, JobKind.COMPACT)
        read = world.runner.run(world.read(partition_of(world, place), committed=True))
        assert [(record.offset, record.key) for record in read] == [
            (27, b"k0"),
            (28, b"k1"),
            (29, b"k2"),
        ]


def test_compaction_goes_on_where_the_memory_for_keys_ended():
    with opened() as world:
        kafka = replace(SETTINGS.kafka, log_cleaner_dedupe_buffer_size=4 * ENTRY_BYTES)
        world.settings = replace(world.settings, kafka=kafka)
        ratio = {"min_cleanable_dirty_ratio": "0"}
        place = (world.topic("a", cleanup_policy="compact", **ratio), 0)
        for number in range(60):
            world.produce((place, [(b"k%d" % (number % 10), b"%d" % number)]))
        places = [0]
        while partition_of(world, place).clean_to < 60:
            assert run(world, JobKind.COMPACT)
            places.append(partition_of(world, place).clean_to)
            assert places[-1] > places[-2]
        assert len(places) > 10
        assert values(world, place) == [b"%d" % number for number in range(50, 60)]


def test_a_row_with_more_keys_than_there_is_memory_for_is_compacted_all_the_same():
    with opened() as world:
        kafka = replace(SETTINGS.kafka, log_cleaner_dedupe_buffer_size=4 * ENTRY_BYTES)
        world.settings = replace(world.settings, kafka=kafka)
        place = (world.topic("a", cleanup_policy="compact"), 0)
        for number in range(60):
            world.produce((place, [(b"k%d" % (number % 30), b"%d" % number)]))
        world.pass_time(2_000)
        assert run(world, JobKind.MERGE)
        assert partition_of(world, place).row_count < 4
        for _ in range(3):
            assert run(world, JobKind.COMPACT)
        assert values(world, place) == [b"%d" % number for number in range(30, 60)]


def test_pages_are_compacted_too(small_pages):
    with opened() as world:
        place = (world.topic("a", cleanup_policy="compact"), 0)
        written = spilled(world, place)
        assert run(world, JobKind.COMPACT)
        assert partition_of(world, place).page_count == 0
        assert values(world, place) == [written[-1]]


def test_compaction_does_not_keep_what_is_old_beside_what_is_young():
    with opened() as world:
        place = (
            world.topic("a", cleanup_policy="compact,delete", retention_ms="8000"),
            0,
        )
        world.produce((place, [(b"old", b"1")]))
        world.pass_time(2_000)
        world.produce((place, [(b"young", b"2")]))
        assert run(world, JobKind.COMPACT)
        world.pass_time(7_000)
        assert run(world, JobKind.RETENTION)
        assert values(world, place) == [b"2"]


def test_windows_in_which_nothing_changes_are_not_written_again(monkeypatch):
    monkeypatch.setattr(compacting, "WINDOW_BYTES_MAX", 200)
    with opened() as world:
        ratio = {"min_cleanable_dirty_ratio": "0"}
        place = (world.topic("a", cleanup_policy="compact", **ratio), 0)
        for number in range(10):
            world.produce((place, [(b"k%d" % number, b"value")]))
        assert run(world, JobKind.COMPACT)
        before = keys(world, "segments/")
        world.produce((place, [(b"k0", b"newer")]))
        assert run(world, JobKind.COMPACT)
        # The window in which k0 was, and the new one.
        assert len(keys(world, "segments/")) == len(before) + 2


def test_nothing_is_compacted_when_the_cleaner_is_switched_off():
    with opened() as world:
        kafka = replace(SETTINGS.kafka, log_cleaner_enable=False)
        world.settings = replace(world.settings, kafka=kafka)
        place = (world.topic("a", cleanup_policy="compact"), 0)
        fill(world, place, 10)
        assert run(world, JobKind.COMPACT)
        assert partition_of(world, place).clean_to == 0


# Snapshots and collection.


def test_objects_wait_for_two_snapshots_a_grace_and_all_pins():
    with opened() as world:
        place = (world.topic("a"), 0)
        fill(world, place, 10)
        world.do(Pin("export", 3_600_000))
        world.pass_time(2_000)
        assert run(world, JobKind.MERGE)
        steps = (
            lambda: run(world, JobKind.SNAPSHOT),
            lambda: run(world, JobKind.SNAPSHOT),
            lambda: world.pass_time(59_000),
            lambda: world.pass_time(2_000),
        )
        for step in steps:
            step()
            assert run(world, JobKind.COLLECT)
            assert len(keys(world, "chunks/")) == 10
        world.pass_time(3_600_000)
        assert run(world, JobKind.COLLECT)
        assert keys(world, "chunks/") == []


def test_a_snapshot_is_published_and_older_ones_go():
    with opened() as world:
        for _ in range(4):
            assert run(world, JobKind.SNAPSHOT)
        world.pass_time(collection_plan.SNAPSHOT_GRACE_MS)
        assert run(world, JobKind.COLLECT)
        published = world.machine.snapshots.published
        assert len(published) == 2
        folders = {key.split("/")[1] for key in keys(world, "snapshots/")}
        assert folders == {f"{each.position:016x}" for each in published}


def test_what_a_predecessor_doomed_is_deleted_first():
    with opened() as world:
        place = (world.topic("a"), 0)
        fill(world, place, 10)
        world.pass_time(2_000)
        assert run(world, JobKind.MERGE)
        for _ in range(2):
            assert run(world, JobKind.SNAPSHOT)
        world.pass_time(61_000)
        stop_at = 1
        while next(iter(world.machine.objects.doomed()), None) is None:
            assert not run(world, JobKind.COLLECT, Steps(stop_at=stop_at))
            stop_at += 1
        world.take_over()
        assert run(world, JobKind.COLLECT, requested=False)
        assert keys(world, "chunks/") == []
        assert next(iter(world.machine.objects.doomed()), None) is None


@pytest.mark.parametrize(
    "kind", [JobKind.RETENTION, JobKind.MERGE, JobKind.SPILL, JobKind.COMPACT, JobKind.SNAPSHOT]
)
def test_a_round_that_was_stopped_anywhere_is_gone_on_with(kind, small_pages):
    """At each await in turn; after it another agent has the job."""
    stop_at, was_stopped = 1, True
    while was_stopped:
        with opened() as world:
            topic_id = world.topic("a", cleanup_policy="compact,delete", retention_ms="9000")
            place = (topic_id, 0)
            fill(world, place, 6)
            world.pass_time(8_000)
            young = fill(world, place, 6)
            world.pass_time(2_000)
            was_stopped = not run(world, kind, Steps(stop_at=stop_at))
            assert set(values(world, place)) >= {young[-1]}
            world.take_over()
            for each in (kind, JobKind.RETENTION, JobKind.COMPACT, JobKind.COLLECT):
                assert run(world, each)
            assert values(world, place) == [young[-1]]
            # A row of which nothing was left has no age.
            assert kind is JobKind.COMPACT or partition_of(world, place).log_start == 6
        stop_at += 1
    assert stop_at > 3
