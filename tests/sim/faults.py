"""What befalls a simulated agent's store and log: late, lost and half-done calls.

A call may be slow, fail before it takes effect, or fail after it took effect (the answer is
lost). Which kinds happen at all in a run is drawn first (swarm testing), then how often. Nothing
here knows what the calls mean; every fault is one that the ports' contracts allow.
"""

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from coordinator.log.metadata_log import (
    LogEntry,
    LogUnavailableError,
    MetadataLog,
    Session,
    SessionState,
)
from protocol.types import Buffer, Position
from storage.stores.object_store import (
    DeleteRefusal,
    ObjectInfo,
    ObjectStore,
    StoreUnavailableError,
)


@dataclass
class Weather:
    """How often each fault happens: probabilities per call, seconds at most for delays."""

    delay: float = 0.0
    delay_s_max: float = 0.0
    fail_before: float = 0.0
    fail_after: float = 0.0
    tail_break: float = 0.0
    tail_delay_s_max: float = 0.0
    away: bool = False
    """Nothing answers at all."""

    @classmethod
    def drawn(cls, rng: random.Random) -> "Weather":
        def maybe(most: float) -> float:
            return rng.choice((0.0, rng.uniform(0.0, most)))

        return cls(
            delay=maybe(0.5),
            delay_s_max=rng.choice((0.01, 0.3, 3.0)),
            fail_before=maybe(0.2),
            fail_after=maybe(0.2),
            tail_break=maybe(0.05),
            tail_delay_s_max=rng.choice((0.0, 0.05, 1.5)),
        )

    def clear(self) -> None:
        """Fine weather: no fault of any kind."""
        self.delay = self.fail_before = self.fail_after = 0.0
        self.tail_break = self.tail_delay_s_max = 0.0
        self.away = False


class _Faults:
    """Takes one call through the weather; `lost` makes the port's error for "no answer"."""

    def __init__(self, weather: Weather, rng: random.Random, lost: type[Exception]) -> None:
        self.weather = weather
        self.rng = rng
        self.lost = lost

    async def through(self, call, *args):
        weather = self.weather
        if weather.away:
            await asyncio.sleep(1.0)
            raise self.lost("away")
        if self.rng.random() < weather.delay:
            await asyncio.sleep(self.rng.uniform(0, weather.delay_s_max))
        if self.rng.random() < weather.fail_before:
            raise self.lost("failed before it took effect")
        result = await call(*args)
        if weather.away or self.rng.random() < weather.fail_after:
            raise self.lost("took effect, but the answer was lost")
        return result


class FaultyStore:
    """An `ObjectStore` under the weather."""

    def __init__(self, store: ObjectStore, weather: Weather, rng: random.Random) -> None:
        self._store = store
        self._faults = _Faults(weather, rng, StoreUnavailableError)

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._faults.through(self._store.put_new, key, parts)

    async def get(self, key: str) -> Buffer:
        return await self._faults.through(self._store.get, key)

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        return await self._faults.through(self._store.get_range, key, start, length)

    async def list_after(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        return await self._faults.through(self._store.list_after, prefix, start_after)

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        return await self._faults.through(self._store.delete, keys)

    async def aclose(self) -> None:
        return None


class FaultyLog:
    """A `MetadataLog` under the weather; its tail lags and breaks."""

    def __init__(self, log: MetadataLog, weather: Weather, rng: random.Random) -> None:
        self._log = log
        self._faults = _Faults(weather, rng, LogUnavailableError)

    async def identify(self, identity: bytes) -> bytes:
        return await self._faults.through(self._log.identify, identity)

    async def grant(self, ttl_ms: int) -> int:
        return await self._faults.through(self._log.grant, ttl_ms)

    async def open(self, session: int, payload: bytes) -> Session:
        return await self._faults.through(self._log.open, session, payload)

    async def keep_alive(self, session: int) -> None:
        await self._faults.through(self._log.keep_alive, session)

    async def append(self, session: Session, n: int, payload: bytes) -> Position:
        return await self._faults.through(self._log.append, session, n, payload)

    async def read_session(self, session: int) -> SessionState:
        return await self._faults.through(self._log.read_session, session)

    async def revoke(self, session: int) -> None:
        await self._faults.through(self._log.revoke, session)

    async def head(self) -> Position:
        return await self._faults.through(self._log.head)

    async def snapshots(self) -> bytes:
        return await self._faults.through(self._log.snapshots)

    async def publish(self, session: Session, snapshots: bytes, *, older: Position) -> None:
        publish = functools.partial(self._log.publish, older=older)
        await self._faults.through(publish, session, snapshots)

    async def cut(self, session: Session, through: Position) -> int:
        return await self._faults.through(self._log.cut, session, through)

    async def tail(self, after: Position) -> AsyncIterator[Sequence[LogEntry]]:
        weather, rng = self._faults.weather, self._faults.rng
        async for batch in self._log.tail(after):
            if weather.tail_delay_s_max:
                await asyncio.sleep(rng.uniform(0, weather.tail_delay_s_max))
            while weather.away:
                await asyncio.sleep(0.5)
            if rng.random() < weather.tail_break:
                raise LogUnavailableError("the tail broke")
            yield batch

    async def aclose(self) -> None:
        await self._log.aclose()
