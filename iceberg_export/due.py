"""When a topic's export is due in a loop that looks at it now and then. Pure.

Two bounds: records wait no longer than the topic's `frazil.iceberg.max.lag.ms`, and what waits is
exported before it is more than a file's worth, so that busy topics get full files without
waiting and quiet ones get few small files. Times are milliseconds of one monotonic clock.
"""

from collections.abc import Iterable
from typing import NamedTuple

LOOK_MS_MIN = 1_000
"""Looks come no faster than this, whatever a topic demands: each asks an agent and the catalog."""


class Waiting(NamedTuple):
    """What a look has found of one topic."""

    offsets_behind: int
    bytes_behind: int
    max_lag_ms: int
    caught_up_ms: int | None
    """When a look or an export last left nothing behind. None: not since the loop began, so
    nobody knows how long its records have waited."""


def look_ms(interval_ms: int, max_lags_ms: Iterable[int]) -> int:
    """Time between two looks: the interval, unless a topic's lag may not be that long."""
    return max(LOOK_MS_MIN, min([interval_ms, *max_lags_ms]))


def is_due(topic: Waiting, *, next_look_ms: int, bytes_enough: int) -> bool:
    """Export it now, or may it wait for the next look?"""
    if topic.offsets_behind == 0:
        return False
    if topic.caught_up_ms is None or topic.bytes_behind >= bytes_enough:
        return True
    # The oldest record may have come right after the topic was last seen without any.
    return next_look_ms - topic.caught_up_ms > topic.max_lag_ms
