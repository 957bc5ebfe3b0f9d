"""The time that an agent writes into entries, by which records are deleted: never later than two clocks.

Retention, expiry and log compaction compare with the machine's time, which is the least of what
the live agents wrote (docs/design/log-and-sessions.md §10). So one clock that runs ahead moves no
time as long as there is another agent. This keeps it so when there is none: what is written into
entries is never later

* than the agent's wall clock;
* than that clock was when it was believed last, plus what the boot-time clock has counted since (a
  wall clock that jumps, jumps alone);
* than the object store's clock when it was read last, plus what the boot-time clock has counted
  since (a wall clock that was wrong before the agent began);

the latter two with a tolerance. A clock that is behind keeps things for longer.

The wall clock is believed when the agent begins, and whenever the store's agrees with it. When the two
agree on another time than before (NTP set a clock that was wrong at the agent's start; the machine slept,
and its boot-time clock with it), that time is believed once they have agreed on it for a day: on one
machine they are one clock, which may have been set wrong, and whoever looks after it has had a day to see
what the log says.

Left out: timestamps of records (LogAppendTime), which are the wall clock's; and the case that
store and agent share one clock that was wrong from the beginning, as on a single machine.
"""

from typing import NamedTuple

TOLERANCE_MS = 60_000
"""Clocks that differ by less agree."""
BELIEVED_AFTER_MS = 86_400_000
"""So long another time is agreed on before it counts."""


class _OtherTime(NamedTuple):
    """What wall and store agree on, other than what is believed."""

    offset_ms: int
    since_ms: int
    """By the boot-time clock."""


class AgreedClock:
    """All times in ms. It has no clock of its own: who asks brings the readings."""

    def __init__(self, *, wall_ms: int, boot_ms: int) -> None:
        """The readings when the agent began."""
        self._believed_offset_ms = wall_ms - boot_ms
        self._store_offset_ms: int | None = None
        self._other: _OtherTime | None = None

    @property
    def other_ms(self) -> int:
        """How far the time that wall and store agree on is ahead of the one that is believed; 0: it is that."""
        return 0 if self._other is None else self._other.offset_ms - self._believed_offset_ms

    def measured(self, *, store_ms: int, wall_ms: int, boot_ms: int) -> None:
        """The store's clock showed `store_ms` no later than these readings of the others."""
        self._store_offset_ms = store_ms - boot_ms
        if not _agree(wall_ms, store_ms):
            self._other = None
            return
        offset_ms = wall_ms - boot_ms
        if not _agree(offset_ms, self._believed_offset_ms):
            if self._other is None or not _agree(offset_ms, self._other.offset_ms):
                self._other = _OtherTime(offset_ms, boot_ms)
            if boot_ms - self._other.since_ms < BELIEVED_AFTER_MS:
                return
        self._believed_offset_ms = offset_ms
        self._other = None

    def now_ms(self, *, wall_ms: int, boot_ms: int) -> int:
        """What may be written. The store's clock was measured before."""
        assert self._store_offset_ms is not None
        latest_ms = min(self._believed_offset_ms, self._store_offset_ms) + boot_ms + TOLERANCE_MS
        return min(wall_ms, latest_ms)

    def store_ms(self, *, wall_ms: int, boot_ms: int) -> int:
        """What the store's clock shows; the wall clock before that was measured."""
        return wall_ms if self._store_offset_ms is None else self._store_offset_ms + boot_ms

    def skew_ms(self, *, wall_ms: int, boot_ms: int) -> int:
        """How far the wall clock is ahead of the store's; 0 before that was measured."""
        if self._store_offset_ms is None:
            return 0
        return wall_ms - boot_ms - self._store_offset_ms


def _agree(one_ms: int, other_ms: int) -> bool:
    return abs(one_ms - other_ms) <= TOLERANCE_MS
