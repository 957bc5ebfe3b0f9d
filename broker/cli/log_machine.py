"""The machine at the log's end, for commands that look at a cluster; and whether log and store are of that cluster.

An agent waits for a log or a store that is away for as long as it takes (P16). A command has somebody waiting: it
says what it waits for, and ends once nothing has answered for `AWAY_S_MAX`. However long a log and its snapshot are,
that ends no command: the time counts from the newest answer, and not while what came is taken in.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

from broker.config.settings import Settings
from broker.store import identity
from broker.store.identity import ClusterMismatchError
from coordinator.log.metadata_log import (
    LogEntry,
    LogError,
    LogRefusedError,
    LogUnavailableError,
    MetadataLog,
    VoidedEntry,
)
from coordinator.machine.machine import Machine
from coordinator.replica import Replica, ReplicaStoppedError
from coordinator.snapshot.store import SnapshotStore
from coordinator.snapshot.stream import SnapshotError
from coordinator.stats import LogClientStats
from protocol.fault_codes import FaultCode, FaultError, fault_of
from protocol.types import ERA, Buffer, Position
from storage.formats import cluster_identity
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.object_store import ObjectStore, StoreError

T = TypeVar("T")

AWAY_S_MAX: Final = 60.0
"""Longer than etcd takes to have another leader, or to be started again."""
TOLD_AFTER_S: Final = 3.0
TOLD_AGAIN_S: Final = 15.0
LOOK_S: Final = 0.5

Tell = Callable[[str], None]


class AwayError(FaultError):
    """The log, or the store, let nothing be read for too long; the sentence says which of them, and why."""


UNREADABLE: Final = (
    AwayError,
    ClusterMismatchError,
    LogError,
    StoreError,
    SnapshotError,
    ReplicaStoppedError,
)
"""What says in a sentence why a cluster's log and store cannot be read to their ends."""


async def check_is_ours(store: ObjectStore, log: MetadataLog, settings: Settings) -> None:
    """The store is the cluster's, and the log the store's, in its era. Writes nothing.

    Raises ClusterMismatchError, StoreError and LogError.
    """
    owner = await cluster_identity.read_identity(store)
    if owner is None or owner.cluster_id != settings.cluster_id:
        whose = "nobody" if owner is None else owner.describe()
        raise ClusterMismatchError(
            f"{settings.store_url} belongs to {whose}, not to {settings.cluster_id!r}: set another store, or the"
            " right cluster.id",
            fault=FaultCode.OTHER_CLUSTER,
        )
    await identity.look(store, log, settings.cluster_id)


async def machine_of(
    store: ObjectStore,
    log: MetadataLog,
    settings: Settings,
    *,
    tell: Tell,
    away_s_max: float = AWAY_S_MAX,
) -> Machine:
    """What the log says, up to its end. `tell` hears what is waited for.

    Raises ReplicaStoppedError, LogReplacedError, AwayError, and StoreError and LogError of what is asked first.
    """
    await identity.enter(store, log)
    machine = Machine()
    waits = _Waits(settings, tell, away_s_max)
    snapshots = _Snapshots(store, settings.cluster_id, waits)
    replica = Replica(_Log(log, waits), machine, LogClientStats(), snapshots)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(replica.run()), tasks.create_task(waits.watch())]
            await replica.started()
            for task in running:
                task.cancel()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return machine


class _Waits:
    """Whom the replica waits for, since when, and what came instead of an answer."""

    def __init__(self, settings: Settings, tell: Tell, away_s_max: float) -> None:
        self._urls = {"log": settings.log_url, "store": settings.store_url}
        self._tell = tell
        self._away_s_max = away_s_max
        self._whom = "log"
        self._since_s: float | None = None
        """None: it waits for nobody."""
        self._tell_s = 0.0
        """When to tell of it."""
        self._error: Exception | None = None

    async def answer(self, whom: str, asked: Awaitable[T]) -> T:
        """What `asked` returns; what it raises in place of an answer is remembered."""
        if self._since_s is None or whom != self._whom:
            self.begin(whom)
        try:
            answered = await asked
        except (LogUnavailableError, LogRefusedError, StoreError) as error:
            self._error = error
            raise
        self._since_s = None
        return answered

    def begin(self, whom: str) -> None:
        """The time counts from now."""
        self._whom, self._error = whom, None
        self._since_s = asyncio.get_running_loop().time()
        self._tell_s = self._since_s + TOLD_AFTER_S

    async def watch(self) -> None:
        """Say what is waited for. Raises AwayError at the bound."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(LOOK_S, self._away_s_max / 4))
            if self._since_s is None:
                continue
            waited_s = loop.time() - self._since_s
            if waited_s >= self._away_s_max:
                raise self._away()
            if loop.time() >= self._tell_s:
                self._tell_s = loop.time() + TOLD_AGAIN_S
                of = f"{waited_s:.0f} of {self._away_s_max:g} s"
                self._tell(f"waiting for {self._urls[self._whom]}, {of}: {self._reason()}")

    def _reason(self) -> str:
        return "no answer" if self._error is None else str(self._error)

    def _away(self) -> AwayError:
        where, fault = self._urls[self._whom], fault_of(self._error)
        if self._whom == "store":
            advice = "check store, store.endpoint and the network"
            fault = fault or FaultCode.STORE_UNREACHABLE
        elif where.startswith("etcd"):
            advice = "check log and the network, and that etcd has a leader"
            fault = fault or FaultCode.ETCD_UNREACHABLE
        else:
            advice = "check log"
        waited = f"{where} let nothing be read for {self._away_s_max:g} s"
        return AwayError(f"{waited}: {self._reason()}; {advice}", fault=fault)


class _Log:
    """The log, as far as a replica reads it."""

    def __init__(self, log: MetadataLog, waits: _Waits) -> None:
        self._log = log
        self._waits = waits

    async def voids(self) -> Sequence[VoidedEntry]:
        return await self._waits.answer("log", self._log.voids())

    async def snapshots(self) -> bytes:
        return await self._waits.answer("log", self._log.snapshots())

    async def head(self) -> Position:
        return await self._waits.answer("log", self._log.head())

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        async with aclosing(self._log.tail(after)) as batches:
            while True:
                try:
                    batch = await self._waits.answer("log", anext(batches))
                except StopAsyncIteration:
                    return
                yield batch


class _Snapshots:
    """Snapshots in the store. Each part that is asked for, beyond those that were before, is a sign that others came."""

    def __init__(self, store: ObjectStore, cluster_id: str, waits: _Waits) -> None:
        self._waits = waits
        self._snapshots = SnapshotStore(store, ClusterIdentity(cluster_id, ERA), pace=self._next)
        self._key = ""
        self._asked = self._asked_max = 0

    async def read(self, key: str) -> list[Buffer]:
        if key != self._key:
            self._key, self._asked_max = key, 0
        self._asked = 0
        return await self._waits.answer("store", self._snapshots.read(key))

    async def _next(self, _length: int) -> None:
        self._asked += 1
        if self._asked > self._asked_max:
            self._asked_max = self._asked
            self._waits.begin("store")
