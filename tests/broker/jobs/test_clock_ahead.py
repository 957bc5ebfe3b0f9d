"""Compaction where the only clock was days ahead for a moment: the machine's time stays ahead, and nothing goes by that alone."""

import pytest

from coordinator.commands.job_commands import JobKind
from tests.broker.jobs.world import Place, World

HOUR_MS = 3_600_000
DAYS_MS = 30 * 24 * HOUR_MS


def place_of(world: World, **configs: str) -> Place:
    return world.place("a", cleanup_policy="compact", min_cleanable_dirty_ratio="0", **configs)


def go_ahead(world: World) -> None:
    """The clock is wrong for a moment."""
    world.pass_time(DAYS_MS)
    world.clock_ms -= DAYS_MS


def compact(world: World, *, after_ms: int = 0) -> None:
    assert world.round(JobKind.COMPACT, after_ms=after_ms)


def records_of(world: World, place: Place) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in world.records(place)]


@pytest.mark.promise("P6")
def test_a_tombstone_stays_for_its_time_though_the_machines_has_gone_by(world):
    place = place_of(world, delete_retention_ms=str(HOUR_MS))
    world.produce((place, [(b"k", b"1")]))
    world.produce((place, [(b"k", None)]))
    compact(world)
    assert records_of(world, place) == [(b"k", None)]
    go_ahead(world)
    world.produce((place, [(b"other", b"1")]))
    compact(world)
    assert records_of(world, place) == [(b"k", None), (b"other", b"1")]
    world.produce((place, [(b"other", b"2")]))
    compact(world, after_ms=HOUR_MS + 1000)
    assert records_of(world, place) == [(b"other", b"2")]


@pytest.mark.promise("P6")
def test_a_tombstone_that_a_clock_far_behind_saw_first_stays_for_its_time(world):
    place = place_of(world, delete_retention_ms=str(HOUR_MS))
    world.produce((place, [(b"k", b"1")]))
    world.produce((place, [(b"k", None)]))
    world.clock_ms -= DAYS_MS  # The worker's; the machine's time stays.
    compact(world)
    world.clock_ms += DAYS_MS
    world.produce((place, [(b"other", b"1")]))
    compact(world)
    assert records_of(world, place) == [(b"k", None), (b"other", b"1")]


@pytest.mark.promise("P6")
def test_records_written_after_a_clock_was_ahead_are_compacted_when_they_are_old_enough(world):
    place = place_of(world, min_compaction_lag_ms=str(HOUR_MS))
    go_ahead(world)
    world.produce((place, [(b"k", b"1")]))
    world.produce((place, [(b"k", b"2")]))
    compact(world)
    assert records_of(world, place) == [(b"k", b"1"), (b"k", b"2")]
    compact(world, after_ms=HOUR_MS + 1000)
    assert records_of(world, place) == [(b"k", b"2")]


@pytest.mark.promise("P6")
def test_little_that_was_written_after_a_clock_was_ahead_waits_as_young(world):
    place = place_of(world, max_compaction_lag_ms=str(24 * HOUR_MS))
    go_ahead(world)
    world.produce((place, [(b"k", b"1")]))
    world.produce((place, [(b"k", b"2")]))
    assert world.round(JobKind.COMPACT, requested=False)
    assert records_of(world, place) == [(b"k", b"1"), (b"k", b"2")]
