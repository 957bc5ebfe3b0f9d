"""Coordinators on a log in memory, with faults between them and the log (`tests.kit.faults`)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import Command, Entry, Listener, Open, Tick, VoidEntry
from coordinator.log.memory import LocalMemoryLog, MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogEntry, Session, VoidedEntry
from coordinator.log.voided import payload_digest
from coordinator.log_client import AgentIdentity, LogClient, LogClientSettings
from coordinator.snapshot.loading import SnapshotSource
from protocol.types import INCARNATION_NONE
from tests.kit.faults import FaultyLocalLog, FaultyLog

SETTINGS = LogClientSettings(lease_ttl_ms=10_000, session_deadline_ms=7_000, session_read_ms=2_000)
"""The defaults: lease 10 s, deadline 7 s, read every 2 s."""


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Clocks:
    """An agent's two clocks; tests move them."""

    def __init__(self) -> None:
        self.wall_skew_ms = 1_700_000_000_000
        self.boot_skew_ms = 0

    def now_ms(self) -> int:
        return int(now_s() * 1000) + self.wall_skew_ms

    def boot_ms(self) -> int:
        return int(now_s() * 1000) + self.boot_skew_ms


def identity(name: str) -> AgentIdentity:
    return AgentIdentity(
        node_name=name,
        node_id_wanted=-1,
        zone="a",
        listeners=(Listener("PLAINTEXT", name, 9092),),
        software_version="test",
    )


class Agent:
    """A coordinator, and all that a test may reach for."""

    def __init__(
        self,
        cluster: MemoryLogCluster,
        name: str = "a",
        settings: LogClientSettings = SETTINGS,
        snapshots: SnapshotSource | None = None,
        *,
        embedded: bool = False,
    ) -> None:
        """`embedded`: its log can do something else first."""
        self.cluster = cluster
        self.log = (
            FaultyLocalLog(LocalMemoryLog(cluster)) if embedded else FaultyLog(MemoryLog(cluster))
        )
        self.clocks = Clocks()
        self.log_client = LogClient(
            self.log,
            identity=identity(name),
            settings=settings,
            now_ms=self.clocks.now_ms,
            boot_ms=self.clocks.boot_ms,
            snapshots=snapshots,
        )
        self.incarnations: list[int | None] = []
        self.log_client.on_incarnation(self.incarnations.append)

    @property
    def machine(self):
        return self.log_client.machine

    def incarnation(self):
        return self.log_client.incarnation()

    def expire(self) -> None:
        """Its first session is lost, if its entry is the log's first."""
        self.cluster.expire(self.cluster.entries[0].session)

    def lag(self, is_late: Callable[[LogEntry], bool]) -> asyncio.Event:
        """From now on its replica gets these entries only when the event is set."""
        tail, released = self.log.tail, asyncio.Event()

        async def lagging(after: int):
            async for batch in tail(after):
                for entry in batch:
                    if is_late(entry):
                        await released.wait()
                    yield [entry]

        self.log.tail = lagging
        return released

    async def ready(self, *, besides: object = None) -> int:
        """Wait until it serves, under another incarnation than `besides`."""
        async with asyncio.timeout(120):
            while (current := self.incarnation()) is None or current == besides:
                await asyncio.sleep(0.01)
        return current


@contextlib.asynccontextmanager
async def running(*agents: Agent) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Their `run` as tasks, cancelled in the end."""
    tasks = [asyncio.ensure_future(agent.log_client.run()) for agent in agents]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Agent]:
    """An agent that serves, alone on its log."""
    agent = Agent(MemoryLogCluster())
    async with running(agent):
        await agent.ready()
        yield agent


class Writer:
    """Somebody else who writes entries, without an agent around."""

    def __init__(self, cluster: MemoryLogCluster) -> None:
        self.cluster = cluster
        self.log = MemoryLog(cluster)
        self.session = Session(0, INCARNATION_NONE)
        self.n = 0
        self.clock_ms = 1

    async def open(self, name: str = "writer", ttl_ms: int = 1_000_000) -> None:
        session = await self.log.grant(ttl_ms)
        me = identity(name)
        command = Open(session, name, -1, me.zone, me.listeners, "test", 1)
        payload = encode_entry(Entry(INCARNATION_NONE, 0, self.clock_ms, (command,)))
        self.session = await self.log.open(session, payload)

    async def write(self, *commands: Command) -> int:
        self.n += 1
        payload = encode_entry(Entry(self.session.incarnation, self.n, self.clock_ms, commands))
        return await self.log.append(self.session, self.n, payload)

    async def write_bytes(self, payload: bytes) -> int:
        self.n += 1
        return await self.log.append(self.session, self.n, payload)


async def writer_of(ticks: int = 0) -> Writer:
    """A writer of a log of its own, open, that has written so many ticks."""
    writer = Writer(MemoryLogCluster())
    await writer.open()
    for _ in range(ticks):
        await writer.write(Tick())
    return writer


def void_of(logged: LogEntry) -> VoidedEntry:
    digest = payload_digest(logged.payload)
    return VoidedEntry(logged.position, logged.session, logged.n, digest, 2, "a bug")


async def void(cluster: MemoryLogCluster, position: int) -> int:
    """As `frazil log void` does it, once all sessions are over; where the log tells of it."""
    for session in list(cluster._leases):
        cluster.expire(session)
    (logged,) = [each for each in cluster.entries if each.position == position]
    voided = void_of(logged)
    command = VoidEntry(voided.position, voided.digest)
    notice = encode_entry(Entry(INCARNATION_NONE, 0, 2, (command,)))
    return await MemoryLog(cluster).void(voided, notice, snapshots=cluster.published)
