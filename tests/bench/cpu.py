"""How much CPU another process has used."""

import time


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, all its threads, dead ones too, to the ns.

    The id of another process's CPU clock, as clock_getcpuclockid(3) makes it.
    """
    return time.clock_gettime((~pid << 3) | 2)
