"""Waits until the replica has applied what the log held at some time after the wait began (P9).

One linearizable read of the head serves everyone who was waiting when it was sent, requests too
that were waiting for their turn (`since_ms`): clients send thousands at once. Whoever comes while it
is under way waits for the next one. A read that fails is made again until those who wait give up. A
head before what is applied is that of another log.
"""

import asyncio
import logging
from collections.abc import Callable

from coordinator.log.metadata_log import (
    LogError,
    LogReplacedError,
    LogUnavailableError,
    MetadataLog,
)
from coordinator.stats import LogClientStats
from protocol.types import Position

logger = logging.getLogger(__name__)

RETRY_S = 0.1


class Barrier:
    """`run` must be going for `wait` to end."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        wait_for: Callable[[Position], asyncio.Future[None]],
        deadline_ms: int,
        boot_ms: Callable[[], int],
        stats: LogClientStats,
    ) -> None:
        assert deadline_ms > 0
        self._boot_ms = boot_ms
        self._served_ms = -1
        """When the newest read of the head was sent that the replica has reached."""
        self._log = log
        self._wait_for = wait_for
        self._deadline_s = deadline_ms / 1000
        self._stats = stats
        self._arrived: list[asyncio.Future[None]] = []
        self._work = asyncio.Event()

    async def wait(self, since_ms: int | None = None) -> None:
        """Raises LogUnavailableError after the deadline.

        `since_ms`: when the wait began, by the boot clock, if that was before this call.
        """
        # Not in the same millisecond: which of the two came first is not known.
        if since_ms is not None and since_ms < self._served_ms:
            return
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        done: asyncio.Future[None] = loop.create_future()
        self._arrived.append(done)
        self._work.set()
        self._stats.barriers += 1
        try:
            async with asyncio.timeout(self._deadline_s):
                await done
        except TimeoutError:
            self._stats.barriers_failed += 1
            raise LogUnavailableError(
                f"the log's end was not reached within {self._deadline_s:g} s"
            ) from None
        self._stats.barrier_seconds += loop.time() - started_s

    async def run(self) -> None:
        """Serve those who wait, for ever. Raises LogReplacedError."""
        while True:
            await self._work.wait()
            self._work.clear()
            served = [each for each in self._arrived if not each.done()]
            self._arrived = []
            if not served:
                continue
            self._stats.head_reads += 1
            applied = self._stats.applied_position
            sent_ms = self._boot_ms()
            try:
                head = await self._log.head()
            except LogReplacedError:
                raise
            except LogError as error:
                # A later read is as good for them: it too is sent after they came.
                logger.info("the log's head could not be read: %s", error)
                self._arrived = served + self._arrived
                self._work.set()
                await asyncio.sleep(RETRY_S)
                continue
            if head < applied:
                raise LogReplacedError(f"the log ends at position {head}, before {applied}")
            self._stats.head_position = max(self._stats.head_position, head)
            self._reach(head, sent_ms, served)

    def _reach(self, head: Position, sent_ms: int, served: list[asyncio.Future[None]]) -> None:
        def reached(_: asyncio.Future[None]) -> None:
            self._served_ms = max(self._served_ms, sent_ms)
            for each in served:
                if not each.done():
                    each.set_result(None)

        self._wait_for(head).add_done_callback(reached)
