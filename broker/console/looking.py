"""What is remembered while somebody looks: numbers of the agent, and lag of groups, at the times of looks.

What holds: nothing is read but when a page asks for it, and a minute after the last look nothing is remembered; the
one timer for that is set by a look. So an agent at which nobody looks does and holds nothing. What is remembered is
bounded: READINGS_MAX readings, and of groups the GROUPS_MAX that were looked at last.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.console.views.live import Reading
from broker.reports.cost_report import Metrics

KEPT_S: Final = 60.0
READINGS_MAX: Final = 150
"""Five minutes of one page."""
APART_MS: Final = 1_000
"""Several pages may look at once."""
GROUPS_MAX: Final = 50


class Looking:
    """Of one agent's console. All methods belong to its loop."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: a clock that nobody sets."""
        self.now_ms = now_ms
        self.began_ms = now_ms()
        self.readings: deque[Reading] = deque(maxlen=READINGS_MAX)
        self._lags: dict[str, deque[tuple[int, int]]] = {}
        self._forgetting: asyncio.TimerHandle | None = None

    def is_due(self) -> bool:
        """Whether numbers should be read for the page that asks now."""
        return not self.readings or self.now_ms() - self.readings[-1].at_ms >= APART_MS

    def read(self, numbers: Metrics) -> None:
        """These are the numbers now."""
        self._looked()
        self.readings.append(Reading(self.now_ms(), numbers))

    def lags(self, group_id: str, lag: int) -> tuple[list[int], list[int]]:
        """The group's lag is this now; times of looks at the group, and what it was then."""
        self._looked()
        now_ms = self.now_ms()
        kept = self._lags.pop(group_id, None) or deque(maxlen=READINGS_MAX)
        self._lags[group_id] = kept  # Behind all others.
        if kept and now_ms - kept[-1][0] < APART_MS:
            now_ms, _ = kept.pop()
        kept.append((now_ms, lag))
        while len(self._lags) > GROUPS_MAX:
            del self._lags[next(iter(self._lags))]
        return [at for at, _ in kept], [each for _, each in kept]

    @property
    def remembers(self) -> bool:
        return bool(self.readings) or bool(self._lags)

    def _looked(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        loop = asyncio.get_running_loop()
        self._forgetting = loop.call_later(KEPT_S, self._forget)

    def _forget(self) -> None:
        self._forgetting = None
        self.readings.clear()
        self._lags.clear()
