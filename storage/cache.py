"""A cache bounded by bytes, least recently used first out, and loads that happen once.

Invariants: the cached bytes never exceed the budget (a value larger than it is handed out but
not kept); while a load is under way, whoever asks for the same key waits for that load.
Cancelling one who waits does not disturb the load, which belongs to the task group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from storage.object_store import StoreError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SingleFlight(Generic[Key, Value]):
    """Runs one load per key at a time, and at most `loads_max` of all keys."""

    def __init__(self, tasks: asyncio.TaskGroup, *, loads_max: int) -> None:
        assert loads_max > 0
        self._tasks = tasks
        self._slots = asyncio.Semaphore(loads_max)
        self._flights: dict[Key, asyncio.Future[Value]] = {}

    async def run(self, key: Key, load: Callable[[], Awaitable[Value]]) -> Value:
        """The result of `load`, or of the load of the same key that is under way.

        Raises the StoreError that the load raised.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.get_running_loop().create_future()
            self._flights[key] = flight
            self._tasks.create_task(self._fly(key, load, flight))
        return await asyncio.shield(flight)

    async def _fly(
        self, key: Key, load: Callable[[], Awaitable[Value]], flight: asyncio.Future[Value]
    ) -> None:
        try:
            async with self._slots:
                value = await load()
        except StoreError as error:
            flight.set_exception(error)
            # All who waited may be gone by now; then nobody is left to be told.
            flight.exception()
        else:
            flight.set_result(value)
        finally:
            del self._flights[key]
            # Cancelled with the task group, or a bug that ends it: nobody may wait for ever.
            flight.cancel()


@dataclass(slots=True)
class CacheStats:
    hits: int = 0
    misses: int = 0
    evictions: int = 0


class Cache(Generic[Key, Value]):
    """Values by key, at most `bytes_max` of them by `size_of`."""

    def __init__(
        self,
        bytes_max: int,
        *,
        size_of: Callable[[Value], int],
        tasks: asyncio.TaskGroup,
        loads_max: int = 16,
    ) -> None:
        assert bytes_max >= 0
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.stats = CacheStats()
        self._size_of = size_of
        # A dict keeps the order of insertion; a value that is used is inserted anew.
        self._values: dict[Key, Value] = {}
        self._flight: SingleFlight[Key, Value] = SingleFlight(tasks, loads_max=loads_max)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        """Without counting as a use."""
        return key in self._values

    def peek(self, key: Key) -> Value | None:
        """The cached value, which counts as used; None (and a miss) when there is none."""
        value = self._values.pop(key, None)
        if value is None:
            self.stats.misses += 1
            return None
        self._values[key] = value
        self.stats.hits += 1
        return value

    def put(self, key: Key, value: Value) -> None:
        """Keep the value as the most recently used, and drop the oldest until it fits."""
        self.drop(key)
        size = self._size_of(value)
        if size > self.bytes_max:
            return
        while self.bytes_used + size > self.bytes_max:
            self.drop(next(iter(self._values)))
            self.stats.evictions += 1
        self._values[key] = value
        self.bytes_used += size

    def drop(self, key: Key) -> None:
        """Forget the value, if there is one."""
        value = self._values.pop(key, None)
        if value is not None:
            self.bytes_used -= self._size_of(value)
        assert self.bytes_used >= 0

    async def get(self, key: Key, load: Callable[[], Awaitable[Value]]) -> Value:
        """The cached value, or that of one `load`, which is kept. Raises what the load raises."""
        value = self.peek(key)
        if value is not None:
            return value

        async def load_and_keep() -> Value:
            loaded = await load()
            self.put(key, loaded)
            return loaded

        return await self._flight.run(key, load_and_keep)
