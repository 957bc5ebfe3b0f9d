"""How agents share a quota of the cluster out among themselves (`frazil.quota.scope=cluster`). Pure.

Each agent says what its clients want of a quota: what they would use if they never had to wait (`demand`). Of
what there is everybody gets what it wants, with some room to grow, as long as that is no more than an
even share of what is left (max-min fairness); nobody wants less than a little, so that an agent that had
nothing to do can begin. What is left over is shared out evenly. So the parts are the quota, exactly.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.quotas.rates import SECOND_MS

IDLE_PART: Final = 0.05
"""Of an even share, at least."""
HEADROOM: Final = 1.25
BUSY_PART: Final = 0.95
"""Who waits for more of the time than this may want anything."""


class UsageSoFar(NamedTuple):
    """What a sensor had counted at some time."""

    at_ms: int
    used: float
    waited_ms: int


def demand(before: UsageSoFar, now: UsageSoFar, limit: float) -> float:
    """What its clients would have used a second between two times if they had not waited; all of the limit
    at most, and of those who waited nearly all the time."""
    elapsed_ms = max(1, now.at_ms - before.at_ms)
    waited = min(1.0, (now.waited_ms - before.waited_ms) / elapsed_ms)
    if waited > BUSY_PART:
        return limit
    used = (now.used - before.used) * SECOND_MS / elapsed_ms
    return min(limit, used / (1 - waited))


def shares(demands: Sequence[float], limit: float) -> list[float]:
    """What each one gets of the limit."""
    count = len(demands)
    least = IDLE_PART * limit / count
    wants = [max(HEADROOM * demand, least) for demand in demands]
    given = [0.0] * count
    left = limit
    by_want = sorted(range(count), key=wants.__getitem__)
    for done, index in enumerate(by_want):
        given[index] = min(wants[index], left / (count - done))
        left -= given[index]
    return [each + left / count for each in given]
