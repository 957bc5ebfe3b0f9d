"""Reads the object store's clock, at start and hourly, and gives the time that is agreed on.

An object is put, looked at in a listing, which says when the store took it in, and deleted. What
agents that ended in between have left behind goes with a later one. A measurement that fails is
made again; until the first has succeeded nobody asks for the time, since nothing is written. A
store that deletes nothing has a clock all the same: that is told, and nothing else comes of it.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from broker.cluster.agreed_clock import TOLERANCE_MS, AgreedClock
from broker.cluster.refusals import Refusals
from storage.stores.object_store import (
    DeleteRefusal,
    ObjectStore,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

logger = logging.getLogger(__name__)

PREFIX = "clock/"
EVERY_S = 3600.0
RETRY = RetryPolicy(first_s=60.0, longest_s=60.0)
"""Each measurement costs a put and two listings, and clocks do not go wrong in a minute."""
LEFT_BEHIND_MS = 3_600_000
"""An object this old is nobody's any more: no measurement takes so long."""


class StoreTime:
    """`measure` must have succeeded once before `now_ms` is asked."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        now_ms: Callable[[], int],
        boot_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        """`now_ms`: the wall clock; `boot_ms`: a clock that nobody sets."""
        self._store = store
        self._wall_ms = now_ms
        self._boot_ms = boot_ms
        self._rng = rng
        self._refusals = Refusals()
        self._clock = AgreedClock(wall_ms=now_ms(), boot_ms=boot_ms())

    def now_ms(self) -> int:
        """The time to write into entries."""
        return self._clock.now_ms(wall_ms=self._wall_ms(), boot_ms=self._boot_ms())

    def skew_ms(self) -> int:
        """How far the wall clock is ahead of the store's."""
        return self._clock.skew_ms(wall_ms=self._wall_ms(), boot_ms=self._boot_ms())

    async def measure(self) -> None:
        """Read the store's clock. Raises StoreError."""
        key = f"{PREFIX}{self._rng.getrandbits(64):016x}"
        await self._store.put_new(key, [b"\n"])
        found = [info for info in await self._store.list_after(key, "") if info.key == key]
        # Taken in before this reading: what is concluded is too early rather than too late.
        boot_ms = self._boot_ms()
        if not found:
            raise StoreUnavailableError(f"{key} was put and is not there")
        store_ms = found[0].modified_ms
        self._clock.measured(store_ms=store_ms, boot_ms=boot_ms)
        await self._delete([key, *await self._left_behind(store_ms)])
        skew_ms = self.skew_ms()
        if abs(skew_ms) > TOLERANCE_MS:
            side = "ahead of" if skew_ms > 0 else "behind"
            logger.error(
                "this machine's clock is %.0f s %s the object store's: set up NTP; until they agree,"
                " what retention deletes by is the earlier one",
                abs(skew_ms) / 1000,
                side,
            )

    async def run(self) -> None:
        """Measure hourly, for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            await until_done(self.measure, RETRY, tell=_tell, passing=(StoreError,))

    async def _delete(self, keys: Sequence[str]) -> None:
        try:
            refused = await self._store.delete(keys)
        except StoreRefusedError as error:
            refused = [DeleteRefusal(key, str(error)) for key in keys]
        for sentence in self._refusals.news(refused):
            logger.warning("%s (tried again hourly)", sentence)

    async def _left_behind(self, store_ms: int) -> list[str]:
        page = await self._store.list_after(PREFIX, "")
        return [info.key for info in page if info.modified_ms < store_ms - LEFT_BEHIND_MS]


def _tell(error: Exception, _failures: int) -> None:
    logger.warning("the object store's clock could not be read: %s", error)
