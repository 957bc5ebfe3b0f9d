"""An agent tells the log of snapshots and cuts it, whatever becomes of its calls (P14)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from broker.jobs.host import JobHost
from broker.jobs.worker.context import JobContext
from broker.jobs.worker.worker import Worker
from broker.jobs.worker_process import InLoop, RunWorker
from coordinator.commands.entries import CreateTopic
from coordinator.commands.job_commands import BeginSnapshot, JobKind, PublishSnapshot
from coordinator.log.memory import MemoryLogCluster
from coordinator.snapshot.manifest import decode_published
from storage.stores.memory import MemoryStore
from tests.coordinator.support import Agent, running
from tests.kit.faults import lost
from tests.kit.sockets import settings_of

pytestmark = pytest.mark.schedules(5)


class Snapshots:
    """A worker that does nothing but to begin and publish snapshots, without writing them."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.made = 0

    async def run(self, _incarnation, propose, _stats) -> None:
        while True:
            await propose(BeginSnapshot())
            begun = self.agent.machine.snapshots.begun
            key = f"snapshots/{begun.position:016x}/manifest"
            await propose(PublishSnapshot(begun.position, begun.digest, key))
            self.made += 1
            await asyncio.sleep(30)


@contextlib.asynccontextmanager
async def running_host(
    agent: Agent, run_worker: RunWorker | None = None
) -> AsyncIterator[Snapshots]:
    worker = Snapshots(agent)
    host = JobHost(
        agent.log_client,
        log=agent.log,
        run_worker=run_worker or worker.run,
        boot_ms=agent.clocks.boot_ms,
        enabled=True,
        start_delay_ms=0,
    )
    async with running(agent):
        await agent.ready()
        task = asyncio.ensure_future(host.run())
        yield worker
        task.cancel()
        await asyncio.wait([task])


def named(cluster: MemoryLogCluster) -> list[int]:
    return [each.position for each in decode_published(cluster.published)]


@pytest.mark.promise("P14")
async def test_log_is_cut_behind_the_older_snapshot_only() -> None:
    cluster = MemoryLogCluster()
    agent = Agent(cluster)
    async with running_host(agent) as worker:
        while worker.made < 1:
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        assert len(named(cluster)) == 1
        assert cluster.entries[0].n == 0
        while worker.made < 4:
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        published = agent.machine.snapshots.published
        assert named(cluster) == [each.position for each in published]
        newest, older = [each.position for each in published]
        assert cluster.entries[0].position > older
        # What leads on from the older one is there: the entry that began the newest, too.
        assert newest in [entry.position for entry in cluster.entries]


async def test_the_machine_is_never_two_snapshots_ahead_of_what_the_log_names() -> None:
    cluster = MemoryLogCluster()
    agent = Agent(cluster)
    async with running_host(agent) as worker:
        while worker.made < 3:
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        agent.log.before["publish"] = lost()
        before = named(cluster)
        await asyncio.sleep(600)
        published = [each.position for each in agent.machine.snapshots.published]
        assert named(cluster) == before
        assert published[1] == before[0]
        agent.log.before.clear()
        await asyncio.sleep(600)
        published = [each.position for each in agent.machine.snapshots.published]
        assert published[1] > before[0]
        assert named(cluster) == published


async def test_cut_that_does_not_succeed_is_repeated_until_it_does() -> None:
    cluster = MemoryLogCluster()
    agent = Agent(cluster)
    agent.log.before["cut"], agent.log.after["cut"] = lost(3), lost(3)
    async with running_host(agent):
        await asyncio.sleep(600)
        older = agent.machine.snapshots.published[1].position
        assert cluster.entries[0].position > older
        assert len(cluster.entries) < 20


async def test_log_on_the_way_to_its_budget_is_cut_as_soon_as_jobs_run() -> None:
    """As when an agent that made no snapshots is replaced by one that does."""
    settings = settings_of("log.bytes.max=1MiB", "snapshot.log.bytes=1GiB")

    cluster = MemoryLogCluster()
    agent = Agent(cluster)
    configs = tuple((f"config.{number:02}", "x" * 1000) for number in range(50))

    async def snapshot(context: JobContext) -> None:
        await context.propose(BeginSnapshot())
        begun = context.machine.snapshots.begun
        await context.propose(PublishSnapshot(begun.position, begun.digest, "snapshots/x"))

    async def run_worker(incarnation, propose, stats) -> None:
        worker = Worker(
            InLoop(agent.log, propose),
            store=MemoryStore(),
            settings=settings,
            incarnation=incarnation,
            jobs={JobKind.SNAPSHOT: snapshot},
            stats=stats,
        )
        await worker.run()

    async with running(agent):
        await agent.ready()
        for number in range(15):
            await agent.log_client.propose(CreateTopic(f"t{number}", 1, configs))
    late = Agent(cluster, "late")
    async with running_host(late, run_worker):
        await asyncio.sleep(60)
        assert len(late.machine.snapshots.published) == 2
        assert len(cluster.entries) < 15
        snapshots = late.machine.snapshots.published
        await asyncio.sleep(600)
        assert late.machine.snapshots.published == snapshots
