"""Work on records that takes too long for the loop: in slices, in two threads.

What holds:

* A slice is about a millisecond of Python, or one run of a codec, which does without the
  interpreter's lock. Behind each slice the thread rests as long: everything else in this process
  that needs the lock (the loop, the threads of store and log) has its turns then.
* Two batches are open at most, one in each lane: those of many records do not keep others waiting.
  Within a lane whoever came first goes first, and a connection has one at a time; so they take turns.
* Work stops at the next slice when its client is gone.

Memory: two batches, decompressed (`protocol.compression.DECOMPRESSED_BYTES_MAX`), and what a codec
needs for them. Those that wait are bytes of requests, which are bounded by themselves, or spans,
which are loaded only with a place for them (`places`).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar, cast

from protocol.slices import Sliced, advance

T = TypeVar("T")

REST_S: Final = 0.001
MANY_RECORDS: Final = 1 << 17
"""More of them go into the slow lane. A tenth of a second, or two."""


class _Lane(NamedTuple):
    turn: asyncio.Semaphore
    places: asyncio.Semaphore


class OffLoop:
    """Both lanes of an agent."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="frazil-records")
        self._fast = _Lane(asyncio.Semaphore(1), asyncio.Semaphore(16))
        self._slow = _Lane(asyncio.Semaphore(1), asyncio.Semaphore(2))

    def _lane(self, records: int) -> _Lane:
        return self._slow if records > MANY_RECORDS else self._fast

    def places(self, records: int) -> asyncio.Semaphore:
        """To be held by who loads a span for work on so many records, until it is done."""
        return self._lane(records).places

    async def run(self, work: Sliced[T], *, records: int, gone: Callable[[], bool]) -> T | None:
        """What the work comes to; None when its client is `gone` before.

        `records`: how many there are to be looked at, at most.
        """
        loop = asyncio.get_running_loop()
        async with self._lane(records).turn:
            while not gone():
                ended = await loop.run_in_executor(self._threads, advance, work)
                if ended is not None:
                    return cast("T", ended.result)
                await asyncio.sleep(REST_S)
        work.close()
        return None
