"""One object is lost: jobs leave what lay in it, and go on with all else."""

import pytest

from broker.jobs.kinds import spill_plan
from coordinator.commands.job_commands import JobKind
from storage.formats.spans import Page, Row
from tests.broker.jobs.world import Place, World

CHUNK, PAGE = "a chunk", "a page"


@pytest.fixture(autouse=True)
def small_pages(monkeypatch) -> None:
    monkeypatch.setattr(spill_plan, "ROWS_LEFT", 2)
    monkeypatch.setattr(spill_plan, "PAGE_ROWS_MIN", 3)


@pytest.fixture(params=[CHUNK, PAGE])
def what(request) -> str:
    return request.param


def lose(world: World, row: Row) -> None:
    del world.store._objects[row.object_id.key]


def two(world: World, what: str, **configs: str) -> tuple[Place, Place]:
    """Partitions with records of three keys, the first of which has lost something in the middle."""
    bad, good = (world.place(name, **configs) for name in ("bad", "good"))
    for place in (bad, good):
        world.cycle(place, 20, keys=3)
        if what is PAGE:
            assert world.round(JobKind.SPILL, after_ms=2_000)
    lost = world.row(bad).row(0 if what is PAGE else 4)
    assert isinstance(lost, Page) == (what is PAGE)
    lose(world, lost)
    return bad, good


def numbers(*chosen: int) -> list[bytes]:
    return [b"%d" % number for number in chosen]


def test_others_are_merged(world, what):
    bad, good = two(world, what)
    assert world.round(JobKind.MERGE, after_ms=10_000)
    if what is CHUNK:
        assert world.row(bad).segment_bytes == 0
    assert not [
        row for row in world.row(good).rows_from(0, 100) if row.object_id.key.startswith("chunks/")
    ]
    assert world.values(good) == numbers(*range(20))


def test_others_are_compacted(world, what):
    bad, good = two(world, what, cleanup_policy="compact")
    assert world.round(JobKind.COMPACT, after_ms=2_000)
    assert world.row(bad).clean_to == 0
    assert world.values(good) == numbers(17, 18, 19)


def test_all_expire(world, what):
    bad, good = two(world, what, retention_ms="5000")
    assert world.round(JobKind.RETENTION, after_ms=10_000)
    assert [world.row(place).log_start for place in (bad, good)] == [20, 20]
    assert world.row(good).row_count == 0


def test_others_are_spilled(world, what):
    bad, good = two(world, what)
    for place in (bad, good):
        world.cycle(place, 20, keys=3)
    before = world.row(good).paged_row_count
    assert world.round(JobKind.SPILL, after_ms=10_000)
    assert world.row(good).paged_row_count > before
    assert world.values(good) == numbers(*range(20), *range(20))


def test_what_nobody_needs_is_collected_and_snapshots_are_made(world, what):
    _, good = two(world, what)
    assert world.round(JobKind.MERGE, after_ms=10_000)
    world.snapshots(2)
    assert world.round(JobKind.COLLECT, after_ms=100_000)
    world.snapshots(2)
    assert world.values(good) == numbers(*range(20))
