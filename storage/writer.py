"""Putting a chunk: the same name and the same bytes until it is durable or the time is up.

A failed attempt may have taken effect; that does no harm, since a name never has two contents
and what is not in the log does not exist. The caller bounds how many are in flight and decides
what a chunk that was given up means (P11).
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.types import Buffer, Position
from storage.accumulator import ClosedChunk
from storage.formats.spans import ObjectId
from storage.stores.object_store import LocalStore, ObjectStore, StoreUnavailableError
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

RETRY: Final = RetryPolicy(attempt_s_max=10.0, bytes_per_second_min=1024 * 1024)
"""A producer is waiting: a connection that hangs must leave time for another before the deadline, and
one that is slow have the time that there is."""


def _no_clock() -> int:
    return 0


@dataclass(slots=True)
class WriterStats:
    puts: int = 0
    """Objects that are durable."""
    put_bytes: int = 0
    put_seconds: float = 0.0
    """From the call to durability, retries included, of those."""
    retries: int = 0
    given_up: int = 0


class PutFirst:
    """A chunk to be put in another thread, before whatever that does next. Called again after it
    has returned, it does nothing."""

    __slots__ = ("_clock_ns", "_done", "_key", "_parts", "_store", "seconds")

    def __init__(
        self, store: LocalStore, key: str, parts: Sequence[Buffer], clock_ns: Callable[[], int]
    ) -> None:
        self._store = store
        self._key = key
        self._parts: Sequence[Buffer] = parts
        self._clock_ns = clock_ns
        self._done = False
        self.seconds = 0.0
        """What it took, once it is done."""

    def __call__(self) -> None:
        """Raises what `put_new` raises."""
        if self._done:
            return
        begun_ns = self._clock_ns()
        self._store.put_now(self._key, self._parts)
        self.seconds = (self._clock_ns() - begun_ns) / 1e9
        self._parts = ()
        self._done = True


class Writer:
    """Puts closed chunks of one cluster."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        cluster_id: str,
        rng: random.Random,
        clock_ns: Callable[[], int] | None = None,
    ) -> None:
        """`clock_ns` is read in other threads; without one, what `put_first` takes is not counted."""
        self._store = store
        self._clock_ns = _no_clock if clock_ns is None else clock_ns
        self._local = store if isinstance(store, LocalStore) else None
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
                byte_count=closed.length,
                deadline=deadline,
                rng=self._rng,
            )
        except StoreUnavailableError as error:
            self.stats.given_up += 1
            raise StoreUnavailableError(
                f"{chunk_id.key} was not put in {loop.time() - begun:.1f} s: {error}"
            ) from error
        self._was_put(closed, loop.time() - begun)

    def put_first(
        self, chunk_id: ObjectId, closed: ClosedChunk, *, reached: Position
    ) -> PutFirst | None:
        """To be put by somebody else, on whose way it lies; None: the store is not on this machine."""
        if self._local is None:
            return None
        parts = closed.object_parts(chunk_id, cluster_id=self._cluster_id, reached=reached)
        return PutFirst(self._local, chunk_id.key, parts, self._clock_ns)

    def was_put_first(self, closed: ClosedChunk, put: PutFirst) -> None:
        """Count it."""
        self._was_put(closed, put.seconds)

    def _was_put(self, closed: ClosedChunk, seconds: float) -> None:
        self.stats.puts += 1
        self.stats.put_bytes += closed.length
        self.stats.put_seconds += seconds

    def _count(self, _error: Exception, _failures: int) -> None:
        self.stats.retries += 1
