"""Tells the object store how far the metadata log has got, so that an older log is known as such.

A checkpoint (`storage.formats.log_checkpoint`) is put when an incarnation has begun, soon after it has
appended something, at most every EVERY_S, and when the agent leaves. It comes after the
acknowledgement and holds nothing up: what an agent appended in the last moments before it was
killed may be in no checkpoint. Its chunks tell of those (`broker.store.truncation`).

Whoever tells the store how far it has got hears whether its era is over: a log may have been begun anew while this
agent had the old one still. Such an agent ends before anything is collected that the new era needs.

What the store does not take is put again later. Older checkpoints of the same incarnation are
deleted, but for its first; those of other incarnations are left to the collection.
"""

import asyncio
import logging
from typing import Final

from broker.store.identity import ClusterMismatchError, check_era
from coordinator.commands.entries import Tick
from coordinator.log_client import Applied, LogClient
from protocol.fault_codes import coded
from protocol.types import Incarnation, Position, era_of
from storage.formats.log_checkpoint import LogCheckpoint
from storage.stores.object_store import ObjectStore, StoreError
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

logger = logging.getLogger(__name__)

EVERY_S: Final = 10.0
LAST_S_MAX: Final = 2.0
RETRY: Final = RetryPolicy()
"""Nobody waits for it, but until then the store tells less of an older log."""


class LogCheckpoints:
    """`run` must be going; of one agent."""

    def __init__(self, store: ObjectStore, log_client: LogClient, *, cluster_id: str) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._log_client = log_client
        self._incarnation: Incarnation | None = None
        """The newest of this agent."""
        self._reached: LogCheckpoint | None = None
        """What the store should know."""
        self._begun: Incarnation | None = None
        """Whose first checkpoint is in the store."""
        self._put: LogCheckpoint | None = None
        """The newest that is there, of this agent."""
        self._work = asyncio.Event()
        log_client.on_incarnation(self._session_changed)
        log_client.on_applied(self._applied)

    async def run(self) -> None:
        """Put checkpoints, for ever. Raises ClusterMismatchError when the era is over."""
        while True:
            await self._work.wait()
            self._work.clear()
            await until_done(self._advance, RETRY, tell=_tell, passing=(StoreError,))
            await asyncio.sleep(EVERY_S)

    async def put_last(self) -> None:
        """The agent has appended all that it will; a store that is away is not waited for."""
        try:
            async with asyncio.timeout(LAST_S_MAX):
                await self._advance()
        except (StoreError, ClusterMismatchError, TimeoutError) as error:
            text = "the store was not told how far the log is: %r"
            logger.warning(text, error, extra=coded(error))

    def _session_changed(self, incarnation: Incarnation | None) -> None:
        if incarnation is not None:
            self._incarnation = incarnation
            self._reach(incarnation, self._log_client.machine.position)

    def _applied(self, applied: Applied) -> None:
        if applied.incarnation == self._incarnation and not all(
            isinstance(command, Tick) for command in applied.entry.commands
        ):
            self._reach(applied.incarnation, applied.position)

    def _reach(self, incarnation: Incarnation, position: Position) -> None:
        self._reached = LogCheckpoint(incarnation, position)
        self._work.set()

    async def _advance(self) -> None:
        """Have the store know of `_reached`."""
        reached = self._reached
        if reached is None or reached == self._put:
            return
        if self._begun != reached.incarnation:
            await self._write(LogCheckpoint(reached.incarnation, Position(reached.incarnation)))
            self._begun = reached.incarnation
        if not reached.is_first:
            await self._write(reached)
        # What fails behind this is not done again: an agent would go on in an era that is over.
        await check_era(self._store, era_of(reached.position))
        before, self._put = self._put, reached
        if before is not None and not before.is_first:
            await self._store.delete([before.key])

    async def _write(self, checkpoint: LogCheckpoint) -> None:
        await self._store.put_new(checkpoint.key, [checkpoint.encode(cluster_id=self._cluster_id)])


def _tell(error: Exception, failures: int) -> None:
    if failures == 1:
        text = "the store does not know yet how far the log is: %s"
        logger.warning(text, error, extra=coded(error))
