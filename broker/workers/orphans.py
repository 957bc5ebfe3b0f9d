"""Processes that others left behind, taken by the first process of a container: nobody else does.

A worker that is killed leaves the processes of its jobs and schemas. They end by themselves, and would be
listed for ever if their exit codes were not asked for.
"""

import contextlib
import os
from collections.abc import Collection


def is_first() -> bool:
    """Whether what others leave behind is this process's."""
    return os.getpid() == 1 and hasattr(os, "waitid")


def reap(ours: Collection[int]) -> list[int]:
    """Ask for the exit codes of all that have ended, but of `ours`, whose starter asks; their ids.

    Behind one of ours that has just ended the others wait for the next time.
    """
    reaped: list[int] = []
    with contextlib.suppress(ChildProcessError):
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid in ours:
                break
            os.waitpid(found.si_pid, os.WNOHANG)
            reaped.append(found.si_pid)
    return reaped
