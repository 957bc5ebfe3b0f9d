"""Small archives become large ones, and no entry is missing at any time."""

from dataclasses import replace

import pytest

from broker.jobs.kinds import archive_merging
from broker.jobs.kinds.archive_merging import (
    MERGE_ROUNDS,
    RUN_MIN,
    SMALL_BYTES,
    Archived,
    runs,
    small_archives,
)
from coordinator.commands.job_commands import JobKind
from coordinator.log.metadata_log import VoidedEntry
from coordinator.log.voided import payload_digest
from coordinator.voids import Voids
from protocol.types import Position
from storage.formats.log_archive import (
    ArchivedEntry,
    ArchiveFormatError,
    LogArchive,
    archive_key,
    decode_archive,
    encode_archive,
    range_of,
)
from storage.stores.object_store import ObjectInfo
from tests.broker.jobs.world import Steps, World


def merged(parts: list[LogArchive], *voided: VoidedEntry) -> LogArchive:
    return archive_merging.merged(parts, Voids(voided))


def archived(after: int, last: int, length: int = 100) -> Archived:
    return Archived(Position(after), Position(last), length)


def archive(after: int, *places: int) -> LogArchive:
    entries = [ArchivedEntry(Position(at), 7, at, False, b"%d" % at) for at in places]
    digest = places[-1].to_bytes(16, "big")
    return LogArchive("jobs", Position(after), Position(places[-1]), digest, tuple(entries))


def test_only_small_ones_before_the_newest_snapshot_are_merged() -> None:
    infos = [
        ObjectInfo("archive/notes", 5, 0),
        ObjectInfo(archive_key(Position(1), Position(4)), 5, 0),
        ObjectInfo(archive_key(Position(4), Position(6)), SMALL_BYTES, 0),
        ObjectInfo(archive_key(Position(6), Position(11)), 5, 0),
    ]
    assert list(small_archives(infos, until=Position(10))) == [archived(1, 4, 5)]
    assert list(small_archives(infos, until=None)) == []


def test_a_run_has_no_hole_and_is_no_larger_than_an_archive_may_be() -> None:
    first = [archived(at, at + 1) for at in range(RUN_MIN)]
    other = [archived(at, at + 1) for at in range(100, 100 + RUN_MIN)]
    few = [archived(at, at + 1) for at in range(200, 200 + RUN_MIN - 1)]
    assert list(runs([*few, *other, *first])) == [first, other]
    overlapping = [*first, archived(0, RUN_MIN - 2), archived(RUN_MIN - 3, RUN_MIN + 2)]
    (run,) = runs(overlapping)
    assert sorted(run) == sorted(overlapping)
    large = [archived(at, at + 1, SMALL_BYTES // 4) for at in range(80)]
    assert [len(run) for run in runs(large)] == [32, 32, 16]
    within = [archived(0, 50), *[archived(at, at + 1) for at in range(RUN_MIN)], archived(40, 60)]
    (run,) = runs(within)
    assert sorted(run) == sorted(within)


def test_one_of_many_has_each_entry_once_and_the_digest_of_the_last() -> None:
    parts = [archive(0, 3), archive(3, 4, 6), archive(0, 3, 4), archive(4, 6, 9)]
    assert merged(parts) == archive(0, 3, 4, 6, 9)


@pytest.mark.parametrize(
    "other",
    [
        replace(archive(3, 4), cluster_id="theirs"),
        replace(archive(0, 3), entries=(ArchivedEntry(Position(3), 7, 3, True, b"3"),)),
    ],
)
def test_archives_that_are_not_of_one_log_are_not_merged(other: LogArchive) -> None:
    with pytest.raises(ArchiveFormatError):
        merged([archive(0, 3), other])


def test_an_archive_of_before_an_entry_was_voided_is_not_merged_with_those_that_follow() -> None:
    void = VoidedEntry(Position(4), 7, 4, payload_digest(b"4"), 1, "poison")
    old, following = archive(0, 3, 4), archive(4, 6)
    assert merged([old, following]) == archive(0, 3, 4, 6)
    with pytest.raises(ArchiveFormatError, match="voided"):
        merged([old, following], void)
    passed_over = replace(old.entries[1], voided=True)
    young = replace(old, entries=(old.entries[0], passed_over))
    assert merged([young, following], void).entries == (*young.entries, *following.entries)


def put(world: World, *archives: LogArchive) -> None:
    for each in archives:
        key = archive_key(each.after, each.last)
        world.runner.run(world.store.put_new(key, [encode_archive(each)]))


def many(world: World) -> list[LogArchive]:
    """Small ones that end at the newest snapshot."""
    world.snapshots(1)
    newest = world.machine.snapshots.published[0].position
    return [archive(at - 1, at) for at in range(newest - 20, newest + 1)]


def ranges(world: World) -> list[tuple[int, int]]:
    return [range_of(key) for key in world.keys("archive/0")]


def test_a_round_of_the_collection_merges(world: World) -> None:
    small = many(world)
    newest = small[-1].last
    put(world, *small, archive(newest, newest + 1))
    assert world.round(JobKind.COLLECT)
    first = small[0].after
    assert ranges(world) == [(first, newest), (newest, newest + 1)]
    data = world.store._objects[archive_key(first, newest)]
    assert decode_archive(data) == merged(small)


def test_a_round_that_is_stopped_anywhere_loses_no_entry(world: World) -> None:
    small = many(world)
    expected = {entry for each in small for entry in each.entries}
    put(world, *small)
    stop_at = 1
    while not world.round(JobKind.COLLECT, Steps(stop_at=stop_at)):
        found = [decode_archive(world.store._objects[key]) for key in world.keys("archive/0")]
        assert {entry for each in found for entry in each.entries} == expected
        put(world, *small)
        stop_at += 1
    assert stop_at >= 20
    assert ranges(world) == [(small[0].after, small[-1].last)]


def test_merging_goes_on_where_a_round_was_stopped(world: World) -> None:
    small = many(world)
    put(world, *small, merged(small[:18]))
    assert world.round(JobKind.COLLECT)
    assert ranges(world) == [(small[0].after, small[-1].last)]


def test_rounds_that_nobody_asked_for_merge_seldom(world: World) -> None:
    small = many(world)
    put(world, *small)
    counts = []
    for number in range(1, MERGE_ROUNDS + 1):
        world.stats[JobKind.COLLECT].runs = number
        assert world.round(JobKind.COLLECT, requested=False)
        counts.append(len(ranges(world)))
    assert counts == [len(small)] * (MERGE_ROUNDS - 1) + [1]


def test_one_that_is_damaged_stays_with_its_neighbours(world: World) -> None:
    small = many(world)
    put(world, *small)
    key = world.keys("archive/0")[3]
    world.store._objects[key] = b"damaged"
    assert world.round(JobKind.COLLECT)
    assert len(ranges(world)) == len(small)
