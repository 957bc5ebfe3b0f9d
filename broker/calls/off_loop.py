"""Work on records that takes too long for the loop: in slices, in two threads.

What holds:

* A slice is about a millisecond of Python, or one run of a codec, which does without the
  interpreter's lock. Behind each slice the thread rests as long: everything else in this process
  that needs the lock (the loop, the threads of store and log) has its turns then.
* Two batches are open at most, one in each lane: those of many records do not keep others waiting.
  Within a lane clients take turns, and then their connections (`broker.calls.line`): whoever asks
  for much over many connections keeps nobody else waiting for longer than one batch of his.
* Work stops at the next slice when its client is gone.

Memory: two batches, decompressed (`protocol.compression.DECOMPRESSED_BYTES_MAX`), and what a codec
needs for them. Those that wait are bytes of requests, which are bounded by themselves, or spans,
which are loaded only with a place for them (`places`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NamedTuple, TypeVar, cast

from broker.calls.call import Call
from broker.calls.line import Line
from broker.calls.shares import owner_of
from protocol.slices import Sliced, advance

T = TypeVar("T")

REST_S: Final = 0.001
MANY_RECORDS: Final = 1 << 17
"""More of them go into the slow lane. A tenth of a second, or two."""


class _Places:
    """So many may be inside; those who wait are let in in turn."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: Line[asyncio.Future[None]] = Line()

    @asynccontextmanager
    async def of(self, call: Call) -> AsyncIterator[None]:
        """A place for the client of `call`."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(call)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, call: Call) -> None:
        mine = asyncio.get_running_loop().create_future()
        connection = call.connection
        self._line.put(owner_of(connection.peer), connection.number, mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self._leave()  # The turn had come, and nobody is left to use it.
            raise

    def _leave(self) -> None:
        while self._line:
            next_one = self._line.take()
            if not next_one.done():
                next_one.set_result(None)
                return
        self._free += 1


class _Lane(NamedTuple):
    turn: _Places
    places: _Places


class OffLoop:
    """Both lanes of an agent."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="frazil-records")
        self._fast = _Lane(_Places(1), _Places(16))
        self._slow = _Lane(_Places(1), _Places(2))

    def _lane(self, records: int) -> _Lane:
        return self._slow if records > MANY_RECORDS else self._fast

    def places(self, records: int, call: Call) -> AbstractAsyncContextManager[None]:
        """To be held by who loads a span for work on so many records, until it is done."""
        return self._lane(records).places.of(call)

    async def run(
        self, work: Sliced[T], *, records: int, call: Call, gone: Callable[[], bool]
    ) -> T | None:
        """What the work comes to; None when its client is `gone` before.

        `records`: how many there are to be looked at, at most.
        """
        loop = asyncio.get_running_loop()
        async with self._lane(records).turn.of(call):
            while not gone():
                ended = await loop.run_in_executor(self._threads, advance, work)
                if ended is not None:
                    return cast("T", ended.result)
                await asyncio.sleep(REST_S)
        work.close()
        return None
