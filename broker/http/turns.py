"""Requests compute one at a time, an iteration of the loop for each.

Many answers take milliseconds to make (metrics, lists, plans). Where sixty connections ask at once, all
of them would be made in one iteration, and everybody else, Kafka's clients first, would wait for the sum.
"""

import asyncio


class Turns:
    """Of the requests of one listener."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a turn: it lasts until the caller waits for something else."""
        async with self._lock:
            await asyncio.sleep(0)
