"""A cluster in memory that loses its log, with what its store has of it."""

import asyncio
import random
from typing import Self

from broker.recovery import recovery
from broker.recovery.rebuilding import Until
from broker.recovery.recovery import Plan
from broker.store import identity
from coordinator.commands.codec import decode_entry
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.machine.machine import Machine
from coordinator.replica import Replica
from coordinator.snapshot.store import SnapshotStore
from coordinator.stats import LogClientStats
from protocol.types import Position
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.era_marker import EraMarker
from storage.formats.log_archive import ArchivedEntry, LogArchive, archive_key, encode_archive
from tests.coordinator.snapshot.world import IDENTITY, World, tasks

CLUSTER = IDENTITY.cluster_id
NOTHING = Until()


def unheard(line: str) -> None:
    """Progress that no test looks at."""


class Disaster(World):
    """A log that lives until it is replaced by an empty one (`lose`)."""

    rng = random.Random(2)

    async def begin(self) -> Self:
        await identity.check(self.store, MemoryLog(self.cluster), CLUSTER, random.Random(1))
        await super().begin()
        return self

    async def archive(
        self, after: Position, last: Position, *, voided: Position | None = None
    ) -> str:
        """What the holder of the jobs puts, of entries that are not cut; the key. `voided`: what it passes over."""
        await self.whole.wait_for(last)
        machine = Machine()
        entries = []
        for logged in self.cluster.entries:
            place, session, n, payload = logged
            if place > last:
                break
            if place == voided:
                machine.void(place, session=session, n=n)
            else:
                machine.apply(place, decode_entry(payload))
            if place > after:
                entries.append(ArchivedEntry(place, session, n, place == voided, payload))
        return await self.put_archive(
            LogArchive(CLUSTER, after, last, machine.digest(), tuple(entries))
        )

    async def put_archive(self, archive: LogArchive) -> str:
        key = archive_key(archive.after, archive.last)
        await self.store.put_new(key, [encode_archive(archive)])
        return key

    @property
    def head(self) -> Position:
        return self.cluster.head()

    def lose(self) -> MemoryLog:
        """An empty log in place of this one."""
        self.cluster = MemoryLogCluster()
        return MemoryLog(self.cluster)

    async def plan(self, log: MemoryLog, until: Until = NOTHING) -> Plan:
        return await recovery.plan(self.store, log, CLUSTER, until, tell=unheard)

    async def recover(self, log: MemoryLog, until: Until = NOTHING) -> EraMarker:
        return await self.begin_era(log, await self.plan(log, until))

    async def begin_era(self, log: MemoryLog, planned: Plan) -> EraMarker:
        return await recovery.begin(
            self.store, log, planned, now_ms=1_000, rng=self.rng, tell=unheard
        )

    async def started(self, log: MemoryLog) -> Machine:
        """The machine of an agent that starts with the log, after it found that it is its own."""
        await identity.check(self.store, log, CLUSTER, random.Random(3))
        source = SnapshotStore(self.store, ClusterIdentity(CLUSTER, 1))
        replica = Replica(log, Machine(), LogClientStats(), source)
        tasks.append(asyncio.ensure_future(replica.run()))
        async with asyncio.timeout(600):
            await replica.started()
        return replica.machine
