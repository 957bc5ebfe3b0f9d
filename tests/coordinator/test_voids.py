"""Voided entries: who passes over them, who must stop, and that all the others are equal (P13)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import (
    DONE,
    Close,
    CreateTopic,
    Entry,
    Rejected,
    Tick,
    VoidEntry,
)
from coordinator.commands.job_commands import BeginSnapshot, ClaimJobs, JobKind, PublishSnapshot
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogEntry
from coordinator.machine.machine import Machine
from coordinator.replay import _applying, prove
from coordinator.replica import Applied, BadEntryError, Replica, ReplicaStoppedError
from coordinator.snapshot.snapshot import dump, restore
from coordinator.stats import LogClientStats
from coordinator.voids import Voids
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Position
from tests.coordinator.histories import WITHOUT_JOBS, history
from tests.coordinator.snapshot.compare import differences
from tests.coordinator.snapshot.world import World
from tests.coordinator.support import Agent, Writer, running, void, void_of, writer_of
from tests.kit.faults import FaultyLog

pytestmark = pytest.mark.schedules(5)

tasks: list[asyncio.Task[None]] = []
"""Of replicas that run until their scenario ends."""


async def caught_up(cluster: MemoryLogCluster) -> tuple[Replica, list[Applied]]:
    """A replica that has applied all of the log, and what that was."""
    log = MemoryLog(cluster)
    replica = Replica(log, Machine(), LogClientStats())
    seen: list[Applied] = []
    replica.on_applied(seen.append)
    tasks.append(asyncio.ensure_future(replica.run()))
    async with asyncio.timeout(60):
        await replica.wait_for(await log.head())
    return replica, seen


async def stopped(log: MemoryLog | FaultyLog) -> ReplicaStoppedError:
    async with asyncio.timeout(60):
        with pytest.raises(ReplicaStoppedError) as error:
            await Replica(log, Machine(), LogClientStats()).run()
    return error.value


def topics_of(machine: Machine) -> list[str]:
    return [topic.name for topic in machine.topics]


@pytest.mark.promise("P13")
async def test_entry_that_cannot_be_decoded_is_passed_over_once_it_is_void() -> None:
    writer = await writer_of()
    await writer.write(CreateTopic("before", 1, ()))
    bad = await writer.write_bytes(b"of a later version")
    await writer.write(CreateTopic("after", 1, ()))
    error = await stopped(MemoryLog(writer.cluster))
    assert isinstance(error, BadEntryError)
    assert error.position == bad
    assert f"frazil log void 1:{bad & 0xFFFF}" in str(error)

    notice = await void(writer.cluster, bad)
    replica, seen = await caught_up(writer.cluster)
    assert topics_of(replica.machine) == ["before", "after"]
    assert [(each.entry.n, len(each.outcomes)) for each in seen] == [
        (0, 1),
        (1, 1),
        (2, 0),
        (3, 1),
        (0, 1),
    ]
    assert seen[-1].position == notice
    assert seen[-1].outcomes == (DONE,)
    row = replica.machine.incarnations.get(writer.session.incarnation)
    assert row is not None
    assert row.last_n == 3


@pytest.mark.promise("P13")
async def test_entry_that_makes_apply_raise_is_passed_over_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = Machine._apply_command

    def raising(machine: Machine, position, index, writer, command):
        outcome = apply(machine, position, index, writer, command)
        if command == CreateTopic("bad", 1, ()):
            raise KeyError("a bug")
        return outcome

    monkeypatch.setattr(Machine, "_apply_command", raising)
    writer = await writer_of(ticks=2)
    bad = await writer.write(CreateTopic("bad", 1, ()))
    await writer.write(CreateTopic("good", 1, ()))
    error = await stopped(MemoryLog(writer.cluster))
    assert isinstance(error, BadEntryError)
    assert "KeyError('a bug')" in str(error)
    await void(writer.cluster, bad)
    replica, _ = await caught_up(writer.cluster)
    assert topics_of(replica.machine) == ["good"]


@pytest.mark.parametrize("payload", [b"", encode_entry(Entry(INCARNATION_NONE, 7, 1, (Tick(),)))])
async def test_what_a_void_entry_says_of_its_writer_and_number_does_not_count(
    payload: bytes,
) -> None:
    writer = await writer_of()
    bad = await writer.write_bytes(payload)
    await writer.write(CreateTopic("after", 1, ()))
    await stopped(MemoryLog(writer.cluster))
    await void(writer.cluster, bad)
    replica, seen = await caught_up(writer.cluster)
    assert topics_of(replica.machine) == ["after"]
    assert {each.incarnation for each in seen[:3]} == {writer.session.incarnation}


async def test_what_follows_an_open_that_is_void_is_refused_and_its_node_may_open_again() -> None:
    cluster = MemoryLogCluster()
    bad, again = Writer(cluster), Writer(cluster)
    bad.session = await bad.log.open(await bad.log.grant(1_000_000), b"of a later version")
    await bad.write(CreateTopic("lost", 1, ()), Tick())
    await void(cluster, bad.session.incarnation)
    await again.open("writer")
    await again.write(Close(bad.session.incarnation, 1))
    await again.write(CreateTopic("kept", 1, ()))
    replica, seen = await caught_up(cluster)
    assert topics_of(replica.machine) == ["kept"]
    refused = [outcome for each in seen[1:2] for outcome in each.outcomes]
    assert [type(each) for each in refused] == [Rejected, Rejected]
    assert {each.error for each in refused} == {ErrorCode.STALE_BROKER_EPOCH}
    assert seen[-2].outcomes == (DONE,)
    assert [row.node_name for row in replica.machine.incarnations] == ["writer"]


async def test_agent_whose_writer_was_voided_in_part_can_be_closed_by_its_last_number() -> None:
    writer = await writer_of(ticks=1)
    bad = await writer.write_bytes(b"of a later version")
    await void(writer.cluster, bad)
    heir = Writer(writer.cluster)
    await heir.open("heir")
    state = await heir.log.read_session(writer.session.id)
    await heir.write(Close(writer.session.incarnation, state.last))
    replica, seen = await caught_up(writer.cluster)
    assert seen[-1].outcomes == (DONE,)
    assert [row.node_name for row in replica.machine.incarnations] == ["heir"]


@pytest.mark.promise("P13")
async def test_replica_that_has_applied_what_was_voided_then_stops_where_the_log_tells_of_it() -> (
    None
):
    writer = await writer_of()
    log = MemoryLog(writer.cluster)
    place = await writer.write(CreateTopic("taken", 1, ()))
    replica = Replica(log, Machine(), LogClientStats())
    running_ = asyncio.ensure_future(replica.run())
    await replica.wait_for(place)
    notice = await void(writer.cluster, place)
    with pytest.raises(ReplicaStoppedError, match="had applied it: start again"):
        await running_
    assert replica.machine.position < notice

    again, _ = await caught_up(writer.cluster)
    assert topics_of(again.machine) == []


@pytest.mark.promise("P13")
async def test_agent_that_has_applied_what_was_voided_then_never_serves_again() -> None:
    writer = await writer_of()
    agent = Agent(writer.cluster)
    place = await writer.write(CreateTopic("taken", 1, ()))
    async with running(agent) as (task,):
        await agent.ready()
        assert topics_of(agent.machine) == ["taken"]
        # It hears of nothing until another session is there.
        agent.log.tail_gate.clear()
        await void(writer.cluster, place)
        await asyncio.sleep(30)
        assert agent.incarnation() is None
        agent.log.tail_gate.set()
        with pytest.raises(ReplicaStoppedError, match="had applied it"):
            await task
        assert agent.incarnations[-1] is None
        assert len([each for each in agent.incarnations if each is not None]) == 1


async def test_an_entry_that_is_void_leaves_another_digest_than_one_that_is_applied_or_missing() -> (
    None
):
    writer = await writer_of(ticks=1)
    place = await writer.write(Tick())
    entries = writer.cluster.entries
    voids = Voids([void_of(entries[-1])])
    missing = replica_of(entries[:-1], Voids(), None)
    applied = replica_of(entries, Voids(), None)
    void_ = replica_of(entries, voids, None)
    assert void_.position == applied.position == place
    assert len({missing.digest(), applied.digest(), void_.digest()}) == 3


async def test_void_entry_within_an_incarnation_is_refused_and_stops_nobody() -> None:
    writer = await writer_of()
    place = await writer.write(Tick())
    await writer.write(VoidEntry(Position(place), bytes(16)))
    _, seen = await caught_up(writer.cluster)
    (outcome,) = seen[-1].outcomes
    assert isinstance(outcome, Rejected)


async def test_an_entry_that_is_missing_before_a_void_one_is_missed() -> None:
    class Leaky(MemoryLog):
        async def tail(self, after: Position):
            async for batch in super().tail(after):
                yield [entry for entry in batch if entry.n != 2]

    writer = await writer_of(ticks=2)
    await void(writer.cluster, await writer.write_bytes(b"of a later version"))
    assert "entries of the log are missing" in str(await stopped(Leaky(writer.cluster)))


# Snapshots.


async def publish_and_void(world: World) -> int:
    """A snapshot, then an entry that nobody can take, which is voided."""
    await world.begin()
    await world.topic("first")
    await world.snapshot()
    await world.topic("second")
    bad = await world.writer.write_bytes(b"of a later version")
    world.writer.cluster.expire(world.writer.session.id)
    return bad


@pytest.mark.promise("P13")
async def test_after_a_void_snapshots_are_proven_and_a_start_from_before_it_is_equal() -> None:
    world = World()
    bad = await publish_and_void(world)
    await void(world.cluster, bad)
    world.writer = Writer(world.cluster)
    world.whole = Replica(MemoryLog(world.cluster), Machine(), LogClientStats())
    tasks.append(asyncio.ensure_future(world.whole.run()))
    await world.writer.open("again")
    await world.writer.write(ClaimJobs((JobKind.SNAPSHOT,)))
    await world.topic("third")
    early = await world.caught_up(world.replica())
    assert early._stats.snapshot_position == world.published[0].position < bad
    async with asyncio.timeout(600):
        await world.whole.wait_for(await world.writer.log.head())
        await prove(dump(world.whole.machine), log=MemoryLog(world.cluster), source=world.snapshots)
    await world.snapshot()
    await world.topic("fourth")
    for replica in (early, world.replica()):
        await world.caught_up(replica)
        assert topics_of(replica.machine) == ["first", "second", "third", "fourth"]
    await world.snapshot()
    assert await world.writer.log.voids() == []
    await world.caught_up(world.replica())


async def test_entry_of_a_writer_that_no_snapshot_knows_any_more_is_passed_over() -> None:
    world = await World().begin()
    stranger = Writer(world.cluster)
    await stranger.open("stranger")
    await world.writer.write(Close(stranger.session.incarnation, 0))
    await world.snapshot()
    bad = await stranger.write_bytes(b"of a later version")
    await stranger.write(Tick())
    await void(world.cluster, bad)
    replica = world.replica()
    tasks.append(asyncio.ensure_future(replica.run()))
    async with asyncio.timeout(60):
        await replica.wait_for(await world.writer.log.head())
    assert replica.machine.incarnations.get(stranger.session.incarnation) is None


async def test_snapshot_that_was_made_of_the_entry_before_it_was_voided_is_a_bad_entry() -> None:
    world = await World().begin()
    place = await world.writer.write(CreateTopic("taken", 1, ()))
    begun = await world.writer.write(BeginSnapshot())
    await world.whole.wait_for(begun)
    digest = world.whole.machine.digest()
    published = await world.writer.write(
        PublishSnapshot(Position(begun), digest, "snapshots/1/manifest")
    )
    await void(world.cluster, place)
    error = await stopped(MemoryLog(world.cluster))
    assert isinstance(error, BadEntryError)
    assert error.position == published
    await void(world.cluster, published)
    replica, _ = await caught_up(world.cluster)
    assert replica.machine.snapshots.published == ()


# Any history.


def logged_of(seed: int) -> list[LogEntry]:
    """A drawn history as the log has it, each incarnation under a session of its own."""
    entries = []
    for place, drawn in history(seed, steps=80, kinds=WITHOUT_JOBS).log:
        session, payload = drawn.incarnation, encode_entry(drawn)
        if drawn.n == 0:
            (opening,) = drawn.commands
            session = place
            payload = encode_entry(replace(drawn, commands=(replace(opening, session=place),)))
        entries.append(LogEntry(place, session, drawn.n, payload))
    return entries


def replica_of(entries: Sequence[LogEntry], voids: Voids, parts: list[bytes] | None) -> Machine:
    """Of whoever begins with nothing, or with a snapshot."""
    replica = Replica(MemoryLog(MemoryLogCluster()), Machine(), LogClientStats())
    replica._voids = voids
    if parts is not None:
        restore(replica.machine, parts)
        replica._follow_snapshot()
    for logged in entries:
        replica._apply(logged)
    return replica.machine


@pytest.mark.promise("P13")
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 30),
    places=st.sets(st.integers(0, 80), max_size=12),
    middle=st.integers(1, 80),
)
def test_replicas_of_any_history_that_pass_over_the_same_entries_are_equal(
    seed: int, places: set[int], middle: int
) -> None:
    entries = logged_of(seed)
    voided = [void_of(entries[place]) for place in sorted(places) if place < len(entries)]
    voids, last = Voids(voided), entries[-1].position
    whole = replica_of(entries, voids, None)
    half = replica_of(entries[:middle], voids, None)
    resumed = replica_of(entries[middle:], voids, dump(half))
    replayed = Machine()
    for _ in _applying(replayed, entries, last, voids):
        pass
    assert whole.digest() == resumed.digest() == replayed.digest()
    assert dump(whole) == dump(replayed)
    assert differences(whole, resumed) == []
    assert (whole.digest() != replica_of(entries, Voids(), None).digest()) == bool(voided)
    assert whole.position == last > POSITION_ZERO
