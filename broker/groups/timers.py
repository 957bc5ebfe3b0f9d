"""The deadlines of all live groups: one heap, one timer of the loop.

A deadline that moves away (every heartbeat moves one) is not touched: its timer fires early, the
group does nothing and is asked when it is due next. Only one that comes nearer is entered anew.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final

from broker.calls.clock import GroupClock
from broker.groups.group_context import GroupContext

LATE_S: Final = 0.0005
"""Clocks count whole ms, cut off: aimed at the very ms, a timer would fire before it has come."""
DUE_PER_TURN_MAX: Final = 50
"""When more groups are due at once, others of the loop have their turn in between."""
STALE_MIN: Final = 1_000


class Timers:
    """Calls `due` with a group at its deadline or, when that has moved, before it."""

    def __init__(self, clock: GroupClock, due: Callable[[GroupContext], None]) -> None:
        self._clock = clock
        self._due = due
        self._heap: list[tuple[int, int, GroupContext]] = []
        self._numbers = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._aimed_ms = 0
        self._armed = 0
        """Groups that have a timer; the other entries of the heap are stale."""

    def __len__(self) -> int:
        """Entries, stale ones too."""
        return len(self._heap)

    def arm(self, context: GroupContext, deadline_ms: int | None) -> None:
        """See to it that `due(context)` is called at the deadline at the latest."""
        if deadline_ms is None:
            return
        if context.armed_ms is not None:
            if context.armed_ms <= deadline_ms:
                return
            self._armed -= 1
        context.armed_ms = deadline_ms
        self._armed += 1
        heapq.heappush(self._heap, (deadline_ms, next(self._numbers), context))
        self._sweep()
        self._aim()

    def disarm(self, context: GroupContext) -> None:
        """Its timer, if it has one, does nothing."""
        if context.armed_ms is not None:
            context.armed_ms = None
            self._armed -= 1
            self._sweep()

    def _sweep(self) -> None:
        """Keep the heap in proportion to the groups (P15)."""
        if len(self._heap) > STALE_MIN + 2 * self._armed:
            self._heap = [entry for entry in self._heap if entry[2].armed_ms == entry[0]]
            heapq.heapify(self._heap)

    def _aim(self) -> None:
        """One timer of the loop, for the first entry."""
        if not self._heap:
            return
        first_ms = self._heap[0][0]
        if self._handle is not None:
            if self._aimed_ms <= first_ms:
                return
            self._handle.cancel()
        self._aimed_ms = first_ms
        left_s = max(0, first_ms - self._clock.now_ms()) / 1000 + LATE_S
        self._handle = asyncio.get_running_loop().call_later(left_s, self._fire)

    def _fire(self) -> None:
        self._handle = None
        try:
            now_ms = self._clock.now_ms()
            for _ in range(DUE_PER_TURN_MAX):
                if not self._heap or self._heap[0][0] > now_ms:
                    break
                deadline_ms, _, context = heapq.heappop(self._heap)
                if context.armed_ms == deadline_ms:
                    context.armed_ms = None
                    self._armed -= 1
                    self._due(context)
        finally:  # A bug in a group ends its group; the loop logs the error.
            self._aim()
