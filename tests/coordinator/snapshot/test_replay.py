"""Dumps that are held to what log and store say, before anything is cut for them (P13)."""

import asyncio
import logging

import pytest

from broker.jobs.kinds import snapshotting
from coordinator.commands.job_commands import JobKind, PublishSnapshot
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.machine.machine import Machine
from coordinator.replay import DivergedError, prove
from coordinator.snapshot.manifest import manifest_key, part_key
from coordinator.snapshot.snapshot import SnapshotError, dump
from protocol.fault_codes import FaultCode, Sentence
from protocol.types import Buffer
from storage.formats import cluster_identity
from storage.stores.memory import MemoryStore
from storage.stores.object_store import ObjectNotFoundError
from tests.broker.jobs.hosts import HostingAgent, running_host, until
from tests.coordinator.snapshot.world import World
from tests.kit.faults import FaultyLog, lost

pytestmark = pytest.mark.schedules(5)


async def dumped(world: World) -> list[bytes]:
    """The machine of who has applied all of the log."""
    await world.whole.wait_for(await world.writer.log.head())
    return dump(world.whole.machine)


async def proven(world: World, parts: list[bytes], log: MemoryLog | None = None) -> Sentence | None:
    async with asyncio.timeout(600):
        return await prove(parts, log=log or MemoryLog(world.cluster), source=world.snapshots)


async def test_what_the_log_says_is_proven_from_its_beginning_and_from_a_snapshot() -> None:
    world = await World().begin()
    await world.topic("early")
    await proven(world, await dumped(world))
    await world.snapshot()
    await world.topic("later")
    await world.snapshot()
    await world.topic("last")
    parts = await dumped(world)
    await world.topic("behind it")
    await proven(world, parts)


def first_topic_is_another(machine: Machine) -> None:
    next(iter(machine.topics)).configs["retention.ms"] = "1"


def a_partition_ends_elsewhere(machine: Machine) -> None:
    topic = next(iter(machine.topics))
    machine.partitions.get(topic.topic_id, 0).end_offset ^= 1 << 20


def time_is_another(machine: Machine) -> None:
    machine.time_ms += 1


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    "damage", [first_topic_is_another, a_partition_ends_elsewhere, time_is_another]
)
async def test_a_replica_whose_memory_was_damaged_is_no_proof_of_itself(damage) -> None:
    world = await World().two_snapshots()
    await dumped(world)
    before = world.whole.machine.digest()
    damage(world.whole.machine)
    parts = await dumped(world)
    assert world.whole.machine.digest() == before
    with pytest.raises(DivergedError, match="not what the log says"):
        await proven(world, parts)


async def test_an_entry_that_was_applied_and_is_not_in_the_log_is_noticed() -> None:
    class Leaky(MemoryLog):
        async def tail(self, after):
            async for batch in super().tail(after):
                if kept := [entry for entry in batch if entry.position != lost_at]:
                    yield kept

    world = await World().two_snapshots()
    lost_at = await world.writer.log.head()
    parts = await dumped(world)
    await world.topic("behind it")
    with pytest.raises(DivergedError, match="no entry at position"):
        await proven(world, parts, Leaky(world.cluster))


async def test_a_log_that_is_away_is_waited_for() -> None:
    world = await World().two_snapshots()
    parts = await dumped(world)
    log = FaultyLog(MemoryLog(world.cluster))
    log.before["*"] = lost()
    proof = asyncio.ensure_future(proven(world, parts, log))
    await asyncio.sleep(20)
    assert not proof.done()
    log.before.clear()
    await proof


async def test_a_snapshot_that_overtakes_the_proof_ends_the_round_and_nothing_else() -> None:
    world = await World().two_snapshots()
    parts = await dumped(world)
    await world.topic("fourth")
    await world.snapshot()
    with pytest.raises(SnapshotError, match="was published before"):
        await proven(world, parts)


async def test_where_no_snapshot_can_be_read_any_more_a_new_one_is_not_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await World().two_snapshots()
    await world.store.put_new(cluster_identity.KEY, [b"{}"])
    parts = await dumped(world)
    lost = [part_key(each.position, 0) for each in world.published]
    await world.store.delete(lost)
    with caplog.at_level(logging.ERROR):
        told = await proven(world, parts)
    assert told is not None
    assert told.fault is FaultCode.OBJECT_LOST
    assert "is published unproven" in caplog.text
    for key in lost:
        assert f"{key} is not in the store" in caplog.text


class Hiding(MemoryStore):
    """Finds nothing of what begins so, as a proxy may; it does list it."""

    hidden: tuple[str, ...] = ()

    async def get(self, key: str) -> Buffer:
        if key.startswith(self.hidden):
            raise ObjectNotFoundError(key)
        return await super().get(key)


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("hidden", "sentence"), [("snapshots/", "is listed and not found"), ("", "nor is cluster.json")]
)
async def test_snapshots_that_are_named_and_hidden_are_not_taken_for_none(
    hidden: str, sentence: str
) -> None:
    store = Hiding()
    world = await World(store).two_snapshots()
    await store.put_new(cluster_identity.KEY, [b"{}"])
    parts = await dumped(world)
    if not hidden:
        await store.delete([manifest_key(each.position) for each in world.published])
    store.hidden = (hidden,)
    with pytest.raises(SnapshotError, match=sentence):
        await proven(world, parts)
    if hidden:
        store.hidden = ("nothing",)
        assert await proven(world, parts) is None


@pytest.mark.promise("P13")
async def test_a_worker_whose_memory_was_damaged_publishes_nothing_and_the_next_one_does() -> None:
    agent = HostingAgent(MemoryLogCluster(), jobs={JobKind.SNAPSHOT: snapshotting.run})
    async with running_host(agent):
        await agent.request(JobKind.SNAPSHOT)
        await until(lambda: len(agent.commands(PublishSnapshot)) == 1)
        next(iter(agent.worker.machine.incarnations)).zone = "another"
        await agent.request(JobKind.SNAPSHOT)
        await until(lambda: bool(agent.ended))
        assert len(agent.commands(PublishSnapshot)) == 1
        assert len(agent.workers) == 1
        await until(lambda: len(agent.commands(PublishSnapshot)) == 2)
        assert len(agent.workers) == 2
