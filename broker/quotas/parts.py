"""How agents share a quota of the cluster out among themselves (`frazil.quota.scope=cluster`). Pure.

Each agent says what its clients want of a quota: what they use, or all of it when they had to wait. Of
what there is everybody gets what it wants, with some room to grow, as long as that is no more than an
even share of what is left (max-min fairness); nobody wants less than a little, so that an agent that had
nothing to do can begin. What is left over is shared out evenly. So the parts are the quota, exactly.
"""

from collections.abc import Sequence
from typing import Final

IDLE_PART: Final = 0.05
"""Of an even share, at least."""
HEADROOM: Final = 1.25


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
