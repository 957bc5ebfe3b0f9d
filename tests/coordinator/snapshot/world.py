"""A log with somebody who writes it, the snapshots that are made of it, and replicas that begin with them."""

import asyncio
from typing import Self

import pytest

from coordinator.commands.entries import CreateTopic
from coordinator.commands.job_commands import BeginSnapshot, ClaimJobs, JobKind, PublishSnapshot
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import MetadataLog
from coordinator.log_client import ReplicaStoppedError
from coordinator.machine.machine import Machine
from coordinator.replica import Replica
from coordinator.snapshot.manifest import LoadableSnapshot, encode_published
from coordinator.snapshot.snapshot import dump
from coordinator.snapshot.store import SnapshotStore
from coordinator.stats import LogClientStats
from protocol.types import POSITION_ZERO, Position
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.memory import MemoryStore
from tests.coordinator.snapshot.compare import differences
from tests.coordinator.support import Writer

IDENTITY = ClusterIdentity("frazil-test", 1)

tasks: list[asyncio.Task[None]] = []
"""Of replicas that run until their scenario ends."""


class World:
    """A log with somebody who writes it and makes snapshots, a store, and what was published."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.cluster = MemoryLogCluster()
        self.store = store or MemoryStore()
        self.snapshots = SnapshotStore(self.store, IDENTITY)
        self.writer = Writer(self.cluster)
        self.published: list[LoadableSnapshot] = []
        self.whole = Replica(MemoryLog(self.cluster), Machine(), LogClientStats())
        """Replays everything from the beginning."""
        self.running: dict[Replica, asyncio.Task[None]] = {}

    async def begin(self) -> Self:
        await self.writer.open()
        tasks.append(asyncio.ensure_future(self.whole.run()))
        await self.writer.write(ClaimJobs((JobKind.SNAPSHOT,)))
        return self

    async def topic(self, name: str) -> None:
        await self.writer.write(CreateTopic(name, 1, ()))

    async def snapshot(self, *, cut: bool = True) -> LoadableSnapshot:
        """As the job does it: begun, written, published in the log, then for those who start."""
        place = Position(await self.writer.write(BeginSnapshot()))
        await self.whole.wait_for(place)
        machine = self.whole.machine
        assert machine.position == place
        key = await self.snapshots.write(dump(machine))
        named = LoadableSnapshot(place, machine.digest(), key)
        await self.whole.wait_for(
            Position(await self.writer.write(PublishSnapshot(place, named.digest, key)))
        )
        self.published = [named, *self.published[:1]]
        older = self.published[1].position if len(self.published) == 2 else POSITION_ZERO
        await self.writer.log.publish(
            self.writer.session, encode_published(self.published), older=older
        )
        if cut and older:
            await self.writer.log.cut(self.writer.session, older)
        return named

    async def two_snapshots(self) -> Self:
        await self.begin()
        await self.topic("first")
        await self.snapshot()
        await self.topic("second")
        await self.snapshot()
        await self.topic("third")
        return self

    def replica(self, log: MetadataLog | None = None) -> Replica:
        log = log or MemoryLog(self.cluster)
        return Replica(log, Machine(), LogClientStats(), self.snapshots)

    async def caught_up(self, replica: Replica) -> Replica:
        if replica not in self.running:
            self.running[replica] = asyncio.ensure_future(replica.run())
        async with asyncio.timeout(600):
            await replica.started()
            head = await self.writer.log.head()
            await replica.wait_for(head)
        await self.whole.wait_for(head)
        assert replica.machine.digest() == self.whole.machine.digest()
        assert differences(replica.machine, self.whole.machine) == []
        return replica

    async def stopped(self, replica: Replica) -> str:
        async with asyncio.timeout(600):
            with pytest.raises(ReplicaStoppedError) as stopped:
                await replica.run()
        return str(stopped.value)
