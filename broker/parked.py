"""Long polls: who waits for how many bytes of which partitions, and until when.

Bytes are counted as spans arrive, each partition at most up to what its fetch would return of it,
so nothing is read or planned again until there is enough. Deadlines are kept by ticks of 10 ms:
one timer for all. Invariants: a parked poll is in exactly one tick and is found under each of its
partitions; taking it out removes all of that; the number of watched partitions is bounded.

Pure: the shell (`broker.fetching`) owns the timer and the wake-up once per loop turn.
"""

import heapq
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from protocol.types import TopicId

TICK_MS: Final = 10

Poll = TypeVar("Poll")


class Parked(Generic[Poll]):
    """One long poll that waits."""

    __slots__ = ("bytes_missing", "poll", "tick", "watches")

    def __init__(self, poll: Poll, *, bytes_missing: int, tick: int) -> None:
        self.poll = poll
        self.bytes_missing = bytes_missing
        self.tick = tick
        self.watches: dict[tuple[TopicId, int], int] = {}
        """Bytes that each partition may still contribute."""


class ParkedPolls(Generic[Poll]):
    """All long polls of an agent that wait for data."""

    def __init__(self, *, watches_max: int = 2_000_000) -> None:
        self._watches_max = watches_max
        self._watches_count = 0
        self._watchers: dict[tuple[TopicId, int], dict[Parked[Poll], None]] = {}
        self._ticks: dict[int, dict[Parked[Poll], None]] = {}
        self._tick_heap: list[int] = []
        self._ready: dict[Parked[Poll], None] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def watches_count(self) -> int:
        return self._watches_count

    def park(
        self,
        poll: Poll,
        watches: Iterable[tuple[TopicId, int, int]],
        *,
        bytes_missing: int,
        deadline_ms: int,
    ) -> Parked[Poll]:
        """Let `poll` wait. `watches`: topic id, partition, bytes that count of it at most.

        At the bound on watched partitions it waits for its deadline alone.
        """
        assert bytes_missing > 0
        tick = -(-deadline_ms // TICK_MS)
        parked = Parked(poll, bytes_missing=bytes_missing, tick=tick)
        self._count += 1
        at_tick = self._ticks.get(tick)
        if at_tick is None:
            at_tick = self._ticks[tick] = {}
            heapq.heappush(self._tick_heap, tick)
        at_tick[parked] = None
        for topic_id, partition, bytes_max in watches:
            if self._watches_count >= self._watches_max:
                break
            key = (topic_id, partition)
            if key not in parked.watches:
                self._watches_count += 1
            parked.watches[key] = bytes_max
            self._watchers.setdefault(key, {})[parked] = None
        return parked

    def is_watched(self, topic_id: TopicId, partition: int) -> bool:
        """Somebody waits for bytes of this partition."""
        return (topic_id, partition) in self._watchers

    def arrived(self, topic_id: TopicId, partition: int, byte_count: int) -> bool:
        """So many bytes were appended to a partition. True when a poll became ready by that."""
        key = (topic_id, partition)
        watchers = self._watchers.get(key)
        if watchers is None:
            return False
        woken = False
        for parked in watchers:
            counted = min(byte_count, parked.watches[key])
            parked.watches[key] -= counted
            parked.bytes_missing -= counted
            if parked.bytes_missing <= 0:
                self._ready[parked] = None
                woken = True
        return woken

    def disturbed(self, topic_id: TopicId) -> bool:
        """The topic is not what it was: whoever waits for it must look again. True: somebody does.

        Walks all watched partitions; topics are deleted seldom.
        """
        woken = False
        for (watched_id, _), watchers in self._watchers.items():
            if watched_id == topic_id:
                self._ready.update(watchers)
                woken = True
        return woken

    def take_ready(self) -> list[Poll]:
        """The polls that need not wait any more, in the order in which they became ready."""
        ready = list(self._ready)
        self._ready.clear()
        for parked in ready:
            self._remove(parked)
        return [parked.poll for parked in ready]

    def take_expired(self, now_ms: int) -> list[Poll]:
        """The polls whose time is up, in order of their deadlines."""
        expired: list[Poll] = []
        while self._tick_heap and self._tick_heap[0] * TICK_MS <= now_ms:
            for parked in list(self._ticks.get(self._tick_heap[0], ())):
                self._ready.pop(parked, None)
                self._remove(parked)
                expired.append(parked.poll)
            self._ticks.pop(heapq.heappop(self._tick_heap), None)
        return expired

    def take_all(self) -> list[Poll]:
        """Every poll, for a shutdown or when the session's state changed."""
        everybody = [parked for tick in sorted(self._ticks) for parked in self._ticks[tick]]
        self._ready.clear()
        for parked in everybody:
            self._remove(parked)
        return [parked.poll for parked in everybody]

    def next_deadline_ms(self) -> int | None:
        """When `take_expired` should be called next; None when nobody waits."""
        while self._tick_heap and not self._ticks.get(self._tick_heap[0]):
            self._ticks.pop(heapq.heappop(self._tick_heap), None)
        return self._tick_heap[0] * TICK_MS if self._tick_heap else None

    def remove(self, parked: Parked[Poll]) -> None:
        """Its client is gone. No harm when it does not wait any more."""
        if parked in self._ticks.get(parked.tick, {}):
            self._ready.pop(parked, None)
            self._remove(parked)

    def _remove(self, parked: Parked[Poll]) -> None:
        self._count -= 1
        del self._ticks[parked.tick][parked]
        for key in parked.watches:
            watchers = self._watchers[key]
            del watchers[parked]
            if not watchers:
                del self._watchers[key]
        self._watches_count -= len(parked.watches)
        assert self._count >= 0
        assert self._watches_count >= 0
