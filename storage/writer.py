"""Putting a chunk: the same name and the same bytes until it is durable or the time is up.

A failed attempt may have taken effect; that does no harm, since a name never has two contents
and what is not in the log does not exist. The caller bounds how many are in flight and decides
what a chunk that was given up means (P11).
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from protocol.types import Position
from storage.accumulator import ClosedChunk
from storage.formats.spans import ObjectId
from storage.stores.object_store import ObjectStore, StoreUnavailableError
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

RETRY: Final = RetryPolicy(attempt_s_max=10.0)
"""A producer is waiting: a connection that hangs must leave time for another before the deadline."""


@dataclass(slots=True)
class WriterStats:
    puts: int = 0
    """Objects that are durable."""
    put_bytes: int = 0
    put_seconds: float = 0.0
    """From the call to durability, retries included, of those."""
    retries: int = 0
    given_up: int = 0


class Writer:
    """Puts closed chunks of one cluster."""

    def __init__(self, store: ObjectStore, *, cluster_id: str, rng: random.Random) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._rng = rng
        self.stats = WriterStats()

    async def put(
        self, chunk_id: ObjectId, closed: ClosedChunk, *, reached: Position, deadline: float
    ) -> None:
        """Return when the chunk is durable.

        `reached` is how far the agent has applied the log, `deadline` in the loop's time. Raises StoreUnavailableError when it passed (the object
        may exist all the same), StoreRefusedError and ObjectExistsError at once.
        """
        loop = asyncio.get_running_loop()
        parts = closed.object_parts(chunk_id, cluster_id=self._cluster_id, reached=reached)
        begun = loop.time()
        try:
            await until_done(
                lambda: self._store.put_new(chunk_id.key, parts),
                RETRY,
                tell=self._count,
                deadline=deadline,
                rng=self._rng,
            )
        except StoreUnavailableError as error:
            self.stats.given_up += 1
            raise StoreUnavailableError(
                f"{chunk_id.key} was not put in {loop.time() - begun:.1f} s: {error}"
            ) from error
        self.stats.puts += 1
        self.stats.put_bytes += closed.length
        self.stats.put_seconds += loop.time() - begun

    def _count(self, _error: Exception, _failures: int) -> None:
        self.stats.retries += 1
