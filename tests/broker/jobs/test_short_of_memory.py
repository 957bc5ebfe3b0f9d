"""Workers that give up for want of memory: who has the jobs then, how often is tried again, and what is told."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator

import pytest

from broker.jobs import claims
from broker.jobs.kinds import snapshotting
from broker.jobs.restarts import MEMORY_S_MAX, MEMORY_S_MIN
from broker.jobs.worker.budget import NEAR_BYTES, Budget
from broker.jobs.worker.memory import WorkerMemory, WorkerMemoryError
from broker.jobs.worker_process import WorkerEndedError
from coordinator.commands.entries import CreateTopic
from coordinator.commands.job_commands import BeginSnapshot, JobKind, PublishSnapshot, ReleaseJobs
from coordinator.log.memory import MemoryLogCluster
from coordinator.replica import Applied
from protocol.fault_codes import FaultCode, fault_of
from tests.broker.jobs.hosts import DELAY_S, HostingAgent, running_host, until, working

pytestmark = pytest.mark.schedules(3)
LONG = pytest.mark.schedules(1)
"""An hour of virtual time, and more."""

ALL = tuple(JobKind)
SENTENCE = "the worker of the jobs takes 99 MiB of memory"


def agents_of(cluster: MemoryLogCluster, names: str, *, short: str) -> list[HostingAgent]:
    """`short`: those whose workers give up."""
    agents = [HostingAgent(cluster, name) for name in names]
    for name, agent in zip(names, agents, strict=True):
        if name in short:
            agent.failing = WorkerMemoryError(SENTENCE)
    return agents


def starts(agents: list[HostingAgent]) -> list[float]:
    return sorted(at_s for agent in agents for at_s, _ in agent.workers)


@LONG
@pytest.mark.fault_code("memory-short")
async def test_an_agent_alone_tries_again_after_pauses_that_double_up_to_ten_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (agent,) = agents_of(MemoryLogCluster(), "a", short="a")
    async with running_host(agent):
        await agent.request(JobKind.MERGE)
        while len(agent.workers) < 8:
            await asyncio.sleep(10)
        begun = starts([agent])
        pauses = [later - end for end, later in zip(agent.ended, begun[1:], strict=False)]
        doubled = (MEMORY_S_MIN, 60, 120, 240, 480, MEMORY_S_MAX, MEMORY_S_MAX)
        for pause_s, least_s in zip(pauses, doubled, strict=True):
            assert least_s - 0.01 <= pause_s <= least_s + 1.5
        assert agent.host.stats.workers_short_of_memory >= 7
        assert agent.host.held_jobs == ALL
    (first, *_) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert first.getMessage().startswith(f"{SENTENCE}; another one is started in 30 s")
    assert first.code == FaultCode.MEMORY_SHORT


async def test_jobs_that_are_asked_for_do_not_shorten_a_pause() -> None:
    (agent,) = agents_of(MemoryLogCluster(), "a", short="a")
    async with running_host(agent):
        for _ in range(20):
            await agent.request(JobKind.MERGE)
            await asyncio.sleep(1)
        assert len(agent.workers) == 1


async def test_what_keeps_jobs_from_running_is_in_the_notes_and_in_the_report_of_the_jobs() -> None:
    (agent,) = agents_of(MemoryLogCluster(), "a", short="a")
    async with running_host(agent):
        assert agent.host.notes() == []
        await agent.request(JobKind.MERGE)
        get = agent.machine.jobs.get
        await until(lambda: get(JobKind.SNAPSHOT).note == f"failed: {SENTENCE}")
        (note,) = agent.host.notes()
        assert note == f"the jobs do not run: {SENTENCE}"
        assert fault_of(note) is FaultCode.MEMORY_SHORT


@LONG
async def test_the_jobs_go_to_another_agent_at_once_and_stay_with_one_that_has_the_memory() -> None:
    agents = agents_of(MemoryLogCluster(), "abc", short="")
    async with working(*agents) as poor:
        poor.failing = WorkerMemoryError(SENTENCE)
        poor.dying.set()
        others = [agent for agent in agents if agent is not poor]
        await until(lambda: any(agent.workers for agent in others), seconds=DELAY_S + 10)
        await asyncio.sleep(1000)
        assert len(poor.workers) == 1
        assert sum(len(agent.workers) for agent in others) == 1
        assert poor.host.notes() == [], "another agent runs them"


async def test_the_one_of_three_that_has_the_memory_is_found_whichever_it_is() -> None:
    for rich in "abc":
        agents = agents_of(MemoryLogCluster(), "abc", short="abc".replace(rich, ""))
        (able,) = [agent for agent in agents if agent.failing is None]
        async with running_host(*agents):
            await agents[0].request(JobKind.MERGE)
            await until(lambda able=able: able.alive == 1, seconds=3 * (DELAY_S + 10))
            assert all(len(agent.workers) <= 1 for agent in agents)


@LONG
async def test_agents_that_all_have_too_little_try_once_each_and_then_one_of_them_ever_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts_again_s = 1200
    monkeypatch.setattr(claims, "GIVEN_UP_MS", counts_again_s * 1000)
    agents = agents_of(MemoryLogCluster(), "abc", short="abc")
    async with running_host(*agents):
        await agents[0].request(JobKind.MERGE)
        await until(lambda: all(agent.workers for agent in agents), seconds=3 * (DELAY_S + 10))
        assert [len(agent.workers) for agent in agents] == [1, 1, 1]
        count = len(agents[0].commands(ReleaseJobs))
        (last,) = [agent for agent in agents if agent.host.held_jobs]
        await asyncio.sleep(counts_again_s - 200)
        assert len(agents[0].commands(ReleaseJobs)) == count == 2, "nobody is left to have them"
        assert last.host.held_jobs == ALL
        assert len(last.workers) == len(starts(agents)) - 2 <= 6
        before = len(starts(agents))
        await asyncio.sleep(3 * counts_again_s)
        assert all(len(agent.workers) > 1 for agent in agents), "each is tried again"
        assert len(starts(agents)) - before <= 3 * (counts_again_s / MEMORY_S_MAX + len(agents))


async def test_an_agent_that_comes_later_gets_the_jobs_that_nobody_could_run() -> None:
    cluster = MemoryLogCluster()
    poor = agents_of(cluster, "ab", short="ab")
    async with running_host(*poor):
        await poor[0].request(JobKind.MERGE)
        await until(lambda: all(agent.workers for agent in poor), seconds=3 * DELAY_S)
        await asyncio.sleep(700)
        count = len(starts(poor))
        rich = HostingAgent(cluster, "c")
        async with running_host(rich):
            await until(lambda: rich.alive == 1, seconds=DELAY_S + 10)
            assert len(starts(poor)) - count <= 1


async def test_agents_where_no_worker_lives_long_do_not_hand_the_jobs_to_and_fro() -> None:
    agents = agents_of(MemoryLogCluster(), "ab", short="")
    for agent in agents:
        agent.failing = WorkerEndedError("killed")
    async with running_host(*agents):
        await agents[0].request(JobKind.MERGE)
        await until(lambda: len(agents[0].commands(ReleaseJobs)) == 1)
        await asyncio.sleep(1000)
        assert len(agents[0].commands(ReleaseJobs)) == 1


async def test_a_snapshot_that_was_made_ends_the_notes_and_the_pauses_begin_anew() -> None:
    (agent,) = agents_of(MemoryLogCluster(), "a", short="a")
    async with running_host(agent):
        await agent.request(JobKind.MERGE)
        await until(lambda: len(agent.workers) == 4)
        agent.failing = None
        await until(lambda: agent.alive == 1, seconds=500)
        assert agent.host.notes() != [], "that it lives says nothing yet"
        await agent.propose(BeginSnapshot())
        begun = agent.machine.snapshots.begun
        await agent.propose(PublishSnapshot(begun.position, begun.digest, "snapshots/x"))
        assert agent.host.notes() == []
        agent.failing = WorkerMemoryError(SENTENCE)
        agent.dying.set()
        count = len(agent.workers)
        await until(lambda: len(agent.workers) == count + 1)
        assert agent.workers[-1][0] - agent.ended[-1] <= MEMORY_S_MIN + 1.5


class Room:
    """What a worker has left, as a test says it."""

    def __init__(self) -> None:
        self.left = 1 << 40
        self.memory = WorkerMemory(
            Budget(NEAR_BYTES, "by a test"), resident=lambda: -self.left, limits=list
        )


@contextlib.asynccontextmanager
async def making_snapshots() -> AsyncIterator[tuple[HostingAgent, Room]]:
    """An agent whose worker has made two."""
    room = Room()
    agent = HostingAgent(MemoryLogCluster(), jobs={JobKind.SNAPSHOT: snapshotting.run})
    agent.memory = room.memory
    async with running_host(agent):
        for number in range(2):
            await agent.log_client.propose(CreateTopic(f"t{number}", 1, ()))
            await agent.request(JobKind.SNAPSHOT)
            await until(lambda number=number: len(agent.machine.snapshots.published) > number)
        await until(lambda: not agent.machine.jobs.get(JobKind.SNAPSHOT).running)
        yield agent, room


async def why(agent: HostingAgent) -> str:
    """What the worker says that has given up."""
    await until(lambda: agent.host.stats.workers_short_of_memory == 1)
    (note,) = agent.host.notes()
    return note


async def test_a_round_for_which_there_is_no_room_ends_the_worker_and_not_only_the_round() -> None:
    async with making_snapshots() as (agent, room):
        room.left = 100
        await agent.request(JobKind.SNAPSHOT)
        assert "more for writing the machine down, of a snapshot of" in await why(agent)
        assert agent.alive == 0


async def test_the_proof_of_a_snapshot_asks_for_room_of_its_own() -> None:
    async with making_snapshots() as (agent, room):

        def shrink(applied: Applied) -> None:
            if any(isinstance(command, BeginSnapshot) for command in applied.entry.commands):
                room.left = 100

        agent.worker._on_applied(shrink)
        await agent.request(JobKind.SNAPSHOT)
        assert re.search(r"MiB more for reading snapshots/\w+/manifest again", await why(agent))


async def test_a_worker_that_does_nothing_notices_that_little_is_left() -> None:
    async with making_snapshots() as (agent, room):
        room.left = -1
        assert "MiB of memory while reading" in await why(agent)
