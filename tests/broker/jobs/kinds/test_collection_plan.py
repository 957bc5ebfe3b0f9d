"""Which objects may be deleted, as far as a replica can see."""

from contextlib import closing

import pytest

from broker.jobs.kinds import collection_plan
from coordinator.commands.entries import Pin
from coordinator.commands.job_commands import JobKind
from protocol.types import Incarnation, Position
from storage.formats.log_checkpoint import LogCheckpoint
from storage.formats.spans import ObjectId, ObjectKind, Span
from storage.stores.object_store import ObjectInfo
from tests.broker.jobs.world import World

GRACE_MS = 60_000


def merge_ten_chunks(world: World) -> list[ObjectId]:
    """Nothing points at them any more, since a moment ago."""
    place = world.place("a")
    for _ in range(10):
        world.produce((place, [(b"k", b"v")]))
    partition = world.partition(place)
    assert partition is not None
    chunks = [row.object_id for row in partition.rows_from(0, 10) if isinstance(row, Span)]
    world.pass_time(2_000)
    assert world.round(JobKind.MERGE)
    return chunks


def collectable(world: World) -> list[ObjectId]:
    return list(collection_plan.collectable(world.machine, grace_ms=GRACE_MS))


def snapshot(world: World) -> None:
    assert world.round(JobKind.SNAPSHOT)


def test_a_pin_from_before_keeps_objects_and_a_later_one_does_not():
    for pinned_first in (True, False):
        with closing(World()) as world:
            place = world.place("a")
            world.produce(*[(place, [(b"k", b"v")])])
            if pinned_first:
                world.do(Pin("export", 3_600_000))
            world.pass_time(10_000)
            assert world.round(JobKind.MERGE)
            if not pinned_first:
                world.do(Pin("export", 3_600_000))
            for _ in range(2):
                snapshot(world)
            world.pass_time(GRACE_MS)
            assert bool(collectable(world)) is not pinned_first


def unnamed(world: World, *keys: str) -> list[str]:
    infos = [ObjectInfo(key, 1, 0) for key in keys]
    return [each.info.key for each in collection_plan.unnamed(world.machine, infos)]


def test_unnamed_is_what_no_command_named_and_none_can_name_any_more(world):
    chunks = merge_ten_chunks(world)
    agent = world.agents[0]
    row = world.machine.incarnations.get(agent)
    assert row is not None
    committed = row.segment_last
    keys = [
        chunks[0].key,
        ObjectId(agent, committed, ObjectKind.SEGMENT).key,
        ObjectId(agent, committed + 1, ObjectKind.SEGMENT).key,
        ObjectId(agent, 0, ObjectKind.INDEX).key,
        ObjectId(Incarnation(world.machine.position + 1000), 0).key,
        "cluster.json",
    ]
    assert unnamed(world, *keys) == []
    given_up = ObjectId(agent, row.chunk_last + 1)
    assert unnamed(world, given_up.key) == []
    world.produce((next(iter(world.written)), [(b"k", b"v")]))
    world.chunks[agent] += 1
    world.produce((next(iter(world.written)), [(b"k", b"v")]))
    skipped = ObjectId(agent, row.chunk_last - 1)
    assert unnamed(world, skipped.key) == [skipped.key]
    world.take_over()
    assert unnamed(world, *keys) == [keys[2], keys[3]]


@pytest.mark.promise("P14")
def test_orphans_are_older_by_the_stores_clock_than_every_live_agent(world):
    past = ObjectId(world.holder, 0, ObjectKind.INDEX)
    world.take_over()
    infos = [ObjectInfo(past.key, 1, modified_ms=5000)]
    assert list(collection_plan.orphans(world.machine, infos, begun_ms=5001)) == [past]
    assert list(collection_plan.orphans(world.machine, infos, begun_ms=5000)) == []
    assert list(collection_plan.orphans(world.machine, infos, begun_ms=None)) == []


def test_when_the_oldest_agent_began_is_known_when_all_have_told_the_store(world):
    first = world.agents[0]
    row = world.machine.incarnations.get(first)
    assert row is not None
    found = {LogCheckpoint(first, Position(first + 2)): 100}
    assert collection_plan.begun_ms(world.machine, found) is None
    found[LogCheckpoint(first, Position(first))] = 70
    for other in world.machine.incarnations:
        found.setdefault(LogCheckpoint(other.incarnation, Position(other.incarnation)), 80)
    assert collection_plan.begun_ms(world.machine, found) == 70


def test_checkpoints_of_agents_that_are_over_go_but_the_newest_stays(world):
    first = world.holder
    world.take_over()
    live = [row.incarnation for row in world.machine.incarnations][-1]
    over = [LogCheckpoint(first, Position(first)), LogCheckpoint(first, Position(first + 2))]
    began = LogCheckpoint(live, Position(live))
    old = collection_plan.old_checkpoints
    assert list(old(world.machine, over)) == over[:1]
    assert list(old(world.machine, [began, *over])) == over
    ahead = Incarnation(world.machine.position + 2)
    coming = [LogCheckpoint(ahead, Position(ahead)), LogCheckpoint(ahead, Position(ahead + 2))]
    assert list(old(world.machine, [*over, began, *coming])) == over


def test_snapshots_that_are_published_begun_or_young_are_kept(world):
    for _ in range(3):
        snapshot(world)
    infos = [
        ObjectInfo(key, 1, world.store._modified_ms[key])
        for key in world.store._objects
        if key.startswith("snapshots/")
    ]
    assert list(collection_plan.old_snapshots(world.machine, infos)) == []
    world.pass_time(collection_plan.SNAPSHOT_GRACE_MS)
    old = set(collection_plan.old_snapshots(world.machine, infos))
    kept = {f"{each.position:016x}" for each in world.machine.snapshots.published}
    assert len(old) == len(infos) // 3
    assert {key.split("/")[1] for key in old}.isdisjoint(kept)
    strange = [ObjectInfo(key, 1, 0) for key in ("snapshots/x/manifest", "snapshots/", "chunks/0")]
    assert list(collection_plan.old_snapshots(world.machine, strange)) == []
