"""Putting a chunk: the same name and the same bytes until it is durable or the time is up.

A failed attempt may have taken effect; that does no harm, since a name never has two contents
and what is not in the log does not exist. The caller bounds how many are in flight and decides
what a chunk that was given up means (P11).
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from protocol.types import Buffer, Position
from storage.accumulator import ClosedChunk
from storage.formats.spans import ObjectId
from storage.stores.object_store import ObjectStore, StoreUnavailableError

ATTEMPT_SECONDS_MAX: Final = 10.0
"""An attempt that takes longer is given up and made anew: connections do hang."""
BACKOFF_SECONDS_MIN: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 2.0


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
        attempt = 0
        while True:
            reason = await self._attempt(chunk_id.key, parts, deadline)
            if reason is None:
                break
            pause = self._pause(attempt)
            attempt += 1
            if loop.time() + pause >= deadline:
                self.stats.given_up += 1
                raise StoreUnavailableError(
                    f"{chunk_id.key} was not put in {loop.time() - begun:.1f} s: {reason}"
                )
            self.stats.retries += 1
            await asyncio.sleep(pause)
        self.stats.puts += 1
        self.stats.put_bytes += closed.length
        self.stats.put_seconds += loop.time() - begun

    async def _attempt(self, key: str, parts: list[Buffer], deadline: float) -> str | None:
        """One try; the reason why its outcome is unknown, or None: it is durable."""
        until = min(deadline, asyncio.get_running_loop().time() + ATTEMPT_SECONDS_MAX)
        try:
            async with asyncio.timeout_at(until):
                await self._store.put_new(key, parts)
        except StoreUnavailableError as error:
            return str(error)
        except TimeoutError:
            return "no answer in time"
        return None

    def _pause(self, attempt: int) -> float:
        """Seconds to wait: doubled at each attempt, and spread, so that agents do not march."""
        ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2.0 ** min(attempt, 10))
        return ceiling * (0.5 + 0.5 * self._rng.random())
