"""The time that an agent writes into entries, by which records are deleted: never later than two clocks.

Retention, expiry and log compaction compare with the machine's time, which is the least of what
the live agents wrote (docs/design/log-and-sessions.md §10). So one clock that runs ahead moves no
time as long as there is another agent. This keeps it so when there is none: what is written into
entries is never later

* than the agent's wall clock;
* than that clock was when the agent began, plus what the boot-time clock has counted since (a
  wall clock that jumps, jumps alone);
* than the object store's clock when it was read last, plus what the boot-time clock has counted
  since (a wall clock that was wrong before the agent began);

the latter two with a tolerance. A clock that is behind keeps things for longer, nothing else.

Left out: timestamps of records (LogAppendTime), which are the wall clock's; and the case that
store and agent share one clock that was wrong from the beginning, as on a single machine.
"""

TOLERANCE_MS = 60_000
"""Clocks that differ by less agree."""


class AgreedClock:
    """All times in ms. It has no clock of its own: who asks brings the readings."""

    def __init__(self, *, wall_ms: int, boot_ms: int) -> None:
        """The readings when the agent began."""
        self._wall_offset_ms = wall_ms - boot_ms
        self._store_offset_ms: int | None = None

    def measured(self, *, store_ms: int, boot_ms: int) -> None:
        """The store's clock showed `store_ms` no later than this reading of the boot-time clock."""
        self._store_offset_ms = store_ms - boot_ms

    def now_ms(self, *, wall_ms: int, boot_ms: int) -> int:
        """What may be written. The store's clock was measured before."""
        assert self._store_offset_ms is not None
        latest_ms = min(self._wall_offset_ms, self._store_offset_ms) + boot_ms + TOLERANCE_MS
        return min(wall_ms, latest_ms)

    def skew_ms(self, *, wall_ms: int, boot_ms: int) -> int:
        """How far the wall clock is ahead of the store's; 0 before that was measured."""
        if self._store_offset_ms is None:
            return 0
        return wall_ms - boot_ms - self._store_offset_ms
