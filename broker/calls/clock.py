"""The group clock: boot time without the stalls of this agent. Pure.

Members are expired by it, so nobody is expired because the *agent* stood still (a frozen process,
a suspended machine): what its members sent meanwhile lies unread in the kernel.
"""

from collections.abc import Callable

from broker.calls.stalls import StallWatch


class GroupClock:
    """Never goes back; must be looked at a few times a second."""

    __slots__ = ("_boot_ms", "_watch")

    def __init__(self, boot_ms: Callable[[], int], *, stall_ms_max: int) -> None:
        self._boot_ms = boot_ms
        self._watch = StallWatch(boot_ms(), stall_ms_max=stall_ms_max)

    def now_ms(self) -> int:
        now_ms = self._boot_ms()
        watch = self._watch
        watch.observe(now_ms)
        return now_ms - watch.stalled_ms
