"""Requests compute one at a time, an iteration of the loop for each.

Many answers take milliseconds to make (metrics, lists, plans). Where sixty connections ask at once, all
of them would be made in one iteration, and everybody else, Kafka's clients first, would wait for the sum.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Turns:
    """Of the requests of one listener."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a turn: it lasts until the caller waits for something else."""
        async with self._lock:
            await asyncio.sleep(0)


class SharedAnswer:
    """One answer for all who ask before it is made, so it is older than no question."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = asyncio.Lock()
        self._made = 0
        self._answer: bytes | None = None

    async def get(self, make: Callable[[], Awaitable[bytes]]) -> bytes:
        made = self._made
        async with self._lock:
            # Whoever was making one may have gone in the middle of it.
            if self._made == made or self._answer is None:
                await asyncio.sleep(self._wait_s)
                self._made += 1
                self._answer = None
                self._answer = await make()
            return self._answer
