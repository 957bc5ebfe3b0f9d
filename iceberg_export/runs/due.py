"""When a topic's export is due in a loop that polls it now and then. Pure.

Two bounds: records wait no longer than the topic's `frazil.iceberg.max.lag.ms`, and what waits is
exported before it is more than a file's worth, so that busy topics get full files without waiting
and quiet ones get few small files. A topic whose export fails is tried again after a pause that
doubles, and a line is printed only when there is something new. Times are milliseconds of one
monotonic clock.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

POLL_MS_MIN = 1_000
"""Polls come no faster, whatever a topic demands: each asks an agent and the catalog."""


FAILURE_PAUSE_MS_MAX = 600_000
"""Pauses after failures grow up to this, or up to the interval of polls when that is longer."""


class TopicLag(NamedTuple):
    """How far a topic's table is behind, at one poll."""

    offsets_behind: int
    bytes_behind: int
    max_lag_ms: int
    caught_up_ms: int | None
    """When a poll or an export last found nothing waiting. None: not since the loop began, so
    nobody knows how long its records have waited."""


def poll_interval_ms(interval_ms: int, max_lags_ms: Iterable[int]) -> int:
    """Returns the time between two polls: the interval, or less where a topic's lag demands it."""
    return max(POLL_MS_MIN, min([interval_ms, *max_lags_ms]))


def is_due(topic: TopicLag, *, next_poll_ms: int, bytes_enough: int) -> bool:
    """Tells whether to export the topic now: it may not wait for the next poll."""
    if topic.offsets_behind == 0:
        return False
    if topic.caught_up_ms is None or topic.bytes_behind >= bytes_enough:
        return True
    # The oldest record may have come right after the topic was last seen without any.
    return next_poll_ms - topic.caught_up_ms > topic.max_lag_ms


class FailedExports(NamedTuple):
    """A topic whose last exports failed."""

    times: int
    """In a row."""
    reason: str
    """Of the last one."""
    pause_ms: int
    again_ms: int
    """It is not tried before."""
    configs: Mapping[str, str]
    """Under which it failed: others are worth a try at once."""


def count_failure(
    before: FailedExports | None,
    reason: str,
    *,
    configs: Mapping[str, str],
    began_ms: int,
    interval_ms: int,
) -> FailedExports:
    """Counts one more failure, of an export in the round that began at `began_ms`."""
    times = before.times + 1 if before else 1
    most = max(interval_ms, FAILURE_PAUSE_MS_MAX)
    pause_ms = min(2 * before.pause_ms, most) if before else interval_ms
    return FailedExports(times, reason, pause_ms, began_ms + pause_ms, configs)


def is_worth_reporting(before: FailedExports | None, now: FailedExports) -> bool:
    """Tells whether reason or pause differ from those that were printed last."""
    return before is None or (before.reason, before.pause_ms) != (now.reason, now.pause_ms)


def may_retry(failing: FailedExports | None, configs: Mapping[str, str], now_ms: int) -> bool:
    """Tells whether the topic has paused for long enough, or its settings have changed."""
    return failing is None or now_ms >= failing.again_ms or failing.configs != configs
