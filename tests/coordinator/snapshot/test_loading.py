"""Agents that begin with a snapshot: which one, what they do when they cannot, how they go on."""

import asyncio
from pathlib import Path

import pytest

from coordinator.commands.entries import Close, CreateTopic, Open, Tick
from coordinator.commands.job_commands import BeginSnapshot, PublishSnapshot
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogCutError, LogEntry
from coordinator.log.sqlite import SqliteLog
from coordinator.log_client import ReplicaStoppedError
from coordinator.machine.machine import Machine
from coordinator.replica import Replica
from coordinator.snapshot.manifest import encode_published, manifest_key, part_key
from coordinator.snapshot.store import SnapshotStore
from coordinator.stats import LogClientStats
from protocol.types import POSITION_ZERO, Position
from storage.stores.disk import DiskStore
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreUnavailableError
from tests.coordinator.snapshot.compare import differences
from tests.coordinator.snapshot.world import IDENTITY, World, tasks
from tests.coordinator.support import Agent, Writer, now_s, running
from tests.kit.faults import FaultyLog, NoAnswerError

pytestmark = pytest.mark.schedules(5)


async def test_a_replica_begins_with_the_newest_snapshot_and_goes_on_with_the_log() -> None:
    world = await World().two_snapshots()
    replica = world.replica()
    seen: list[Position] = []
    replica.on_applied(lambda applied: seen.append(applied.position))
    await world.caught_up(replica)
    assert replica._stats.snapshot_position == world.published[0].position
    assert all(place > world.published[0].position for place in seen)
    assert len(seen) == 2
    await world.topic("later")
    await world.caught_up(replica)
    assert replica.machine.topics.by_name("later") is not None


async def test_without_any_snapshot_a_replica_begins_at_the_beginning() -> None:
    world = await World().begin()
    await world.topic("first")
    await world.caught_up(world.replica())


async def test_the_older_snapshot_is_taken_when_the_newest_is_missing_or_damaged() -> None:
    world = await World().two_snapshots()
    newest, older = world.published
    part = part_key(newest.position, 0)
    data = bytearray(await world.store.get(part))
    data[-1] ^= 1
    await world.store.delete([part])
    await world.store.put_new(part, [bytes(data)])
    replica = await world.caught_up(world.replica())
    assert replica._stats.snapshot_position == older.position
    await world.store.delete([newest.key])
    replica = await world.caught_up(world.replica())
    assert replica._stats.snapshot_position == older.position


async def test_a_snapshot_of_another_digest_than_the_log_says_is_not_taken() -> None:
    world = await World().two_snapshots()
    newest, older = world.published
    world.cluster.published = encode_published([newest._replace(digest=bytes(16)), older])
    replica = await world.caught_up(world.replica())
    assert replica._stats.snapshot_position == older.position


async def test_with_no_snapshot_left_and_the_log_cut_a_replica_stops_and_says_why() -> None:
    world = await World().two_snapshots()
    await world.store.delete([each.key for each in world.published])
    replica = world.replica()
    reason = await world.stopped(replica)
    for named in world.published:
        assert f"{named.key} is not in the store" in reason
    assert "was cut" in reason
    assert differences(replica.machine, Machine()) == []


async def test_with_no_snapshot_left_a_log_that_is_whole_is_replayed() -> None:
    world = await World().begin()
    named = await world.snapshot()
    await world.topic("later")
    await world.store.delete([named.key])
    await world.caught_up(world.replica())


async def test_a_list_of_snapshots_of_a_newer_version_stops_a_replica_if_the_log_is_cut() -> None:
    world = await World().two_snapshots()
    world.cluster.published = b'{"version": 2, "snapshots": []}'
    assert "of format 2" in await world.stopped(world.replica())


async def test_a_snapshot_from_before_the_cut_leads_nowhere() -> None:
    world = await World().begin()
    stale = await world.snapshot()
    await world.topic("second")
    await world.snapshot()
    await world.topic("third")
    await world.snapshot()
    world.cluster.published = encode_published([stale])
    assert "none that is newer is published" in await world.stopped(world.replica())


class _Away(MemoryStore):
    """Not there until a moment of the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.until_s = 0.0

    async def get(self, key):
        if now_s() < self.until_s:
            raise StoreUnavailableError("away")
        return await super().get(key)


@pytest.mark.promise("P16")
async def test_a_store_that_is_away_is_waited_for_and_no_older_snapshot_is_taken() -> None:
    world = await World(_Away()).two_snapshots()
    world.store.until_s = now_s() + 100
    replica = world.replica()
    tasks.append(asyncio.ensure_future(replica.run()))
    await asyncio.sleep(90)
    assert replica.machine.position == POSITION_ZERO
    async with asyncio.timeout(60):
        await replica.started()
    assert replica._stats.snapshot_position == world.published[0].position


def overtaken(cluster: MemoryLogCluster, happens) -> FaultyLog:
    """Something happens between what the log says of snapshots and its tail, once."""
    log = FaultyLog(MemoryLog(cluster))

    async def gate() -> None:
        del log.before["head"]
        await happens()

    log.before["head"] = gate
    return log


async def test_a_cut_that_overtakes_a_start_makes_it_load_anew() -> None:
    world = await World().two_snapshots()

    async def two_more() -> None:
        await world.snapshot()
        await world.topic("fourth")
        await world.snapshot()

    replica = await world.caught_up(world.replica(overtaken(world.cluster, two_more)))
    assert replica._stats.snapshot_position == world.published[0].position


async def test_a_cut_that_overtakes_a_start_without_snapshots_makes_it_load_one() -> None:
    world = await World().begin()

    async def two() -> None:
        await world.snapshot()
        await world.topic("later")
        await world.snapshot()

    replica = await world.caught_up(world.replica(overtaken(world.cluster, two)))
    assert replica._stats.snapshot_position == world.published[0].position


async def test_a_cut_that_overtakes_a_replica_that_has_started_stops_it() -> None:
    world = await World().two_snapshots()
    log, goes_on = FaultyLog(MemoryLog(world.cluster)), asyncio.Event()

    async def break_off(_batch: object) -> None:
        await goes_on.wait()
        raise NoAnswerError("broken off")

    replica = world.replica(log)
    stopped = asyncio.ensure_future(world.stopped(replica))
    await replica.started()
    log.before["tail"] = break_off
    for _ in range(3):
        await world.topic("again")
        await world.snapshot()
    del log.before["tail"]
    goes_on.set()
    reason = await stopped
    assert "fallen behind" in reason
    assert "start it again" in reason


async def test_a_hole_behind_the_snapshot_is_noticed() -> None:
    class Leaky(MemoryLog):
        async def tail(self, after):
            async for batch in super().tail(after):
                yield batch[1:]

    world = await World().two_snapshots()
    assert "missing" in await world.stopped(world.replica(Leaky(world.cluster)))


async def test_a_missing_open_behind_the_snapshot_is_noticed() -> None:
    class Unopened(MemoryLog):
        async def tail(self, after):
            async for batch in super().tail(after):
                if kept := [entry for entry in batch if entry.n > 0]:
                    yield kept

    world = await World().two_snapshots()
    late = Writer(world.cluster)
    await late.open("late")
    await late.write(Tick())
    await world.topic("fourth")
    assert "missing" in await world.stopped(world.replica(Unopened(world.cluster)))


async def test_a_late_entry_of_an_incarnation_that_ended_before_the_snapshot_is_refused_like_ever() -> (
    None
):
    world = World()
    late = Writer(world.cluster)
    await world.begin()
    await late.open("late")
    await late.write(Tick())
    await world.writer.write(Close(late.session.incarnation, 1))
    await world.snapshot()
    await world.topic("between")
    await world.snapshot()
    await late.write(CreateTopic("not this", 1, ()))
    await late.write(CreateTopic("nor this", 1, ()))
    replica = await world.caught_up(world.replica())
    assert replica.machine.topics.by_name("not this") is None
    assert replica.machine.position == world.cluster.head()


async def test_an_entry_of_a_session_that_nobody_opened_is_still_a_hole() -> None:
    class Forged(MemoryLog):
        async def tail(self, after):
            async for batch in super().tail(after):
                yield [LogEntry(Position(after + 1), 99, batch[0].n, batch[0].payload)]

    world = await World().two_snapshots()
    assert "missing" in await world.stopped(world.replica(Forged(world.cluster)))


def test_what_lies_on_a_disk_alone_is_enough(tmp_path: Path) -> None:
    """The embedded log and a store in a folder, by the clock of the world."""

    async def scenario() -> None:
        log, store = SqliteLog(tmp_path / "log.db"), DiskStore(tmp_path / "store")
        await log.identify(b"test")
        world = World()
        world.snapshots = SnapshotStore(store, IDENTITY)
        world.writer.log = log
        world.whole = Replica(log, Machine(), LogClientStats())
        await world.two_snapshots()
        replica = world.replica(log)
        await world.caught_up(replica)
        assert replica._stats.snapshot_position == world.published[0].position
        assert [topic.name for topic in replica.machine.topics] == ["first", "second", "third"]
        with pytest.raises(LogCutError):
            await anext(aiter(log.tail(POSITION_ZERO)))
        running = [*tasks, *world.running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await log.aclose()
        await store.aclose()

    tasks.clear()
    asyncio.run(scenario())
    tasks.clear()


# Digests (P13).


@pytest.mark.promise("P13")
async def test_a_replica_that_had_another_digest_where_a_snapshot_was_begun_stops() -> None:
    world = await World().begin()
    place = Position(await world.writer.write(BeginSnapshot()))
    replica = await world.caught_up(world.replica())
    begun = replica.machine.snapshots.begun
    assert begun is not None
    # As if one of all commands before had had another outcome here.
    replica.machine.snapshots.begun = begun._replace(digest=bytes(16))
    key = manifest_key(place)
    reached = await world.writer.write(PublishSnapshot(place, begun.digest, key))
    with pytest.raises(ReplicaStoppedError) as stopped:
        await world.running[replica]
    assert begun.digest.hex() in str(stopped.value)
    assert bytes(16).hex() in str(stopped.value)
    assert replica.machine.position < reached
    await world.whole.wait_for(Position(reached))
    assert world.whole.machine.snapshots.published[0].key == key


async def test_a_snapshot_of_a_position_that_is_not_the_begun_one_says_nothing_of_digests() -> None:
    world = await World().begin()
    replica = await world.caught_up(world.replica())
    place = Position(await world.writer.write(BeginSnapshot()))
    await world.writer.write(PublishSnapshot(Position(place - 1), bytes(16), "k"))
    await world.caught_up(replica)
    assert replica.machine.snapshots.published == ()


# Bytes of the log.


async def test_bytes_of_the_log_are_counted_from_the_older_published_snapshot() -> None:
    world = await World().begin()
    replica = await world.caught_up(world.replica())

    def bytes_after(place: Position) -> int:
        return sum(len(entry.payload) for entry in world.cluster.entries if entry.position > place)

    await world.topic("first")
    await world.snapshot(cut=False)
    await world.topic("second")
    await world.caught_up(replica)
    assert replica.log_bytes == bytes_after(POSITION_ZERO)
    for _ in range(3):
        await world.snapshot(cut=False)
        await world.topic("again")
        await world.caught_up(replica)
        assert replica.log_bytes == bytes_after(world.published[1].position)
        assert replica._stats.log_bytes == replica.log_bytes
    late = await world.caught_up(world.replica())
    assert late.log_bytes == bytes_after(world.published[0].position)
    await world.snapshot(cut=False)
    await world.caught_up(late)
    assert late.log_bytes == bytes_after(world.published[1].position)


# Agents.


def digests_of(agent: Agent) -> dict[int, bytes]:
    """By position; grows as the agent applies."""
    digests: dict[int, bytes] = {}
    agent.log_client.on_applied(
        lambda applied: digests.update({applied.position: agent.machine.digest()})
    )
    return digests


async def test_an_agent_that_starts_from_a_snapshot_is_like_one_that_replayed() -> None:
    world = await World().begin()
    old = Agent(world.cluster, "old")
    replayed = digests_of(old)
    async with running(old):
        await old.ready()
        for number in range(3):
            await old.log_client.propose(CreateTopic(f"t{number}", 2, ()))
            await world.snapshot()
        young = Agent(world.cluster, "young", snapshots=world.snapshots)
        loaded = digests_of(young)
        tables = [id(young.machine), id(young.machine.topics), id(young.machine.groups)]
        async with running(young):
            await young.ready()
            for agent, number in ((old, 5), (young, 6), (old, 7), (young, 8)):
                await agent.log_client.propose(CreateTopic(f"t{number}", 1, ()))
                await old.log_client.barrier()
                await young.log_client.barrier()
            assert len(loaded) >= 4
            assert loaded.items() <= replayed.items()
            assert differences(old.machine, young.machine) == []
            now = [id(young.machine), id(young.machine.topics), id(young.machine.groups)]
            assert now == tables


@pytest.mark.promise("P12")
async def test_an_agent_joins_only_when_it_has_loaded_and_caught_up() -> None:
    """Nobody is sent to it before, and no lease runs out while it loads."""
    world = await World(_Away()).two_snapshots()
    world.store.until_s = now_s() + 50
    agent = Agent(world.cluster, "young", snapshots=world.snapshots)
    opened: list[int] = []
    agent.log_client.on_applied(
        lambda applied: opened.extend(
            [applied.position for each in applied.entry.commands if isinstance(each, Open)]
        )
    )
    head = world.cluster.head()
    caught_up = agent.lag(lambda entry: True)
    async with running(agent):
        await asyncio.sleep(40)
        assert not agent.log.called("grant")
        await asyncio.sleep(12)
        assert agent.machine.position == world.published[0].position, "it has loaded"
        assert not agent.log.called("grant")
        assert world.cluster.head() == head
        caught_up.set()
        await agent.ready()
        assert agent.log_client.stats.sessions_opened == 1
        assert len(opened) == 1
        assert now_s() < world.store.until_s + 5


async def test_an_agent_that_still_loads_can_leave() -> None:
    world = await World(_Away()).two_snapshots()
    world.store.until_s = now_s() + 1000
    agent = Agent(world.cluster, "young", snapshots=world.snapshots)
    async with running(agent) as (ended,):
        await asyncio.sleep(10)
        await agent.log_client.leave()
        async with asyncio.timeout(1):
            await ended
