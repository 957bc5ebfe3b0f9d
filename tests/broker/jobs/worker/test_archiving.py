"""The log reaches the store: whoever has the jobs archives it, and from that the machine can be made."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from broker.jobs.kinds import collecting, snapshotting
from broker.jobs.worker import archiving as module
from broker.jobs.worker.archive_backlog import Backlog
from broker.jobs.worker.archiving import ArchiveStats
from coordinator.commands.entries import CreateTopic
from coordinator.commands.job_commands import JobKind, ReleaseJobs
from coordinator.log.memory import MemoryLogCluster
from protocol.types import INCARNATION_NONE
from storage.formats.log_archive import (
    LogArchive,
    archive_key,
    decode_archive,
    encode_archive,
    range_of,
)
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreRefusedError
from tests.broker.jobs.hosts import DELAY_S, HostingAgent, killed, running_host, until
from tests.coordinator.support import void
from tests.kit.archives import archives_in, recovered
from tests.kit.faults import FaultyStore, lost, refused

pytestmark = pytest.mark.schedules(5)

JOBS = {JobKind.SNAPSHOT: snapshotting.run, JobKind.COLLECT: collecting.run}


def agent_on(
    cluster: MemoryLogCluster, store: FaultyStore, *settings: str, name: str = "a"
) -> HostingAgent:
    agent = HostingAgent(cluster, name, store=store.inner, jobs=JOBS, settings=settings)
    agent.store = store
    return agent


@contextlib.asynccontextmanager
async def archiving(*settings: str) -> AsyncIterator[HostingAgent]:
    """An agent whose worker has started; snapshots and collections are made when they are asked for."""
    seldom = ("snapshot.interval.ms=86400000", "collect.interval.ms=86400000")
    agent = agent_on(MemoryLogCluster(), FaultyStore(MemoryStore()), *seldom, *settings)
    async with running_host(agent):
        await agent.request(JobKind.COLLECT)
        await started(agent)
        yield agent


async def started(agent: HostingAgent, count: int = 1) -> None:
    await until(lambda: len(agent.workers) == count and agent.worker.started)


async def topic(agent: HostingAgent, name: str) -> None:
    await agent.log_client.propose(CreateTopic(name, 1, ()))


def archives(agent: HostingAgent) -> list[LogArchive]:
    return archives_in(agent.store.inner._objects)


async def delete_archives(agent: HostingAgent) -> None:
    keys = [archive_key(found.after, found.last) for found in archives(agent)]
    assert await agent.store.inner.delete(keys) == []


def stats(agent: HostingAgent) -> ArchiveStats:
    return agent.host.stats.worker.archive


async def until_archived(agent: HostingAgent) -> None:
    """All that the agent has applied now."""
    position = agent.machine.position
    await until(lambda: stats(agent).position >= position, seconds=200)


async def assert_recovered(agent: HostingAgent) -> None:
    """The store alone leads to where this agent's machine was when all of it was archived."""
    await until_archived(agent)
    reached = await recovered(agent.store.inner, agent.machine, cluster_id=agent.given.cluster_id)
    await until(lambda: agent.worker.machine.position >= reached.position)
    if reached.position == agent.machine.position:
        assert reached.digest() == agent.machine.digest()
    topics = {each.name for each in agent.machine.topics}
    assert {each.name for each in reached.topics} == topics


async def test_what_was_applied_is_in_the_store_within_the_interval() -> None:
    async with archiving() as agent:
        await topic(agent, "a")
        await asyncio.sleep(1.5)
        assert stats(agent).position >= agent.machine.position
        assert archives(agent)[0].after == 0
        assert archives(agent)[0].cluster_id == agent.given.cluster_id
        await assert_recovered(agent)


async def test_at_most_one_object_an_interval_is_put_and_none_when_nothing_comes() -> None:
    async with archiving("log.archive.ms=2000") as agent:
        await asyncio.sleep(10)
        before = stats(agent).objects
        for number in range(40):
            await topic(agent, f"t{number}")
            await asyncio.sleep(0.25)
        await until_archived(agent)
        assert 4 <= stats(agent).objects - before <= 7
        puts = stats(agent).puts
        await asyncio.sleep(50)
        assert stats(agent).puts == puts


async def test_ticks_alone_are_archived_once_a_minute() -> None:
    async with archiving() as agent:
        await asyncio.sleep(120)
        puts, entries = stats(agent).puts, len(agent.cluster.entries)
        await asyncio.sleep(1200)
        assert len(agent.cluster.entries) - entries >= 19
        assert 8 <= stats(agent).puts - puts <= 20
        assert stats(agent).behind_s <= 61


async def test_nothing_is_archived_when_it_is_switched_off() -> None:
    async with archiving("log.archive.ms=0") as agent:
        await topic(agent, "a")
        await asyncio.sleep(100)
        assert archives(agent) == []
        assert stats(agent).lists == 0


async def test_a_store_that_is_away_is_told_once_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    async with archiving() as agent:
        await until_archived(agent)
        agent.store.before["put_new"] = lost()
        for number in range(20):
            await topic(agent, f"t{number}")
            await asyncio.sleep(10)
        assert stats(agent).behind_s >= 180
        assert stats(agent).failures >= 10
        assert sum("the log is not archived" in each for each in caplog.messages) == 1
        agent.store.before.clear()
        await assert_recovered(agent)
        assert "the log is being archived again" in caplog.messages
        await until(lambda: stats(agent).behind_s < 2, seconds=5)


async def test_a_store_that_refuses_archives_is_asked_again() -> None:
    async with archiving() as agent:
        agent.store.before["put_new"] = refused(StoreRefusedError("not allowed"), 5)
        await topic(agent, "a")
        await assert_recovered(agent)
        assert stats(agent).failures == 5


def tails_of(agent: HostingAgent) -> list[int]:
    """Where the tails begin that are read from now on."""
    begun: list[int] = []
    tail = agent.log.tail

    def noting(after):
        begun.append(after)
        return tail(after)

    agent.log.tail = noting
    return begun


@pytest.fixture
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(Backlog, object_bytes=400, held_bytes_max=2000)
    monkeypatch.setattr(module, "Backlog", small)


@pytest.mark.usefixtures("_little_memory")
async def test_what_memory_does_not_hold_is_read_from_the_log_again() -> None:
    async with archiving() as agent:
        await until_archived(agent)
        agent.store.before["put_new"] = lost()
        for number in range(60):
            await topic(agent, f"t{number}")
        begun = tails_of(agent)
        agent.store.before.clear()
        await assert_recovered(agent)
        assert len(begun) >= 5
        assert max(len(found.entries) for found in archives(agent)) <= 10


@pytest.mark.usefixtures("_little_memory")
async def test_a_log_that_is_away_when_it_is_to_be_read_again_is_waited_for() -> None:
    async with archiving() as agent:
        agent.store.before["put_new"] = lost()
        for number in range(60):
            await topic(agent, f"t{number}")
        agent.store.before.clear()
        agent.log.before["tail"] = lost(3)
        await assert_recovered(agent)


@pytest.mark.usefixtures("_little_memory")
async def test_what_was_cut_meanwhile_is_left_out_and_the_rest_follows_on_the_snapshot() -> None:
    async with archiving() as agent:
        await until_archived(agent)
        agent.store.before["put_new"] = only_archives(lost())
        for number in range(60):
            await topic(agent, f"t{number}")
        for count in (1, 2):
            await snapshot(agent, wanted=count)
        await topic(agent, "z")
        older = agent.machine.snapshots.published[-1].position
        await until(lambda: agent.cluster.entries[0].position > older)
        agent.store.before.clear()
        await assert_recovered(agent)
        assert any(found.after == older for found in archives(agent))


def only_archives(gate):
    async def of_archives(key: str, *rest: object) -> None:
        if key.startswith("archive/"):
            await gate(key, *rest)

    return of_archives


async def snapshot(agent: HostingAgent, *, wanted: int) -> None:
    await agent.request(JobKind.SNAPSHOT)
    await until(lambda: len(agent.machine.snapshots.published) == wanted)
    await until(lambda: not agent.machine.jobs.get(JobKind.SNAPSHOT).running)
    await asyncio.sleep(3)


async def another_worker(agent: HostingAgent) -> None:
    """After the one that there is, which is killed, in another incarnation of the agent."""
    count, before = len(agent.workers), agent.incarnation()
    for session in list(agent.cluster._leases):
        agent.cluster.expire(session)
    await agent.ready(besides=before)
    await agent.request(JobKind.COLLECT)
    await started(agent, count + 1)


@pytest.mark.parametrize("snapshots", [0, 1, 3])
async def test_a_worker_goes_on_where_the_one_before_ended(snapshots: int) -> None:
    async with archiving() as agent:
        for number in range(5):
            await topic(agent, f"t{number}")
            await asyncio.sleep(2)
        for number in range(snapshots):
            await snapshot(agent, wanted=min(number + 1, 2))
            await topic(agent, f"s{number}")
        await until_archived(agent)
        before = archives(agent)
        last = max(archive.last for archive in before)
        await another_worker(agent)
        await topic(agent, "z")
        await assert_recovered(agent)
        new = [archive for archive in archives(agent) if archive not in before]
        assert min(archive.after for archive in new) == last


async def test_a_worker_archives_what_the_one_before_did_not_come_to() -> None:
    async with archiving() as agent:
        await topic(agent, "a")
        await until_archived(agent)
        agent.store.before["put_new"] = only_archives(lost())
        await topic(agent, "b")
        await snapshot(agent, wanted=1)
        await topic(agent, "c")
        await another_worker(agent)
        agent.store.before.clear()
        await assert_recovered(agent)


async def test_archives_of_another_log_are_not_taken_for_those_of_this_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.clear()
    async with archiving() as agent:
        await topic(agent, "a")
        await until_archived(agent)
        (first, *_) = archives(agent)
        last = max(archive.last for archive in archives(agent))
        await another_worker(agent)
        await until_archived(agent)
        # As a log had it that was put back since.
        await delete_archives(agent)
        strange = LogArchive(
            first.cluster_id,
            first.after,
            last,
            bytes(16),
            (replace(first.entries[0], position=last),),
        )
        key = archive_key(first.after, last)
        await agent.store.inner.put_new(key, [encode_archive(strange)])
        await another_worker(agent)
        await topic(agent, "b")
        await until_archived(agent)
        assert any("is not of this log" in each for each in caplog.messages)
        await agent.store.inner.delete([key])
        await assert_recovered(agent)


async def test_an_archive_of_another_log_with_the_same_name_stays_and_the_next_one_is_longer() -> (
    None
):
    async with archiving("log.archive.ms=5000") as agent:
        await topic(agent, "a")
        await until_archived(agent)
        place = agent.worker.machine.position
        agent.store.before["put_new"] = planting(agent)
        await topic(agent, "b")
        await until(lambda: stats(agent).failures > 0)
        planted = [found for found in archives(agent) if found.digest == bytes(16)]
        assert [found.after for found in planted] == [place]
        del agent.store.before["put_new"]
        await topic(agent, "c")
        await until_archived(agent)
        await agent.store.inner.delete([archive_key(planted[0].after, planted[0].last)])
        await assert_recovered(agent)


def planting(agent: HostingAgent):
    """Somebody else's archive is there first."""

    async def gate(key: str, parts: object) -> None:
        if key.startswith("archive/") and key not in agent.store.inner._objects:
            archive = decode_archive(b"".join(parts))
            strange = encode_archive(replace(archive, digest=bytes(16)))
            await agent.store.inner.put_new(key, [strange])

    return gate


async def test_void_entries_are_archived_as_such() -> None:
    async with archiving() as agent:
        await topic(agent, "a")
        await topic(agent, "b")
        (place,) = [
            applied.position
            for applied in agent.entries
            if CreateTopic("b", 1, ()) in applied.entry.commands
        ]
        await killed(agent)
        await delete_archives(agent)
        await void(agent.cluster, place)
        other = agent_on(agent.cluster, agent.store)
        async with running_host(other):
            await other.request(JobKind.COLLECT)
            await started(other)
            await assert_recovered(other)
            assert {each.name for each in other.machine.topics} == {"a"}
            entries = [entry for found in archives(other) for entry in found.entries]
            assert [entry.position for entry in entries if entry.voided] == [place]


async def test_who_does_not_hold_the_snapshots_archives_nothing() -> None:
    async with archiving() as agent:
        await until_archived(agent)
        await agent.log_client.propose(ReleaseJobs((JobKind.SNAPSHOT,), INCARNATION_NONE))
        await asyncio.sleep(1)
        objects = stats(agent).objects
        held = agent.machine.jobs.get(JobKind.SNAPSHOT)
        assert held.holder == INCARNATION_NONE
        await topic(agent, "a")
        await asyncio.sleep(3)
        assert stats(agent).objects == objects
        assert stats(agent).behind_s == 0
        # It takes them again.
        await assert_recovered(agent)


async def test_archives_before_the_older_snapshot_are_collected_and_no_others() -> None:
    async with archiving() as agent:
        for number in range(4):
            await topic(agent, f"t{number}")
            await asyncio.sleep(2)
        await agent.store.inner.put_new("archive/notes", [b"somebody else's"])
        for count in (1, 2):
            await snapshot(agent, wanted=count)
            await topic(agent, f"s{count}")
            await asyncio.sleep(2)
        count = len(agent.store.inner._objects)
        await agent.request(JobKind.COLLECT)
        await until(lambda: len(agent.store.inner._objects) < count)
        older = agent.machine.snapshots.published[-1].position
        left = [range_of(key) for key in agent.store.inner._objects if key.startswith("archive/0")]
        assert min(last for _, last in left) > older
        assert min(after for after, _ in left) <= older
        assert "archive/notes" in agent.store.inner._objects
        await assert_recovered(agent)


async def test_a_bug_in_archiving_ends_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object) -> bytes:
        raise KeyError("a bug")

    async with archiving() as agent:
        with monkeypatch.context() as patched:
            patched.setattr(module, "encode_archive", fails)
            await topic(agent, "a")
            await asyncio.sleep(150)
            assert stats(agent).failures >= 2
        await assert_recovered(agent)
        assert len(agent.workers) == 1


@contextlib.asynccontextmanager
async def two_agents(*settings: str) -> AsyncIterator[tuple[HostingAgent, HostingAgent]]:
    """The first has the jobs and archives, in the delay of its jobs; the other would be next."""
    cluster, store = MemoryLogCluster(), FaultyStore(MemoryStore())
    agents = [agent_on(cluster, store, *settings, name=name) for name in "ab"]
    async with running_host(*agents):
        await until(lambda: any(agent.workers for agent in agents), seconds=10)
        first, other = sorted(agents, key=lambda agent: not agent.workers)
        await started(first)
        await topic(first, "a")
        await until_archived(first)
        yield first, other


@pytest.mark.parametrize("how", ["dies", "leaves"])
async def test_the_archive_goes_on_at_once_with_the_next_holder_and_its_rounds_wait(
    how: str,
) -> None:
    async with two_agents() as (first, other):
        if how == "dies":
            await killed(first)
        else:
            await first.host.leave(2)
        await until(lambda: other.worker is not None and other.worker.started, seconds=60)
        up_s = asyncio.get_running_loop().time()
        await topic(other, "b")
        await until_archived(other)
        assert asyncio.get_running_loop().time() - up_s <= 1.5
        await asyncio.sleep(DELAY_S - 10)
        assert other.host.stats.worker.jobs[JobKind.COLLECT].runs == 0
        await until(lambda: other.host.stats.worker.jobs[JobKind.COLLECT].runs > 0, seconds=20)
        await assert_recovered(other)


async def test_one_job_that_is_asked_for_ends_the_wait_of_all() -> None:
    async with two_agents() as (first, _):
        await first.request(JobKind.SNAPSHOT)
        jobs = first.host.stats.worker.jobs
        await until(lambda: jobs[JobKind.SNAPSHOT].runs and jobs[JobKind.COLLECT].runs, seconds=5)


async def test_who_leaves_archives_first_what_is_not_archived_yet() -> None:
    async with archiving("log.archive.ms=600000") as agent:
        await topic(agent, "a")
        await until_archived_once(agent)
        await topic(agent, "b")
        position = agent.machine.position
        assert stats(agent).position < position
        begun_s = asyncio.get_running_loop().time()
        await agent.host.leave(2)
        assert asyncio.get_running_loop().time() - begun_s <= 1
        assert max(found.last for found in archives(agent)) >= position
        reached = await recovered(
            agent.store.inner, agent.machine, cluster_id=agent.given.cluster_id
        )
        assert {each.name for each in reached.topics} == {"a", "b"}


async def until_archived_once(agent: HostingAgent) -> None:
    """And the next one is far away."""
    await until(lambda: stats(agent).objects > 0, seconds=10)
    await asyncio.sleep(5)


async def test_who_leaves_while_the_store_is_away_leaves_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with archiving() as agent:
        await until_archived(agent)
        agent.store.before["put_new"] = lost()
        await topic(agent, "a")
        begun_s = asyncio.get_running_loop().time()
        await agent.host.leave(2)
        assert asyncio.get_running_loop().time() - begun_s <= 2.1
        assert "left before the log was archived to its end" in caplog.messages
        assert agent.host.held_jobs == ()


async def test_who_leaves_waits_for_no_archive_of_the_same_name_that_is_of_another_log() -> None:
    async with archiving("log.archive.ms=600000") as agent:
        await topic(agent, "a")
        await until_archived_once(agent)
        agent.store.before["put_new"] = planting(agent)
        await topic(agent, "b")
        puts = stats(agent).puts
        begun_s = asyncio.get_running_loop().time()
        await agent.host.leave(2)
        assert asyncio.get_running_loop().time() - begun_s <= 2.1
        assert stats(agent).puts == puts + 1
