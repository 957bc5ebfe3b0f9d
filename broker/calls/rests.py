"""The loop lets other threads of its process have the interpreter, however busy it is.

Threads write to a store on disk and to the embedded log, gRPC has one, jobs of validation have some.
A thread that waits for the interpreter has it handed over only after five milliseconds in which
nobody let go of it (`take_gil` in CPython's ceval_gil.h). A busy loop lets go at each poll and takes it
back before the other has woken, and each time the five milliseconds begin anew. A write to a store on
disk has ten such steps: beside a client that keeps the loop busy it took 100 ms instead of one.

So a loop that has worked for most of the last `BUSY_MS` sleeps for a moment. Then whoever waits has
the interpreter, and the loop comes back as soon as that one writes, reads or waits. While requests
wait for their turns it is handed over after half a millisecond, too: what one client asks for makes
the loop busy then, and another waits for the threads. At other times that would be a loss: of CPU,
2 to 9 % of produce at full speed.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

BUSY_MS: Final = 2
BUSY_PART: Final = 0.7
"""Of that time, on a processor. A loop that works less waits often enough by itself."""
REST_S: Final = 0.0001
HAND_OVER_S: Final = 0.005
"""CPython's own (`sys.setswitchinterval`)."""
HAND_OVER_CROWDED_S: Final = 0.0005
"""While requests wait for their turns."""


class Rests:
    """When one loop rests. Belongs to its thread."""

    def __init__(
        self,
        boot_ms: Callable[[], int],
        *,
        thread_s: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
        hand_over: Callable[[float], None] = sys.setswitchinterval,
    ) -> None:
        """`thread_s`: seconds that the loop's thread has had a processor; `hand_over`: sets after how
        many seconds a thread that waits has the interpreter."""
        self._boot_ms = boot_ms
        self._thread_s = thread_s
        self._sleep = sleep
        self._hand_over = hand_over
        self._crowded = False
        self._looked_ms = 0
        self._worked_s = 0.0

    def look(self, waiting: int) -> None:
        """Rest if it is time to. Called between two pieces of work; so many requests wait for their
        turns."""
        crowded = waiting > 0
        if crowded is not self._crowded:
            self._crowded = crowded
            self._hand_over(HAND_OVER_CROWDED_S if crowded else HAND_OVER_S)
        now_ms = self._boot_ms()
        passed_ms = now_ms - self._looked_ms
        if passed_ms < BUSY_MS:
            return
        self._looked_ms = now_ms
        worked_s = self._thread_s()
        if (worked_s - self._worked_s) * 1000 >= BUSY_PART * passed_ms:
            self._sleep(REST_S)
        self._worked_s = worked_s
