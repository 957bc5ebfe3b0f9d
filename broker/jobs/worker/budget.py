"""How much memory a worker of the jobs may take, in numbers. Pure.

The numbers are those of `tests/bench/bench_worker_memory.py`; docs/design/bounded.md §12 has them. Left out: what the
budget of an agent's worker is (`broker.jobs.memory_budget`), and keeping it (`memory`).
"""

from typing import Final, NamedTuple

MiB: Final = 1 << 20
SNAPSHOT_COPIES: Final = 3
"""A worker has its machine, and the newest snapshot of it as bytes and made a machine once more when it
proves one: each is as large as a snapshot, at least."""
NEAR_BYTES: Final = 24 * MiB
"""So much must be left: steps that nothing is asked before take less, most of them."""
GROWTH_BYTES_PER_SECOND: Final = 2048 * MiB
"""No worker grows faster: one thread of Python copies no faster."""
LOOK_S_MIN: Final = 0.01
LOOK_S_MAX: Final = 1.0


class Budget(NamedTuple):
    """What a worker may take, resident, and in words where that comes from."""

    bytes: int
    origin: str

    def left(self, resident: int) -> int:
        """What may still be taken; below 0: too much is."""
        return self.bytes - NEAR_BYTES - resident


class Limit(NamedTuple):
    """What must not be exceeded, and what is taken of it now, by everybody who is in it."""

    bytes: int
    used: int
    what: str
    """In words, for "what … leaves"."""

    @property
    def left(self) -> int:
        return self.bytes - self.used


def look_s(left: int) -> float:
    """When to look again: before what is left can have been taken."""
    return min(max(left / GROWTH_BYTES_PER_SECOND, LOOK_S_MIN), LOOK_S_MAX)


def told(length: int) -> str:
    return f"{-(-length // MiB)} MiB"
