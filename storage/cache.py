"""A cache bounded by bytes, least recently used first out; and loads that happen once.

Invariants: the cached bytes never exceed the budget (a value larger than it is not kept); while
a load is under way, whoever asks for the same key shares it. Cancelling one who waits does not
disturb the load, which belongs to the task group.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from storage.stores.object_store import StoreError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """Values by key, at most `bytes_max` of them by `size_of`."""

    def __init__(self, bytes_max: int, *, size_of: Callable[[Value], int]) -> None:
        assert bytes_max >= 0
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.evictions = 0
        self._size_of = size_of
        # Not a plain dict: finding its first key walks over all that were deleted before it.
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The cached value, which counts as used."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Keep the value as the most recently used, and drop the oldest until it fits."""
        self.drop(key)
        size = self._size_of(value)
        if size > self.bytes_max:
            return
        while self.bytes_used + size > self.bytes_max:
            self.drop(next(iter(self._values)))
            self.evictions += 1
        self._values[key] = value
        self.bytes_used += size

    def drop(self, key: Key) -> None:
        """Forget the value, if there is one."""
        value = self._values.pop(key, None)
        if value is not None:
            self.bytes_used -= self._size_of(value)
        assert self.bytes_used >= 0


class SingleFlight(Generic[Key, Value]):
    """Runs one load per key at a time, and at most `loads_max` of all keys."""

    def __init__(self, tasks: asyncio.TaskGroup, *, loads_max: int) -> None:
        assert loads_max > 0
        self._tasks = tasks
        self._slots = asyncio.Semaphore(loads_max)
        self._flights: dict[Key, asyncio.Future[Value]] = {}

    def __len__(self) -> int:
        """Loads under way or waiting for their turn."""
        return len(self._flights)

    def start(self, key: Key, load: Callable[[], Awaitable[Value]]) -> asyncio.Future[Value]:
        """The result of `load`, or of the load of the same key that is under way.

        The future is shared: await it through `asyncio.shield`. It raises the StoreError that
        the load raised.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.get_running_loop().create_future()
            self._flights[key] = flight
            self._tasks.create_task(self._fly(key, load, flight))
        return flight

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
