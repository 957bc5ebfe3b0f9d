"""How much memory the worker of the jobs may take: by the setting, or by what the agent's limits leave. Pure.

A limit (of a cgroup, or the machine's memory) is shared by all that is in it: this agent, other agents of the
machine, and the worker. It leaves the worker what no bound of this agent could ever take, or three quarters of what nobody
has now, whichever is more. The bounds of an agent are empty most of the time, and a pod may be smaller than their sum;
jobs that never run would fill the log for certain. Should the agent then grow into the worker's share, the worker
notices that the limit is near, and gives up.

Left out: reading the limits (`worker.memory_limits`), and keeping the budget (`worker.memory`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker.jobs.worker.budget import Budget, Limit


class AgentMemory(NamedTuple):
    """What the agent has now, and what it may come to by its bounds."""

    resident: int
    bound: int


def budget_of(setting: int, limits: Sequence[Limit], agent: AgentMemory) -> Budget | None:
    """The worker's budget; `setting` 0: it follows. None: nothing is known that bounds it."""
    if setting:
        return Budget(setting, "by jobs.memory.bytes")
    left = [(_left(limit, agent), limit) for limit in limits]
    if not left:
        return None
    length, limit = min(left)
    return Budget(length, f"what {limit.what} leaves")


def _left(limit: Limit, agent: AgentMemory) -> int:
    others = max(0, limit.used - agent.resident)
    beside_bound = limit.bytes - others - agent.bound
    return max(0, beside_bound, limit.left * 3 // 4)
