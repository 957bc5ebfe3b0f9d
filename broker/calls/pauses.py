"""A boot-time clock that counts pauses, too: those for which a hypervisor stopped the whole machine. Pure.

A machine that is paused, or goes on from a copy of its memory, has a boot-time clock that stood still, while
leases ran out in the world and others took over. What shows it is the wall clock, once it is set:
it is ahead of where it was beside the boot-time clock. So time by which a session is proven, a stall is noticed and a
client's wait is bounded counts the pause (P5, P17).

A wall clock that somebody sets forward looks the same: then the agent proves its session again, and
refuses what was under way, once. Nothing ends by it (P6), since clocks that end something leave stalls out
(`broker.calls.clock`). What is deleted by age goes by other clocks (`broker.cluster.agreed_clock`).
"""

from collections.abc import Callable
from typing import Final

PAUSE_MS_MIN: Final = 200
"""Less is how NTP slews, and how two clocks are read one after the other."""
READ_MS_MAX: Final = 50
"""The clocks are read together, or nothing is concluded: a process may wait between two readings."""


class PauseClock:
    """Never goes back as long as the boot-time clock does not; must be looked at a few times a second."""

    __slots__ = ("_boot_ms", "_offset_ms", "_wall_ms", "paused_ms")

    def __init__(self, *, wall_ms: Callable[[], int], boot_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._boot_ms = boot_ms
        self._offset_ms = wall_ms() - boot_ms()
        self.paused_ms = 0
        """All pauses together."""

    def __call__(self) -> int:
        """Boot-time ms, and the pauses."""
        before_ms = self._boot_ms()
        wall_ms = self._wall_ms()
        boot_ms = self._boot_ms()
        if boot_ms - before_ms > READ_MS_MAX:
            return boot_ms + self.paused_ms
        offset_ms = wall_ms - boot_ms
        ahead_ms = offset_ms - self._offset_ms
        self._offset_ms = offset_ms
        if ahead_ms >= PAUSE_MS_MIN:
            self.paused_ms += ahead_ms
        return boot_ms + self.paused_ms
