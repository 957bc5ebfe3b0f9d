"""Agents on a log in memory, in virtual time, with faults between them and the log."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import Command, Entry, Listener, Open
from coordinator.coordinator import AgentIdentity, Coordinator, CoordinatorSettings
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogUnavailableError, Session
from coordinator.snapshot.loading import SnapshotSource
from protocol.types import INCARNATION_NONE
from tests.kit import loop as sim

SETTINGS = CoordinatorSettings(
    lease_ttl_ms=10_000, session_deadline_ms=7_000, session_read_ms=2_000
)
"""The defaults: lease 10 s, deadline 7 s, read every 2 s."""


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run in virtual time, under several schedules; ends the tasks that it leaves behind."""

    async def whole() -> None:
        try:
            await scenario()
        finally:
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    for seed in range(5):
        sim.run(lambda _loop, _rng: whole(), seed=seed)


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


class FaultyLog(MemoryLog):
    """Calls by name can be made to fail before or after they take effect, or to be slow.

    `calls` records (name, arguments) as they are made.
    """

    def __init__(self, cluster: MemoryLogCluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}
        self.slow_s: dict[str, float] = {}
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    async def _faulty(self, name: str, arguments: tuple[object, ...], call: Awaitable):
        self.calls.append((name, arguments))
        try:
            await self._fail(self.before, name)
            result = await call
        finally:
            if asyncio.iscoroutine(call):
                call.close()
        await asyncio.sleep(self.slow_s.get(name, 0))
        await self._fail(self.after, name)
        return result

    async def _fail(self, failures: dict[str, int], name: str) -> None:
        left = failures.get(name, failures.get("*", 0))
        if left:
            if name in failures:
                failures[name] = left - 1
            await asyncio.sleep(0.1)
            raise LogUnavailableError("lost on the way")

    async def grant(self, ttl_ms):
        return await self._faulty("grant", (), super().grant(ttl_ms))

    async def open(self, session, payload):
        return await self._faulty("open", (session,), super().open(session, payload))

    async def keep_alive(self, session):
        return await self._faulty("keep_alive", (session,), super().keep_alive(session))

    async def append(self, session, n, payload):
        call = super().append(session, n, payload)
        return await self._faulty("append", (session, n, payload), call)

    async def read_session(self, session):
        return await self._faulty("read_session", (session,), super().read_session(session))

    async def revoke(self, session):
        return await self._faulty("revoke", (session,), super().revoke(session))

    async def head(self):
        return await self._faulty("head", (), super().head())

    async def publish(self, session, snapshots, *, older):
        call = super().publish(session, snapshots, older=older)
        return await self._faulty("publish", (session, snapshots, older), call)

    async def cut(self, session, through):
        return await self._faulty("cut", (session, through), super().cut(session, through))

    def called(self, name: str) -> list[tuple[object, ...]]:
        return [arguments for called, arguments in self.calls if called == name]


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
        settings: CoordinatorSettings = SETTINGS,
        snapshots: SnapshotSource | None = None,
    ) -> None:
        self.log = FaultyLog(cluster)
        self.clocks = Clocks()
        self.coordinator = Coordinator(
            self.log,
            identity=identity(name),
            settings=settings,
            now_ms=self.clocks.now_ms,
            boot_ms=self.clocks.boot_ms,
            snapshots=snapshots,
        )
        self.incarnations: list[int | None] = []
        self.coordinator.on_incarnation(self.incarnations.append)

    @property
    def machine(self):
        return self.coordinator.machine

    def incarnation(self):
        return self.coordinator.incarnation()

    async def ready(self, *, besides: object = None) -> int:
        """Wait until it serves, under another incarnation than `besides`."""
        async with asyncio.timeout(120):
            while (current := self.incarnation()) is None or current == besides:
                await asyncio.sleep(0.01)
        return current


@contextlib.asynccontextmanager
async def running(*agents: Agent) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Their `run` as tasks, cancelled in the end."""
    tasks = [asyncio.ensure_future(agent.coordinator.run()) for agent in agents]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Writer:
    """Somebody else who writes entries, without an agent around."""

    def __init__(self, cluster: MemoryLogCluster) -> None:
        self.log = MemoryLog(cluster)
        self.session = Session(0, INCARNATION_NONE)
        self.n = 0

    async def open(self, name: str = "writer", ttl_ms: int = 1_000_000) -> None:
        session = await self.log.grant(ttl_ms)
        me = identity(name)
        command = Open(session, name, -1, me.zone, me.listeners, "test", 1)
        payload = encode_entry(Entry(INCARNATION_NONE, 0, 1, (command,)))
        self.session = await self.log.open(session, payload)

    async def write(self, *commands: Command) -> int:
        self.n += 1
        payload = encode_entry(Entry(self.session.incarnation, self.n, 1, commands))
        return await self.log.append(self.session, self.n, payload)

    async def write_bytes(self, payload: bytes) -> int:
        self.n += 1
        return await self.log.append(self.session, self.n, payload)
