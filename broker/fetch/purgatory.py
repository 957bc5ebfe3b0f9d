"""Delayed fetches (Kafka's purgatory): how many bytes of which partitions each waits for, and until when.

Bytes are counted as they can be fetched, each partition at most up to what its fetch would return
of it, so nothing is read or planned again until there is enough. For polls that read everything
that is what is appended (`arrived`); for those that read committed records only, what becomes
stable (`advanced`): each such partition has the offset up to which was counted, so that nothing
counts twice. Deadlines are kept by ticks of 10 ms: one timer for all.

Invariants: a parked poll is in exactly one tick and is found under each of its partitions; taking
it out removes all of that, of many partitions bit by bit; the number of watched partitions is
bounded, and each client address has a share of it (`broker.calls.shares`).

Pure: the shell (`broker.fetch.fetch_path`) owns the timer and the wake-up once per loop turn.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Sized
from itertools import islice
from typing import Final, Generic, TypeVar

from broker.calls.shares import Owner, may_take
from protocol.types import TopicId

TICK_MS: Final = 10
FORGOTTEN_AT_ONCE: Final = 500
"""Partitions; whoever parked a poll that watches more calls `forget` for them, bit by bit."""
NEVER_READY: Final = 1 << 62
"""Bytes that never come."""

Poll = TypeVar("Poll")


class DelayedFetch(Generic[Poll]):
    """One fetch that waits."""

    __slots__ = ("bytes_missing", "committed", "poll", "taken", "tick", "watches")

    def __init__(self, poll: Poll, *, committed: bool, bytes_missing: int, tick: int) -> None:
        self.poll = poll
        self.committed = committed
        """It reads committed records only."""
        self.bytes_missing = bytes_missing
        self.tick = tick
        self.taken = False
        """It waits no more. Of many partitions, some may still be watched (`forget`)."""
        self.watches: dict[tuple[TopicId, int], int] = {}
        """Bytes that each partition may still contribute."""


class _Watchers(Generic[Poll]):
    """The fetches that wait for one partition, in one of the two isolation levels."""

    __slots__ = ("counted", "polls")

    def __init__(self, counted: int) -> None:
        self.polls: dict[DelayedFetch[Poll], None] = {}
        self.counted = counted
        """Offset up to which stable bytes have been counted."""


class FetchPurgatory(Generic[Poll]):
    """All fetches of an agent that wait for data."""

    def __init__(
        self,
        *,
        owner_of: Callable[[Poll], Owner] = lambda _poll: Owner(""),
        watches_max: int = 2_000_000,
    ) -> None:
        self._owner_of = owner_of
        self._watches_max = watches_max
        self._plenty = watches_max * 9 // 10
        """Up to here nobody's share need be counted."""
        self._watches_count = 0
        self._watchers: dict[tuple[TopicId, int], _Watchers[Poll]] = {}
        """Polls that read everything."""
        self._committed: dict[tuple[TopicId, int], _Watchers[Poll]] = {}
        """Polls that read committed records only."""
        self._ticks: dict[int, dict[DelayedFetch[Poll], None]] = {}
        self._tick_heap: list[int] = []
        self._ready: dict[DelayedFetch[Poll], None] = {}
        self._unsettled: dict[DelayedFetch[Poll], None] = {}
        """Polls that must look again, and may go on waiting."""
        self._polls_count = 0

    def __len__(self) -> int:
        return self._polls_count

    @property
    def watches_count(self) -> int:
        return self._watches_count

    def park(
        self,
        poll: Poll,
        watches: Collection[tuple[TopicId, int, int, int]],
        *,
        committed: bool,
        bytes_missing: int,
        deadline_ms: int,
    ) -> DelayedFetch[Poll]:
        """Let `poll` wait, for stable bytes when it reads `committed` records only.

        `watches`: topic id, partition, bytes that count of it at most, last stable offset. Whoever
        has no share left of the partitions that may be watched waits for his deadline alone.
        """
        assert bytes_missing > 0
        tick = -(-deadline_ms // TICK_MS)
        parked = DelayedFetch(poll, committed=committed, bytes_missing=bytes_missing, tick=tick)
        self._polls_count += 1
        at_tick = self._ticks.get(tick)
        if at_tick is None:
            at_tick = self._ticks[tick] = {}
            heapq.heappush(self._tick_heap, tick)
        if not self.has_room(poll, watches):
            watches = ()
        at_tick[parked] = None
        self._watch(parked, watches)
        return parked

    def has_room(self, poll: Poll, places: Sized) -> bool:
        """Whether so many partitions more may be watched by `poll`."""
        wanted = len(places)
        return self._watches_count + wanted <= self._plenty or self._has_share(poll, wanted)

    def watch(
        self,
        parked: DelayedFetch[Poll],
        watches: Iterable[tuple[TopicId, int, int, int]],
        bytes_there: int,
    ) -> bool:
        """Watch more partitions, which hold so many bytes by now. False when that is enough."""
        assert not parked.taken
        parked.bytes_missing -= bytes_there
        if parked.bytes_missing <= 0:
            return False
        if self._watches_count < self._watches_max:
            self._watch(parked, watches)
        return True

    def _watch(
        self, parked: DelayedFetch[Poll], watches: Iterable[tuple[TopicId, int, int, int]]
    ) -> None:
        table = self._committed if parked.committed else self._watchers
        for topic_id, partition, bytes_max, last_stable in watches:
            key = (topic_id, partition)
            if key not in parked.watches:
                self._watches_count += 1
            parked.watches[key] = bytes_max
            watchers = table.get(key)
            if watchers is None:
                watchers = table[key] = _Watchers(last_stable)
            watchers.polls[parked] = None

    def _has_share(self, poll: Poll, wanted: int) -> bool:
        owner = self._owner_of(poll)
        held = sum(
            len(parked.watches)
            for at_tick in self._ticks.values()
            for parked in at_tick
            if self._owner_of(parked.poll) == owner
        )
        return may_take(held, wanted, used=self._watches_count, most=self._watches_max)

    def is_watched(self, topic_id: TopicId, partition: int) -> bool:
        """Somebody waits for bytes of this partition."""
        key = (topic_id, partition)
        return key in self._watchers or key in self._committed

    def counted(self, topic_id: TopicId, partition: int) -> int | None:
        """Up to which offset stable bytes were counted; None when nobody waits for such."""
        watchers = self._committed.get((topic_id, partition))
        return None if watchers is None else watchers.counted

    def arrived(self, topic_id: TopicId, partition: int, byte_count: int) -> bool:
        """So many bytes were appended to a partition. True when a poll became ready by that."""
        key = (topic_id, partition)
        watchers = self._watchers.get(key)
        return watchers is not None and self._count(key, watchers, byte_count)

    def advanced(
        self, topic_id: TopicId, partition: int, byte_count: int, last_stable: int
    ) -> bool:
        """So many bytes behind `counted` became stable, up to a new offset. As `arrived`."""
        key = (topic_id, partition)
        watchers = self._committed[key]
        assert last_stable > watchers.counted
        watchers.counted = last_stable
        return self._count(key, watchers, byte_count)

    def _count(self, key: tuple[TopicId, int], watchers: _Watchers[Poll], byte_count: int) -> bool:
        woken = False
        for parked in watchers.polls:
            counted = min(byte_count, parked.watches[key])
            parked.watches[key] -= counted
            parked.bytes_missing -= counted
            if parked.bytes_missing <= 0:
                self._ready[parked] = None
                woken = True
        return woken

    def disturbed(self, topic_ids: Collection[TopicId]) -> bool:
        """The topics are not what they were: whoever waits for them must look again. True: somebody
        does.

        Walks all watched partitions, so it is called once for all topics that are deleted together.
        """
        woken = False
        for table in (self._watchers, self._committed):
            for (watched_id, _), watchers in table.items():
                if watched_id in topic_ids:
                    self._ready.update(watchers.polls)
                    woken = True
        return woken

    def unsettled(self, topic_id: TopicId, partition: int) -> bool:
        """The partition is not what it was: whoever waits for it must look again, and may wait on.
        True: somebody does."""
        woken = False
        for table in (self._watchers, self._committed):
            watchers = table.get((topic_id, partition))
            if watchers is not None:
                self._unsettled.update(watchers.polls)
                woken = True
        return woken

    def all_unsettled(self) -> bool:
        """Something has changed that is about all of them: they must look again. True: somebody
        waits."""
        for at_tick in self._ticks.values():
            self._unsettled.update(at_tick)
        return bool(self._unsettled)

    def take_ready(self) -> list[Poll]:
        """The polls that need not wait any more, in the order in which they became ready."""
        ready = [parked for parked in self._ready if not parked.taken]
        self._ready.clear()
        for parked in ready:
            self._remove(parked)
        return [parked.poll for parked in ready]

    def take_unsettled(self) -> list[Poll]:
        """The polls that must look again, those that are ready left aside."""
        unsettled = [
            parked for parked in self._unsettled if parked not in self._ready and not parked.taken
        ]
        self._unsettled.clear()
        for parked in unsettled:
            self._remove(parked)
        return [parked.poll for parked in unsettled]

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

    def next_deadline_ms(self) -> int | None:
        """When `take_expired` should be called next; None when nobody waits."""
        while self._tick_heap and not self._ticks.get(self._tick_heap[0]):
            self._ticks.pop(heapq.heappop(self._tick_heap), None)
        return self._tick_heap[0] * TICK_MS if self._tick_heap else None

    def take(self, parked: DelayedFetch[Poll]) -> None:
        """It need not wait, unless it was taken already."""
        if not parked.taken:
            self._ready.pop(parked, None)
            self._remove(parked)

    def _remove(self, parked: DelayedFetch[Poll]) -> None:
        self._polls_count -= 1
        self._unsettled.pop(parked, None)
        del self._ticks[parked.tick][parked]
        parked.taken = True
        assert self._polls_count >= 0
        if len(parked.watches) > FORGOTTEN_AT_ONCE:
            parked.bytes_missing = NEVER_READY
            return
        self._forget(parked, parked.watches)
        parked.watches = {}

    def forget(self, parked: DelayedFetch[Poll], count: int) -> bool:
        """Watch so many of its partitions no more. True: there are others."""
        assert parked.taken
        keys = list(islice(parked.watches, count))
        self._forget(parked, keys)
        for key in keys:
            del parked.watches[key]
        return bool(parked.watches)

    def _forget(self, parked: DelayedFetch[Poll], keys: Collection[tuple[TopicId, int]]) -> None:
        table = self._committed if parked.committed else self._watchers
        for key in keys:
            polls = table[key].polls
            del polls[parked]
            if not polls:
                del table[key]
        self._watches_count -= len(keys)
        assert self._watches_count >= 0
