"""Decides when another worker follows one that ended by itself, and when another agent should have the jobs. Pure.

A worker that ends soon is followed by another after a pause that doubles, up to a minute; after ENDS_MAX of them
another agent shall try. One that gave up since it neared its memory budget would do so again: another agent shall
try at once. Where none is left that has not given up, this one tries again after pauses that double up to ten minutes:
limits are raised, and snapshots become smaller. The pauses are the agent's own and outlast the jobs' coming and going,
so agents that all have too little do not hand the jobs around faster than that.

Left out: who has given up (`claims`).
"""

from typing import Final

RESTART_S_MIN: Final = 1.0
RESTART_S_MAX: Final = 60.0
MEMORY_S_MIN: Final = 30.0
MEMORY_S_MAX: Final = 600.0
STEADY_S: Final = 300.0
"""A worker that lived so long had no trouble with starting."""
ENDS_MAX: Final = 5
"""Workers that ended soon, one after the other, before another agent shall try."""


class Restarts:
    """What has become of the workers of one agent."""

    def __init__(self) -> None:
        self.short_of_memory: str | None = None
        """Why the newest worker gave up; None: it did not, or what came later shows that there is enough."""
        self._ends = 0
        self._memory_ends = 0
        self._start_at_ms = 0
        self._passes_on = False

    @property
    def passes_on(self) -> bool:
        """Shall another agent have the jobs?"""
        return self._passes_on

    def may_start(self, now_ms: int) -> bool:
        return now_ms >= self._start_at_ms

    def ended(self, *, lived_s: float, now_ms: int) -> float:
        """A worker ended, for no want of memory; seconds until another one may begin."""
        self._ends = 0 if lived_s >= STEADY_S else self._ends + 1
        self._passes_on = self._ends >= ENDS_MAX
        return self._pause(self._ends, RESTART_S_MIN, RESTART_S_MAX, now_ms)

    def gave_up(self, reason: str, *, now_ms: int) -> float:
        """A worker neared its budget, however long it lived; seconds until another one may begin."""
        self.short_of_memory = reason
        self._ends = 0
        self._memory_ends += 1
        self._passes_on = True
        return self._pause(self._memory_ends, MEMORY_S_MIN, MEMORY_S_MAX, now_ms)

    def enough(self) -> None:
        """A worker of this agent has made a snapshot: it had the memory for all that there is to do."""
        self.short_of_memory = None
        self._memory_ends = 0

    def passed_on(self) -> None:
        """Another agent has the jobs; should they come back, it all begins anew, but for the pause."""
        self._ends = 0
        self._passes_on = False

    def _pause(self, ends: int, least_s: float, most_s: float, now_ms: int) -> float:
        doublings = min(max(0, ends - 1), 10)
        pause_s: float = min(least_s * 2.0**doublings, most_s)
        self._start_at_ms = now_ms + int(pause_s * 1000)
        return pause_s
