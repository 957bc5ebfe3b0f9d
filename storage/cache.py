"""A cache bounded by bytes, least recently used first out; and loads that happen once.

Invariants: the cached bytes never exceed the budget (a value larger than it is not kept); while
a load is under way, whoever asks for the same key shares it. Cancelling one who waits does not
disturb the load, which belongs to the task group.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from storage.stores.object_store import StoreError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

PASSING_SHARE: Final = 4
"""What passes has this part of the room: one in so many."""
PASSED_MAX: Final = 4096
"""Keys that are remembered of what passed."""


class Cache(Generic[Key, Value]):
    """Values by key, at most `bytes_max` of them by `size_of`.

    Those that pass are read in order by somebody who will not come again, as a rule. They have a
    quarter of the room, so whoever reads much that is old displaces nothing that is new, and the
    same memory is used again and again. What was asked for a second time, after it had to go, stays
    with the others.
    """

    def __init__(self, bytes_max: int, *, size_of: Callable[[Value], int]) -> None:
        assert bytes_max >= 0
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.evictions = 0
        self._size_of = size_of
        # Not plain dicts: finding their first key walks over all that were deleted before it.
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._passing: OrderedDict[Key, Value] = OrderedDict()
        self._passing_bytes = 0
        self._passed: OrderedDict[Key, None] = OrderedDict()
        """Keys of what had to go last."""

    def __len__(self) -> int:
        return len(self._values) + len(self._passing)

    def get(self, key: Key) -> Value | None:
        """The cached value, which counts as used."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
            return value
        value = self._passing.get(key)
        if value is not None:
            self._passing.move_to_end(key)
        return value

    def put(self, key: Key, value: Value, *, passing: bool = False) -> None:
        """Keep the value as the most recently used, and drop the oldest until it fits."""
        if key in self._values or key in self._passing:
            self.drop(key)
        size = self._size_of(value)
        if size > self.bytes_max:
            return
        if passing and key not in self._passed:
            passing_bytes_max = self.bytes_max // PASSING_SHARE
            while self._passing and self._passing_bytes + size > passing_bytes_max:
                self._evict_passing()
            self._passing[key] = value
            self._passing_bytes += size
        else:
            self._values[key] = value
        self.bytes_used += size
        while self.bytes_used > self.bytes_max:
            self._evict()

    def drop(self, key: Key) -> None:
        """Forget the value, if there is one."""
        value = self._values.pop(key, None)
        if value is None:
            value = self._passing.pop(key, None)
            if value is None:
                return
            self._passing_bytes -= self._size_of(value)
        self.bytes_used -= self._size_of(value)
        assert self.bytes_used >= self._passing_bytes >= 0

    def _evict(self) -> None:
        if self._values:
            _, value = self._values.popitem(last=False)
            self.bytes_used -= self._size_of(value)
            self.evictions += 1
        else:
            self._evict_passing()

    def _evict_passing(self) -> None:
        key, value = self._passing.popitem(last=False)
        size = self._size_of(value)
        self.bytes_used -= size
        self._passing_bytes -= size
        self.evictions += 1
        self._passed[key] = None
        if len(self._passed) > PASSED_MAX:
            self._passed.popitem(last=False)


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
