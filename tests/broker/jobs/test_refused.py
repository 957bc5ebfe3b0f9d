"""What the store refuses to delete: it stays, is told of, and is in nobody's way."""

import logging

import pytest

from broker.jobs.kinds import collecting, collection_plan
from coordinator.commands.job_commands import JobKind
from coordinator.machine import job_applier
from tests.broker.jobs.world import World

CHUNKS = 12


def let_go(world: World) -> list[str]:
    """Keys of chunks that nothing points at, and that may go now."""
    place = world.place(f"t{world.clock_ms}")
    for number in range(CHUNKS):
        world.produce((place, [(b"key", b"%d" % number)]))
    made = world.keys("chunks/")
    world.trim(place, CHUNKS)
    world.snapshots(2)
    world.pass_time(world.settings.kafka.log_segment_delete_delay_ms + 1)
    return made


def keep(world: World, *kept: str, reason: str = "held by the lawyers") -> None:
    world.store.kept.update(dict.fromkeys(kept, reason))


def deleting(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every key that the store is asked to delete from now on."""
    asked: list[str] = []
    inner = world.store.delete

    async def delete(names):
        asked.extend(names)
        return await inner(names)

    monkeypatch.setattr(world.store, "delete", delete)
    return asked


@pytest.mark.promise("P14")
def test_an_object_that_cannot_be_deleted_keeps_no_other(world: World) -> None:
    chunks = let_go(world)
    keep(world, chunks[3])
    assert world.round(JobKind.COLLECT, requested=False)
    assert world.keys("chunks/") == [chunks[3]]
    assert world.machine.objects.doomed_count == 0


@pytest.mark.promise("P14")
def test_more_objects_that_cannot_be_deleted_than_may_be_doomed_keep_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_applier, "DOOMED_MAX", 3)
    monkeypatch.setattr(collecting, "OBJECTS_PER_COMMAND_MAX", 2)
    chunks = let_go(world)
    keep(world, *chunks[: CHUNKS - 2])
    assert world.round(JobKind.COLLECT, requested=False)
    assert world.keys("chunks/") == chunks[: CHUNKS - 2]
    more = let_go(world)
    assert world.round(JobKind.COLLECT)
    assert set(more) > set(world.keys("chunks/")) == set(chunks[: CHUNKS - 2])
    assert world.machine.objects.doomed_count == 0


def test_what_was_refused_is_left_alone_until_everything_is_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = let_go(world)
    keep(world, chunks[3])
    assert world.round(JobKind.COLLECT, requested=False)
    asked = deleting(world, monkeypatch)
    assert world.round(JobKind.COLLECT, requested=False)
    assert asked == []
    assert world.round(JobKind.COLLECT)
    assert asked == [chunks[3]]
    world.store.kept.clear()
    assert world.round(JobKind.COLLECT)
    assert world.keys("chunks/") == []
    assert world.stats[JobKind.COLLECT].refused == 0


def test_what_was_refused_goes_in_the_first_round_of_another_holder(world: World) -> None:
    chunks = let_go(world)
    keep(world, chunks[3])
    assert world.round(JobKind.COLLECT, requested=False)
    world.store.kept.clear()
    world.take_over()
    # Of a new worker.
    world.stats[JobKind.COLLECT].runs = 1
    assert world.round(JobKind.COLLECT, requested=False)
    assert world.keys("chunks/") == []


def test_a_reason_is_told_once_with_an_example_and_all_objects_are_counted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    chunks = let_go(world)
    keep(world, *chunks[:5])
    keep(world, chunks[7], reason=f"AccessDenied, nobody may delete {chunks[7]}")
    keep(world, chunks[8], reason=f"AccessDenied, nobody may delete {chunks[8]}")
    for _ in range(3):
        assert world.round(JobKind.COLLECT)
    assert world.stats[JobKind.COLLECT].refused == 7
    first, second = caplog.messages
    assert f"{chunks[0]} and 4 more: held by the lawyers" in first
    assert f"{chunks[7]} and 1 more: AccessDenied, nobody may delete {chunks[7]}" in second


def test_snapshots_that_cannot_be_deleted_keep_no_other_and_are_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world.snapshots(5)
    old = world.keys("snapshots/")[0]
    keep(world, old)
    world.pass_time(collection_plan.SNAPSHOT_GRACE_MS)
    assert world.round(JobKind.COLLECT, requested=False)
    folders = {key.split("/")[1] for key in world.keys("snapshots/")}
    published = {f"{each.position:016x}" for each in world.machine.snapshots.published}
    assert folders == published | {old.split("/")[1]}
    assert [old in message for message in caplog.messages] == [True]
    asked = deleting(world, monkeypatch)
    assert world.round(JobKind.COLLECT, requested=False)
    assert asked == []
    assert world.round(JobKind.COLLECT)
    assert asked == [old]
    assert world.stats[JobKind.COLLECT].refused == 1


def test_no_more_snapshots_are_remembered_than_the_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.jobs.worker.context.REFUSED_MAX", 2)
    world.snapshots(6)
    keep(world, "snapshots/")
    world.pass_time(collection_plan.SNAPSHOT_GRACE_MS)
    for _ in range(3):
        assert world.round(JobKind.COLLECT, requested=False)
    assert len(world.kept.left_alone) == 2
