"""Agents' hosts of jobs over a log in memory, in virtual time; workers are what a test says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from broker.jobs.host import JobHost
from broker.jobs.worker.memory import WorkerMemory
from broker.jobs.worker.orders import Orders
from broker.jobs.worker.worker import Job, Worker, WorkerStats
from broker.jobs.worker_process import InLoop
from coordinator.commands.job_commands import JobKind, ReleaseJobs, RequestJob
from coordinator.log.memory import MemoryLogCluster
from coordinator.log_client import Applied
from coordinator.snapshot.store import SnapshotStore
from protocol.types import Incarnation
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.memory import MemoryStore
from tests.coordinator.support import Agent, now_s
from tests.kit.faults import FaultyLog, lost
from tests.kit.sockets import settings_of

DELAY_S = 60


class HostingAgent(Agent):
    """An agent with a host; without jobs its workers only live."""

    def __init__(
        self,
        cluster: MemoryLogCluster,
        name: str = "a",
        *,
        store: MemoryStore | None = None,
        jobs: Mapping[JobKind, Job] | None = None,
        enabled: bool = True,
        settings: tuple[str, ...] = (),
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self.given = settings_of(*settings)
        snapshots = SnapshotStore(self.store, ClusterIdentity(self.given.cluster_id, 1))
        super().__init__(cluster, name, snapshots=snapshots)
        self.jobs = jobs
        self.memory: WorkerMemory | None = None
        """Of workers that have jobs."""
        self.workers: list[tuple[float, Incarnation]] = []
        """When they were started, and for which incarnation."""
        self.ended: list[float] = []
        self.failing: Exception | None = None
        """What each worker ends by."""
        self.dying = asyncio.Event()
        """Set: the worker ends by `failing`."""
        self.alive = 0
        self.propose = None
        self.orders: Orders | None = None
        """Of the newest worker."""
        self.worker: Worker | None = None
        self.entries: list[Applied] = []
        self.released_s: list[float] = []
        """When a release was seen in the log."""
        self.log_client.on_applied(self._applied)
        self.host = JobHost(
            self.log_client,
            log=self.log,
            run_worker=self.run_worker,
            boot_ms=self.clocks.boot_ms,
            enabled=enabled,
            start_delay_ms=DELAY_S * 1000,
            archives=self.given.log_archive_ms > 0,
        )

    def _applied(self, applied: Applied) -> None:
        self.entries.append(applied)
        if any(isinstance(command, ReleaseJobs) for command in applied.entry.commands):
            self.released_s.append(now_s())

    async def run_worker(self, incarnation, propose, stats: WorkerStats, orders: Orders) -> None:
        self.orders = orders
        self.workers.append((now_s(), incarnation))
        self.alive += 1
        assert self.alive == 1, "two workers at a time"
        self.propose = propose
        try:
            if self.failing is not None:
                raise self.failing
            if self.jobs is None:
                await self.dying.wait()
                raise self.failing
            self.worker = Worker(
                InLoop(self.log, propose),
                store=self.store,
                settings=self.given,
                incarnation=incarnation,
                jobs=self.jobs,
                stats=stats,
                memory=self.memory,
                orders=orders,
            )
            await self.worker.run()
        finally:
            # To end takes a while.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.5)
            self.alive -= 1
            self.ended.append(now_s())

    def commands(self, *kinds: type) -> list[object]:
        """Of these kinds, as they were applied."""
        return [
            command
            for applied in self.entries
            for command in applied.entry.commands
            if isinstance(command, kinds)
        ]

    async def request(self, kind: JobKind) -> None:
        await self.log_client.propose(RequestJob(kind))


@contextlib.asynccontextmanager
async def running_host(*agents: HostingAgent) -> AsyncIterator[None]:
    """They run, hosts and all, until the end of the test."""
    tasks = []
    for agent in agents:
        tasks.append(asyncio.ensure_future(agent.log_client.run()))
        tasks.append(asyncio.ensure_future(agent.host.run()))
        agent.tasks = tasks[-2:]
        await agent.ready()
    try:
        yield
    finally:
        failed = [
            task.exception()
            for agent in agents
            for task in agent.tasks
            if task.done() and not task.cancelled()
        ]
        for agent in agents:
            for task in agent.tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [error for error in failed if error is not None] == []


async def until(condition, *, seconds: float = 300.0) -> None:
    """Wait, in virtual time, until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


async def killed(agent: HostingAgent) -> None:
    """Nothing of it runs any more; its lease runs out."""
    for task in agent.tasks:
        task.cancel()
    await asyncio.gather(*agent.tasks, return_exceptions=True)


def away(log: FaultyLog) -> None:
    log.before["*"] = lost()


def back(log: FaultyLog) -> None:
    log.before.clear()


@contextlib.asynccontextmanager
async def one_host() -> AsyncIterator[HostingAgent]:
    """One agent, alone, which runs."""
    agent = HostingAgent(MemoryLogCluster())
    async with running_host(agent):
        yield agent


@contextlib.asynccontextmanager
async def asked(kind: JobKind, jobs: Mapping[JobKind, Job]) -> AsyncIterator[HostingAgent]:
    """One agent whose worker has these jobs, one of which was asked for."""
    agent = HostingAgent(MemoryLogCluster(), jobs=jobs)
    async with running_host(agent):
        await agent.request(kind)
        yield agent


@contextlib.asynccontextmanager
async def working(*agents: HostingAgent) -> AsyncIterator[HostingAgent]:
    """These agents (one when none is named) run, and a job was asked for: the one whose worker lives."""
    agents = agents or (HostingAgent(MemoryLogCluster()),)
    async with running_host(*agents):
        await agents[0].request(JobKind.MERGE)
        await until(lambda: any(agent.workers for agent in agents))
        (found,) = [agent for agent in agents if agent.host.held_jobs]
        yield found
