"""Loads many groups in slices, so that the loop has its turn in between.

After a takeover every group with members is loaded, so that dead members expire though nobody
asks for their group. Whoever asks for one before its turn gets it at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

LOADED_PER_TURN_MAX: Final = 100
TURN_S: Final = 0.005


class Loading:
    """`run` must be going; calls `load` with each id once, in order."""

    def __init__(self, load: Callable[[str], None]) -> None:
        self._load = load
        self._waiting: deque[str] = deque()
        self._work = asyncio.Event()

    def add(self, group_ids: Iterable[str]) -> None:
        self._waiting.extend(group_ids)
        if self._waiting:
            self._work.set()

    async def run(self) -> None:
        """Load what is to be loaded, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await self._work.wait()
            turn_s = loop.time()
            for _ in range(LOADED_PER_TURN_MAX):
                if not self._waiting or loop.time() - turn_s > TURN_S:
                    break
                self._load(self._waiting.popleft())
            if not self._waiting:
                self._work.clear()
            await asyncio.sleep(0)
