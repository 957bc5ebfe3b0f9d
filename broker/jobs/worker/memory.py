"""What the worker of the jobs takes of memory: it keeps a budget itself, and gives up before it breaks it.

The kernel ends whatever it likes when memory runs out, an agent perhaps. So a worker asks for room before each thing
whose size is known (a snapshot to be read, a dump), and looks at what is resident the more often the less is left; also
at what all together have of the limits that they share, since an agent may have grown since the budget was made, and
where Kubernetes has a container end as a whole, the kernel ends the agent with the worker.
Only what is certain counts as a need: an estimate that is too high would keep jobs from running that could.

Left out: the numbers (`budget`), and what follows when a worker gave up (`broker.jobs.host`).
"""

import asyncio
import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.jobs.worker.budget import (
    NEAR_BYTES,
    SNAPSHOT_COPIES,
    Budget,
    Limit,
    MiB,
    look_s,
    told,
)
from broker.jobs.worker.memory_limits import memory_limits
from protocol.fault_codes import FaultCode, FaultError

EXIT_CODE: Final = 3
"""Of a worker process that gave up."""
NO_BOUND: Final = 1 << 62
BLOCK_BYTES: Final = MiB
"""Blocks so large are given back to the system as soon as they are free."""
_M_MMAP_THRESHOLD: Final = -3
"""Number of glibc's <malloc.h>."""


class WorkerMemoryError(FaultError):
    """The worker neared its budget, and gave up; the sentence has the numbers."""

    fault = FaultCode.MEMORY_SHORT


class WorkerMemory:
    """The budget of one worker. `run` must be going, beside what it watches."""

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        resident: Callable[[], int] | None = None,
        limits: Callable[[], Sequence[Limit]] = memory_limits,
    ) -> None:
        """Without a budget everything has room."""
        self._budget = budget
        self._resident = resident_bytes if resident is None else resident
        self._limits = limits
        self._doing = "starting"
        self._snapshot: tuple[str, int] | None = None

    def load(self, key: str, length: int) -> None:
        """Asked before a snapshot is read that this worker's machine is made of.

        A worker that can hold the machine, and not prove a snapshot of it, would let the log grow.
        Raises WorkerMemoryError.
        """
        self._snapshot = (key, length)
        self._need(SNAPSHOT_COPIES * length, f"loading {key}")

    def read(self, key: str, length: int) -> None:
        """Asked before a snapshot is read once more. Raises WorkerMemoryError."""
        self._snapshot = (key, length)
        self._need(length, f"reading {key} again")

    def dump(self) -> None:
        """Asked before the machine is written into memory. Raises WorkerMemoryError."""
        length = 0 if self._snapshot is None else self._snapshot[1]
        self._need(length, "writing the machine down")

    async def run(self) -> None:
        """Look at what is resident, for ever. Raises WorkerMemoryError."""
        while True:
            left = self._left()
            if left < 0:
                raise self._error(f" while {self._doing}")
            await asyncio.sleep(look_s(left))

    def _need(self, length: int, doing: str) -> None:
        self._doing = doing
        if self._left() < length:
            raise self._error(f", and needs {told(length)} more for {doing}")

    def _left(self) -> int:
        if self._budget is None:
            return NO_BOUND
        shared = [limit.left - NEAR_BYTES for limit in self._limits()]
        return min([self._budget.left(self._resident()), *shared])

    def _error(self, event: str) -> WorkerMemoryError:
        assert self._budget is not None
        resident = self._resident()
        own_left = self._budget.left(resident)
        nearest = min(self._limits(), key=lambda limit: limit.left, default=None)
        if nearest is not None and nearest.left - NEAR_BYTES < own_left:
            bound = f"all together have {told(nearest.used)} of {nearest.what}"
        else:
            bound = f"it may take {told(self._budget.bytes)} ({self._budget.origin})"
        length = "" if self._snapshot is None else f", of a snapshot of {told(self._snapshot[1])}"
        return WorkerMemoryError(
            f"the worker of the jobs takes {told(resident)} of memory{event}{length}; {bound}, of which"
            f" {told(NEAR_BYTES)} are kept free: raise jobs.memory.bytes, or the memory limit of the agent"
        )


def resident_bytes() -> int:
    """Of this process; 0 where the system does not say (no Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back_blocks() -> None:
    """Have parts of snapshots and of segments go back to the system when they are free.

    glibc keeps such blocks else, once it has seen the first of them go: the worker took twice as much.
    Elsewhere nothing happens.
    """
    try:
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, BLOCK_BYTES)
    except (OSError, AttributeError):
        return
