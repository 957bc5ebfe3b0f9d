"""When an operation that failed is made again: one rule for all who call the object store. Pure.

Delays double from the first to the longest. What differs where is an argument there, and its reason
stands beside it. `retry` is the shell that waits.
"""

import math
from dataclasses import dataclass
from typing import Final

NO_LIMIT: Final = math.inf
BYTES_PER_SECOND_MIN: Final = 256 * 1024
"""A way that brings this much is slow, and not dead: who moves many bytes has time for them."""


def moving_s(byte_count: int) -> float:
    """What moving so many bytes takes at most, once there is an answer."""
    return byte_count / BYTES_PER_SECOND_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The defaults are for whoever has somebody waiting. Times in seconds."""

    first_s: float = 0.05
    """Delay after the first failure."""
    longest_s: float = 2.0
    attempts_max: float = NO_LIMIT
    """After so many attempts the last error is the caller's."""
    attempt_s_max: float = 60.0
    """An attempt that takes longer is given up and made anew: connections do hang. This is for few bytes."""
    bytes_per_second_min: float = BYTES_PER_SECOND_MIN
    """An attempt that moves many has so much more time: else one that is slow and steady would be
    given up for ever."""

    def attempt_s(self, byte_count: int) -> float:
        """After how many seconds an attempt that moves so many bytes is given up."""
        return self.attempt_s_max + byte_count / self.bytes_per_second_min

    def delay_s(self, failures: int, *, chance: float = 1.0) -> float:
        """Seconds between the last of so many failures and the next attempt.

        `chance` in [0, 1] spreads them over the upper half, so that agents do not march.
        """
        assert failures > 0
        doubled_s = self.first_s * 2.0 ** min(failures - 1, 30)
        return min(doubled_s, self.longest_s) * (0.5 + 0.5 * chance)
