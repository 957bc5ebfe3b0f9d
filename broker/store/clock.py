"""Reads the object store's clock, at start and hourly, and gives the time that is agreed on.

An object is put, looked at in a listing, which says when the store took it in, and deleted later,
since a start waits for the measurement and not for that. What agents that ended in between have
left behind goes with a later one. A measurement that fails is
made again; until the first has succeeded nobody asks for the time, since nothing is written. A
store that deletes nothing has a clock all the same: that is told, and nothing else comes of it.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from broker.cluster.agreed_clock import TOLERANCE_MS, AgreedClock
from broker.cluster.refusals import Refusals
from protocol.fault_codes import FaultCode, coded
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
        self._measured: list[str] = []
        """Objects of ours that are of no use any more."""
        self._clock = AgreedClock(wall_ms=now_ms(), boot_ms=boot_ms())

    def now_ms(self) -> int:
        """The time to write into entries."""
        return self._clock.now_ms(wall_ms=self._wall_ms(), boot_ms=self._boot_ms())

    def store_ms(self) -> int:
        """The time by the store's clock; by the wall clock before that was measured."""
        return self._clock.store_ms(wall_ms=self._wall_ms(), boot_ms=self._boot_ms())

    def skew_ms(self) -> int:
        """How far the wall clock is ahead of the store's."""
        return self._clock.skew_ms(wall_ms=self._wall_ms(), boot_ms=self._boot_ms())

    async def measure(self) -> None:
        """Read the store's clock. Raises StoreError."""
        key = f"{PREFIX}{self._rng.getrandbits(64):016x}"
        await self._store.put_new(key, [b"\n"])
        page = await self._store.list_after(PREFIX, key[:-1])
        found = next((info for info in page if info.key == key), None)
        # Taken in before this reading: what is concluded is too early rather than too late.
        wall_ms, boot_ms = self._wall_ms(), self._boot_ms()
        if found is None:
            raise StoreUnavailableError(f"{key} was put and is not there")
        self._clock.measured(store_ms=found.modified_ms, wall_ms=wall_ms, boot_ms=boot_ms)
        self._measured.append(key)
        skew_ms = self.skew_ms()
        if abs(skew_ms) > TOLERANCE_MS:
            side = "ahead of" if skew_ms > 0 else "behind"
            logger.error(
                "this machine's clock is %.0f s %s the object store's: set up NTP; until they agree,"
                " what retention deletes by is the earlier one",
                abs(skew_ms) / 1000,
                side,
                extra={"code": FaultCode.CLOCK_SKEW.value},
            )
        if other_ms := self._clock.other_ms:
            side = "forward" if other_ms > 0 else "back"
            logger.warning(
                "this machine's clock was set %s by %.0f s while the agent ran, or the machine slept: what"
                " retention deletes by follows after a day, or when the agent is started again",
                side,
                abs(other_ms) / 1000,
            )

    async def run(self) -> None:
        """Tidy up after `measure`, and measure hourly, for ever."""
        while True:
            await self._tidy()
            await asyncio.sleep(EVERY_S)
            await until_done(self.measure, RETRY, tell=_tell, passing=(StoreError,))

    async def _tidy(self) -> None:
        """Delete what was put to be looked at; what cannot be deleted now is, in an hour."""
        try:
            page = await self._store.list_after(PREFIX, "")
            newest_ms = max((info.modified_ms for info in page), default=0)
            old = [info.key for info in page if info.modified_ms < newest_ms - LEFT_BEHIND_MS]
            await self._delete(list(dict.fromkeys([*self._measured, *old])))
        except StoreError as error:
            logger.info("objects of measurements stay for now: %s", error, extra=coded(error))
        else:
            self._measured.clear()

    async def _delete(self, keys: Sequence[str]) -> None:
        try:
            refused = await self._store.delete(keys)
        except StoreRefusedError as error:
            refused = [DeleteRefusal(key, str(error)) for key in keys]
        for sentence in self._refusals.news(refused):
            logger.warning("%s (tried again hourly)", sentence)


def _tell(error: Exception, _failures: int) -> None:
    logger.warning("the object store's clock could not be read: %s", error, extra=coded(error))
