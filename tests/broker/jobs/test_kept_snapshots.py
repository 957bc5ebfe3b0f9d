"""Snapshots that are kept to go back to: what the jobs leave in the store, and for how long."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from broker.jobs.kinds import collection_plan
from coordinator.commands.entries import Pin
from coordinator.commands.job_commands import JobKind
from coordinator.machine.machine import Machine
from coordinator.snapshot.keeping import DAY_MS, HOUR_MS, MINUTE_MS, snapshot_pins
from coordinator.snapshot.listing import StoredSnapshot, stored_snapshots
from coordinator.snapshot.manifest import manifest_key, part_key
from coordinator.snapshot.snapshot import restore
from coordinator.snapshot.store import SnapshotStore
from coordinator.tables.pins import PIN_LIFETIME_MS_MAX, PINS_MAX
from protocol.types import Position, first_position
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.era_marker import era_key
from tests.broker.jobs.world import SETTINGS, Place, Steps, World


def keeping(retention_ms: int) -> World:
    return World(replace(SETTINGS, snapshot_retention_ms=retention_ms))


@pytest.fixture
def world() -> Iterator[World]:
    with closing(keeping(3 * HOUR_MS)) as world:
        yield world


def stored(world: World) -> list[StoredSnapshot]:
    return world.runner.run(stored_snapshots(world.store))


def positions(world: World) -> list[Position]:
    """The newest first."""
    return [each.position for each in stored(world)]


def missing(world: World, snapshot: StoredSnapshot) -> list[str]:
    """What the snapshot points at, and is not there."""
    return world.runner.run(_missing(world, snapshot))


async def _missing(world: World, snapshot: StoredSnapshot) -> list[str]:
    source = SnapshotStore(world.store, ClusterIdentity(world.settings.cluster_id, 1))
    machine = Machine()
    restore(machine, await source.read(snapshot.key))
    return [
        object_id.key
        for object_id, length in machine.objects.referenced()
        if len(world.store._objects.get(object_id.key, b"")) != length
    ]


def live(world: World, place: Place, ms: int, *, each_ms: int = 10 * MINUTE_MS) -> None:
    """Records come and go, and all jobs have their rounds."""
    for _ in range(ms // each_ms):
        world.fill(place, 4)
        world.pass_time(each_ms)
        if (row := world.row(place)).end_offset > 20:
            world.trim(place, row.end_offset - 20)
        for kind in (JobKind.MERGE, JobKind.SNAPSHOT, JobKind.COLLECT):
            assert world.round(kind)


def published(world: World) -> set[Position]:
    return {each.position for each in world.machine.snapshots.published}


def test_what_a_recovery_left_that_was_given_up_goes_a_day_later_if_its_era_has_not_begun(
    world: World,
) -> None:
    left = [manifest_key(first_position(2)), part_key(first_position(2), 0)]
    for key in left:
        world.runner.run(world.store.put_new(key, [b"of a recovery"]))
    world.snapshots(1)
    assert world.round(JobKind.COLLECT, after_ms=DAY_MS // 2)
    assert set(left) < set(world.store._objects)
    marker = era_key(2)
    world.runner.run(world.store.put_new(marker, [b""]))
    assert world.round(JobKind.COLLECT, after_ms=DAY_MS)
    assert set(left) < set(world.store._objects)
    world.runner.run(world.store.delete([marker]))
    assert world.round(JobKind.COLLECT)
    assert not set(left) & set(world.store._objects)
    assert len(positions(world)) == 1


def test_without_a_retention_the_two_newest_are_left() -> None:
    with closing(keeping(0)) as world:
        live(world, world.place("a"), 2 * HOUR_MS)
        assert world.round(JobKind.COLLECT, after_ms=collection_plan.SNAPSHOT_GRACE_MS)
        assert set(positions(world)) == published(world)
        assert len(world.machine.pins) == 0


@pytest.mark.promise("P14")
def test_kept_snapshots_have_all_that_they_point_at(world: World) -> None:
    place = world.place("a")
    live(world, place, 5 * HOUR_MS)
    found = stored(world)
    pins = snapshot_pins(world.machine.pins, world.machine.time_ms)
    assert len(found) >= len(pins) > 6
    for snapshot in found:
        assert missing(world, snapshot) == []
    ages = [world.machine.time_ms - each.manifest.time_ms for each in found if each.manifest]
    assert 2 * HOUR_MS < max(ages) <= 3 * HOUR_MS
    assert collection_plan.kept_since(world.machine) == pins[0].position < found[-1].position


def test_when_their_time_is_over_they_go_and_all_that_they_alone_pointed_at(world: World) -> None:
    place = world.place("a")
    live(world, place, 2 * HOUR_MS)
    world.settings = replace(world.settings, snapshot_retention_ms=0)
    assert len(positions(world)) > 6
    held = len(world.keys("chunks/"))
    live(world, place, 4 * HOUR_MS)
    assert world.round(JobKind.COLLECT, after_ms=collection_plan.SNAPSHOT_GRACE_MS)
    assert set(positions(world)) == published(world)
    assert len(world.keys("chunks/")) < held / 3


def test_a_snapshot_goes_before_what_it_alone_points_at(world: World) -> None:
    """Looked at before each step of the collection; so who finds a snapshot finds all of it."""
    place = world.place("a")
    live(world, place, 2 * HOUR_MS)
    world.settings = replace(world.settings, snapshot_retention_ms=0)
    for _ in range(2):
        world.fill(place, 1)
        assert world.round(JobKind.SNAPSHOT)
    world.pass_time(4 * HOUR_MS)
    assert len(stored(world)) > 6
    looked_at = []

    async def look() -> None:
        for snapshot in await stored_snapshots(world.store):
            assert await _missing(world, snapshot) == []
            looked_at.append(snapshot.position)

    before = len(world.keys("chunks/"))
    assert world.round(JobKind.COLLECT, Steps(events=dict.fromkeys(range(1, 100), look)))
    assert len(world.keys("chunks/")) < before / 2
    assert len(set(looked_at)) > len(stored(world)) == 2


def test_the_manifest_says_what_is_kept(world: World) -> None:
    live(world, world.place("a"), HOUR_MS)
    newest = stored(world)[0].manifest
    assert newest is not None
    assert list(newest.pins) == snapshot_pins(world.machine.pins, world.machine.time_ms)
    assert newest.pins[-1].position < newest.position


def test_whoever_has_the_jobs_next_keeps_what_was_kept(world: World) -> None:
    place = world.place("a")
    live(world, place, 2 * HOUR_MS)
    before = positions(world)
    world.take_over()
    world.settings = replace(world.settings, snapshot_retention_ms=0)
    live(world, place, 20 * MINUTE_MS)
    pins = snapshot_pins(world.machine.pins, world.machine.time_ms)
    assert len(pins) >= 3
    assert len(set(before) & set(positions(world))) >= len(pins)


def test_what_is_kept_for_longer_than_pins_live_is_renewed_by_the_collection() -> None:
    with closing(keeping(9 * DAY_MS)) as world:
        world.place("a")
        assert world.round(JobKind.SNAPSHOT)
        (first,) = positions(world)
        for _ in range(9 * 2 - 1):
            world.pass_time(12 * HOUR_MS)
            assert world.round(JobKind.SNAPSHOT)
            assert world.round(JobKind.COLLECT)
            assert first in positions(world)
        assert world.round(JobKind.COLLECT, after_ms=12 * HOUR_MS)
        assert first not in positions(world)


def test_with_a_retention_of_nothing_pins_are_not_renewed() -> None:
    with closing(keeping(9 * DAY_MS)) as world:
        assert world.round(JobKind.SNAPSHOT)
        world.settings = replace(world.settings, snapshot_retention_ms=0)
        for _ in range(7):
            assert world.round(JobKind.COLLECT, after_ms=DAY_MS)
        assert snapshot_pins(world.machine.pins, world.machine.time_ms) == []


def test_a_round_that_ended_early_takes_no_snapshot_from_those_that_are_kept(world: World) -> None:
    """Its manifest is there, and it was never published: the one after it is kept instead."""
    place = world.place("a")
    live(world, place, HOUR_MS)
    before = set(positions(world))
    world.pass_time(HOUR_MS)
    stop_at = 3  # Its pin is set.
    while not (given_up := set(positions(world)) - before):
        assert not world.round(JobKind.SNAPSHOT, Steps(stop_at=stop_at))
        stop_at += 1
    assert not given_up & published(world)
    world.fill(place, 1)
    assert world.round(JobKind.SNAPSHOT)
    assert world.round(JobKind.COLLECT)
    assert not given_up & set(positions(world))
    instead = world.machine.snapshots.published[0].position
    live(world, place, 2 * HOUR_MS)
    assert instead in positions(world)


def test_a_snapshot_is_made_though_there_are_as_many_pins_as_there_may_be(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(PINS_MAX):
        world.do(Pin(f"export-{number}", PIN_LIFETIME_MS_MAX))
    assert world.round(JobKind.SNAPSHOT)
    assert len(positions(world)) == 1
    assert f"will not be kept (snapshot.retention.ms): there are {PINS_MAX} pins" in caplog.text


def test_a_snapshot_is_made_though_its_pin_did_not_get_into_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """As over the log's budget, which ends by the second snapshot."""
    assert world.round(JobKind.SNAPSHOT, Steps(stop_at=1))
    assert len(published(world)) == 1
    assert len(world.machine.pins) == 0
    assert "the next snapshot will not be kept" in caplog.text
