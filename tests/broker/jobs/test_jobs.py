"""Jobs one by one: what a round does, and what it leaves when it is disturbed."""

from typing import Any

import pytest

from broker.jobs.kinds import compacting, merging, spill_plan
from coordinator.commands.entries import DeleteTopic, Pin
from coordinator.commands.group_commands import SetTopicConfigs
from coordinator.commands.job_commands import JobKind, Trim, TrimLogs
from coordinator.commands.table_commands import TABLES_LEVEL, ExportEnd, ReportExport
from storage.cleaner import ENTRY_BYTES, OffsetMap
from storage.formats.segment import parse_segment
from storage.formats.spans import Page, Span
from tests.broker.jobs.world import Place, Steps, World, opened

# Merging.


def test_rows_of_many_partitions_are_merged_into_one_segment(world):
    places = [world.place(name) for name in ("a", "b")]
    written = [world.fill(place, 10) for place in places]
    assert world.round(JobKind.MERGE, after_ms=2_000)
    (key,) = world.keys("segments/")
    segment = parse_segment(world.store._objects[key])
    assert [(span.topic_id, span.base_offset, span.next_offset) for span in segment.spans] == [
        (place[0], 0, 10) for place in places
    ]
    assert [world.values(place) for place in places] == written


def test_aborted_records_are_gone_after_merging_and_so_is_what_the_log_knows_of_them(world):
    place = world.place("a")
    producer = world.producer("p")
    for commit in (False, True, False, True):
        world.produce((place, [(b"k", b"%d" % commit)]), producer=producer)
        world.end(producer, commit=commit)
    world.pass_time(2_000)
    assert world.values(place, committed=False) == [b"0", b"1", b"0", b"1"]
    assert world.round(JobKind.MERGE)
    partition = world.row(place)
    assert (partition.row_count, partition.aborted_count) == (1, 0)
    assert world.values(place, committed=False) == world.values(place) == [b"1", b"1"]


def test_what_a_merge_wrote_and_could_not_commit_is_collected_when_all_agents_are_younger(world):
    place = world.place("a")
    written = world.fill(place, 10)
    world.pass_time(2_000)
    stop_at = 1
    while not world.keys("segments/"):
        assert not world.round(JobKind.MERGE, Steps(stop_at=stop_at))
        stop_at += 1
    assert world.row(place).segment_bytes == 0
    # Another batch, so that the next segment has other bytes under the same name.
    written += world.fill(place, 1)
    assert world.round(JobKind.MERGE, after_ms=2_000)
    assert len(world.keys("segments/")) == 2
    assert world.round(JobKind.COLLECT)
    assert len(world.keys("segments/")) == 2
    world.pass_time(2_000)
    for _ in world.agents:
        world.take_over()
    assert world.round(JobKind.COLLECT)
    assert len(world.keys("segments/")) == 1
    assert world.values(place) == written


def test_rows_whose_object_is_gone_are_left_and_told_and_others_are_merged(caplog, world):
    bad, good = (world.place(name) for name in ("bad", "good"))
    for place in (bad, good):
        world.fill(place, 10)
    row = world.row(bad).row(4)
    assert isinstance(row, Span)
    del world.store._objects[row.object_id.key]
    assert world.round(JobKind.MERGE, after_ms=2_000)
    assert world.row(bad).row_count == 10
    assert world.row(good).row_count == 1
    assert "cannot be moved" in caplog.text


def test_damaged_bytes_are_not_copied(caplog, world):
    place = world.place("a", cleanup_policy="compact")
    world.fill(place, 10)
    row = world.row(place).row(4)
    assert isinstance(row, Span)
    data = world.store._objects[row.object_id.key]
    world.store._objects[row.object_id.key] = data[:-1] + b"?"
    world.pass_time(2_000)
    for kind in (JobKind.MERGE, JobKind.COMPACT):
        assert world.round(kind)
    assert world.row(place).row_count == 10
    assert "damaged" in caplog.text


def test_segments_are_emptied_when_most_of_them_is_used_no_more():
    with opened(segment_bytes_max=64_000) as world:
        short = world.place("short", retention_ms="5000")
        long = world.place("long", retention_ms="-1")
        world.fill(short, 10, size=1000)
        written = world.fill(long, 10, size=1000)
        assert world.round(JobKind.MERGE, after_ms=2_000)
        (first,) = world.keys("segments/")
        assert world.round(JobKind.RETENTION, after_ms=10_000)
        assert world.round(JobKind.MERGE)
        assert len(world.keys("segments/")) == 2
        assert first not in world.referenced()
        assert world.values(long) == written


# Retention.


def test_what_is_too_old_goes_and_the_rest_stays(world):
    place = world.place("a", retention_ms="5000")
    world.fill(place, 5)
    world.pass_time(4_000)
    young = world.fill(place, 3)
    assert world.round(JobKind.RETENTION, after_ms=2_000)
    assert world.row(place).log_start == 5
    assert world.values(place) == young


def test_retention_that_is_changed_holds_at_once(world):
    place = world.place("a", retention_ms="-1")
    world.fill(place, 5)
    assert world.round(JobKind.RETENTION, after_ms=100_000)
    assert world.row(place).log_start == 0
    world.do(SetTopicConfigs(place[0], (("retention.ms", "1000"),)))
    assert world.round(JobKind.RETENTION)
    assert world.row(place).log_start == 5


HELD = {
    "retention_ms": "5000",
    "frazil_iceberg_retention_hold": "true",
    "frazil_iceberg_retention_hold_max_ms": "20000",
}


def test_records_of_a_topic_that_waits_for_its_export_go_when_they_are_in_the_table(world):
    held = world.place("held", **HELD)
    other = world.place("other", retention_ms="5000")
    written = world.fill(held, 5)
    world.fill(other, 5)
    assert world.round(JobKind.RETENTION, after_ms=10_000)
    assert world.row(other).log_start == 5
    assert world.values(held) == written
    world.do(ReportExport(held[0], (ExportEnd(0, 3),)))
    assert world.round(JobKind.RETENTION)
    assert world.values(held) == written[3:]


def test_records_that_were_held_for_long_enough_go_without_an_export(world):
    place = world.place("held", **HELD)
    world.fill(place, 5)
    world.pass_time(15_000)
    young = world.fill(place, 2)
    assert world.round(JobKind.RETENTION, after_ms=11_000)
    assert world.row(place).log_start == 5
    assert world.values(place) == young


def test_nothing_that_is_held_goes_while_an_agent_cannot_be_told_why():
    with opened(level=TABLES_LEVEL - 1) as world:
        place = world.place("held", **HELD)
        written = world.fill(place, 5)
        assert world.round(JobKind.RETENTION, after_ms=100_000)
        assert world.values(place) == written


def test_many_rows_go_in_slices(world):
    place = world.place("a", retention_bytes="500", retention_ms="-1")
    written = world.fill(place, 2_500)
    assert world.round(JobKind.RETENTION)
    partition = world.row(place)
    assert partition.row_count < 10
    assert world.values(place) == written[partition.log_start :]
    assert partition.data_bytes >= 500


def test_what_clients_deleted_is_dropped_of_all_partitions(world):
    topic_id = world.topic("a", partitions=3, retention_ms="-1")
    places = [(topic_id, number) for number in range(3)]
    for place in places:
        world.fill(place, 1_200)
    world.do(TrimLogs(tuple(Trim(*place, 1_190) for place in places)))
    assert world.machine.partitions.row_count > 2_000
    assert world.round(JobKind.RETENTION)
    assert world.machine.partitions.row_count == 30


# Pages.


@pytest.fixture
def small_pages(monkeypatch) -> None:
    monkeypatch.setattr(spill_plan, "ROWS_LEFT", 2)
    monkeypatch.setattr(spill_plan, "PAGE_ROWS_MIN", 3)


def spilled(world: World, place: Place, count: int = 20) -> list[bytes]:
    written = world.fill(place, count)
    assert world.round(JobKind.SPILL, after_ms=2_000)
    assert world.row(place).page_count > 0
    return written


def test_rows_that_left_the_memory_are_read_as_ever(small_pages, world):
    place = world.place("a")
    written = spilled(world, place)
    assert world.row(place).row_count == 3
    assert world.values(place) == written


def test_rows_are_spilled_only_until_there_are_few_enough(small_pages):
    with opened(spill_rows=25) as world:
        places = [world.place(name) for name in ("a", "b", "c")]
        for place in places:
            world.fill(place, 20)
        assert world.round(JobKind.SPILL, after_ms=2_000)
        assert [world.row(place).page_count for place in places] == [1, 1, 0]


def test_a_page_that_is_too_old_comes_back_to_be_dropped(small_pages, world):
    place = world.place("a", retention_ms="5000")
    spilled(world, place)
    assert world.round(JobKind.RETENTION, after_ms=10_000)
    partition = world.row(place)
    assert (partition.log_start, partition.row_count) == (20, 0)
    assert world.referenced() == frozenset()


def test_a_deleted_topic_with_pages_is_purged_to_the_end(small_pages, world):
    place = world.place("a")
    for _ in range(3):
        spilled(world, place)
    world.do(DeleteTopic(place[0]))
    world.purge()
    assert world.machine.partitions.find(*place) is not None
    assert world.round(JobKind.RETENTION)
    assert world.machine.partitions.find(*place) is None
    assert world.referenced() == frozenset()


def test_a_page_that_is_lost_holds_up_the_purge_of_no_other_topic(small_pages, world):
    places = [world.place(name) for name in ("lost", "whole")]
    for place in places:
        spilled(world, place)
    lost = world.row(places[0]).row(0)
    assert isinstance(lost, Page)
    world.runner.run(world.store.delete([lost.object_id.key]))
    for place in places:
        world.do(DeleteTopic(place[0]))
    world.purge()
    assert world.round(JobKind.RETENTION)
    assert world.machine.partitions.find(*places[0]) is not None
    assert world.machine.partitions.find(*places[1]) is None


def test_chunks_are_left_also_by_rows_in_pages(small_pages, world):
    place = world.place("a")
    written = spilled(world, place)
    assert world.round(JobKind.MERGE, after_ms=10_000)
    assert not [key for key in world.referenced() if key.startswith("chunks/")]
    assert world.values(place) == written


def test_pages_come_back_for_merging_no_more_at_a_time_than_there_is_room_for(
    small_pages, monkeypatch
):
    monkeypatch.setattr(merging, "RECALLED_ROWS_MIN", 5)
    with opened() as world:
        deleted, *places = [world.place(name) for name in ("deleted", "a", "b", "c", "d")]
        written = {place: list[bytes]() for place in places}
        for _ in range(6):
            world.fill(deleted, 4, size=900)
            for place in places:
                written[place] += world.fill(place, 4, size=900)
            assert world.round(JobKind.MERGE, after_ms=2_000)
        assert world.round(JobKind.SPILL, after_ms=2_000)
        assert [world.row(place).paged_row_count for place in places] == [4] * 4
        world.do(DeleteTopic(deleted[0]))
        world.purge()
        assert world.round(JobKind.RETENTION)
        shared = {key for key in world.referenced() if key.startswith("segments/")}
        rows = [world.machine.partitions.row_count]
        world.on_applied.append(lambda _applied: rows.append(world.machine.partitions.row_count))
        assert world.round(JobKind.MERGE)
        assert rows[0] < max(rows) <= rows[0] + 5
        for _ in range(5):
            assert world.round(JobKind.MERGE)
        assert len(world.referenced() & shared) == 1 < len(shared)
        assert {place: world.values(place) for place in places} == written


# Compaction.


def test_of_each_key_the_newest_record_stays_at_its_offset(world):
    place = world.place("a", cleanup_policy="compact")
    world.cycle(place, 30, keys=3)
    assert world.round(JobKind.COMPACT)
    assert [(record.offset, record.key) for record in world.records(place)] == [
        (27, b"k0"),
        (28, b"k1"),
        (29, b"k2"),
    ]


def test_compaction_goes_on_where_the_memory_for_keys_ended(world):
    world.set_kafka(log_cleaner_dedupe_buffer_size=4 * ENTRY_BYTES)
    ratio = {"min_cleanable_dirty_ratio": "0"}
    place = world.place("a", cleanup_policy="compact", **ratio)
    world.cycle(place, 60, keys=10)
    places = [0]
    while world.row(place).clean_to < 60:
        assert world.round(JobKind.COMPACT)
        places.append(world.row(place).clean_to)
        assert places[-1] > places[-2]
    assert len(places) > 10
    assert world.values(place) == [b"%d" % number for number in range(50, 60)]


@pytest.mark.parametrize("is_paged", [False, True])
def test_a_row_with_more_keys_than_there_is_memory_for_is_divided_and_compacted(
    is_paged, world, monkeypatch
):
    monkeypatch.setattr(spill_plan, "ROWS_LEFT", 0)
    monkeypatch.setattr(spill_plan, "PAGE_ROWS_MIN", 1)
    world.set_kafka(log_cleaner_dedupe_buffer_size=4 * ENTRY_BYTES)
    place = world.place("a", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    world.cycle(place, 60, keys=30)
    assert world.round(JobKind.MERGE, after_ms=2_000)
    assert world.row(place).row_count < 4
    if is_paged:
        assert world.round(JobKind.SPILL, after_ms=2_000)
        assert world.row(place).page_count == 1
    learned = OffsetMap._learn
    most = [0]

    def counted(offsets: OffsetMap, *arguments: Any) -> bool:
        fits = learned(offsets, *arguments)
        most.append(len(offsets))
        return fits

    monkeypatch.setattr(OffsetMap, "_learn", counted)
    for _ in range(20):
        assert world.round(JobKind.COMPACT)
    assert max(most) == 4
    assert world.row(place).clean_to == 60
    assert world.values(place) == [b"%d" % number for number in range(30, 60)]


def test_pages_are_compacted_too(small_pages, world):
    place = world.place("a", cleanup_policy="compact")
    written = spilled(world, place)
    assert world.round(JobKind.COMPACT)
    assert world.row(place).page_count == 0
    assert world.values(place) == [written[-1]]


def test_compaction_does_not_keep_what_is_old_beside_what_is_young(world):
    place = world.place("a", cleanup_policy="compact,delete", retention_ms="8000")
    world.produce((place, [(b"old", b"1")]))
    world.pass_time(2_000)
    world.produce((place, [(b"young", b"2")]))
    assert world.round(JobKind.COMPACT)
    assert world.round(JobKind.RETENTION, after_ms=7_000)
    assert world.values(place) == [b"2"]


def test_windows_in_which_nothing_changes_are_not_written_again(monkeypatch, world):
    monkeypatch.setattr(compacting, "WINDOW_BYTES_MAX", 200)
    ratio = {"min_cleanable_dirty_ratio": "0"}
    place = world.place("a", cleanup_policy="compact", **ratio)
    for number in range(10):
        world.produce((place, [(b"k%d" % number, b"value")]))
    assert world.round(JobKind.COMPACT)
    before = world.keys("segments/")
    world.produce((place, [(b"k0", b"newer")]))
    assert world.round(JobKind.COMPACT)
    # The window in which k0 was, and the new one.
    assert len(world.keys("segments/")) == len(before) + 2


def test_nothing_is_compacted_when_the_cleaner_is_switched_off(world):
    world.set_kafka(log_cleaner_enable=False)
    place = world.place("a", cleanup_policy="compact")
    world.fill(place, 10)
    assert world.round(JobKind.COMPACT)
    assert world.row(place).clean_to == 0


# Snapshots and collection.


def test_objects_wait_for_two_snapshots_a_grace_and_all_pins(world):
    place = world.place("a")
    world.fill(place, 10)
    world.do(Pin("export", 3_600_000))
    assert world.round(JobKind.MERGE, after_ms=2_000)
    steps = (
        lambda: world.round(JobKind.SNAPSHOT),
        lambda: world.round(JobKind.SNAPSHOT),
        lambda: world.pass_time(59_000),
        lambda: world.pass_time(2_000),
    )
    for step in steps:
        step()
        assert world.round(JobKind.COLLECT)
        assert len(world.keys("chunks/")) == 10
    assert world.round(JobKind.COLLECT, after_ms=3_600_000)
    assert world.keys("chunks/") == []


def test_what_a_predecessor_doomed_is_deleted_first(world):
    place = world.place("a")
    world.fill(place, 10)
    assert world.round(JobKind.MERGE, after_ms=2_000)
    world.snapshots(2)
    world.pass_time(61_000)
    stop_at = 1
    while next(iter(world.machine.objects.doomed()), None) is None:
        assert not world.round(JobKind.COLLECT, Steps(stop_at=stop_at))
        stop_at += 1
    world.take_over()
    assert world.round(JobKind.COLLECT, requested=False)
    assert world.keys("chunks/") == []
    assert next(iter(world.machine.objects.doomed()), None) is None


@pytest.mark.parametrize(
    "kind", [JobKind.RETENTION, JobKind.MERGE, JobKind.SPILL, JobKind.COMPACT, JobKind.SNAPSHOT]
)
def test_a_round_that_was_stopped_anywhere_is_gone_on_with(kind, small_pages):
    """At each await in turn; after it another agent has the job."""
    stop_at, was_stopped = 1, True
    while was_stopped:
        with opened() as world:
            place = world.place("a", cleanup_policy="compact,delete", retention_ms="9000")
            world.fill(place, 6)
            world.pass_time(8_000)
            young = world.fill(place, 6)
            world.pass_time(2_000)
            was_stopped = not world.round(kind, Steps(stop_at=stop_at))
            assert set(world.values(place)) >= {young[-1]}
            world.take_over()
            for each in (kind, JobKind.RETENTION, JobKind.COMPACT, JobKind.COLLECT):
                assert world.round(each)
            assert world.values(place) == [young[-1]]
            # A row of which nothing was left has no age.
            assert kind is JobKind.COMPACT or world.row(place).log_start == 6
        stop_at += 1
    assert stop_at > 3
