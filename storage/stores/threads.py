"""A few threads that run what blocks, for adapters that call the system.

What `loop.run_in_executor` does, with fewer steps on the way: a call is handed to a thread, and what it
returned or raised comes back to its loop in one callback. The thread that ended its call last gets the
next one, so that few calls at a time keep few threads warm; more are started as they are needed.

Left out: stopping a call that is under way; nothing can.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class _Idle:
    """A thread that waits for its next call."""

    __slots__ = ("job", "wake")

    def __init__(self) -> None:
        self.job: _Job | None = None
        self.wake = threading.Lock()
        """Held but for the moment in which it is woken; without a job it ends then."""
        self.wake.acquire()


class Threads:
    """At most `count` threads. Every call comes back to the loop that made it."""

    def __init__(self, count: int, *, name: str) -> None:
        assert count > 0
        self._count = count
        self._name = name
        self._lock = threading.Lock()
        """Of the three below."""
        self._waiting: deque[_Job] = deque()
        self._idle: list[_Idle] = []
        self._started = 0
        self._shut = False

    def run(self, call: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Done with what `call` returns or raises, in a thread. To be called on a loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        job = (call, loop, future)
        with self._lock:
            if self._shut:
                raise RuntimeError("the threads are shut")
            if self._idle:
                idle = self._idle.pop()
                idle.job = job
                idle.wake.release()
            else:
                self._waiting.append(job)
                if self._started < self._count:
                    name = f"{self._name}-{self._started}"
                    self._started += 1
                    threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def shut(self) -> None:
        """Take no more calls; what was taken is done, and nobody waits for it. Idempotent."""
        with self._lock:
            self._shut = True
            for idle in self._idle:
                idle.wake.release()
            self._idle = []

    def _work(self) -> None:
        mine = _Idle()
        job = self._next(mine)
        while True:
            if job is None:
                mine.wake.acquire()
                job, mine.job = mine.job, None
            if job is None:
                return
            call, loop, future = job
            result: Any = None
            error: Exception | None = None
            try:
                if not future.cancelled():
                    result = call()
            except Exception as raised:  # noqa: BLE001 - It is the caller's, and goes there.
                error = raised
            # First: whoever hears of it may make the next call at once.
            job = self._next(mine)
            # Where the loop was closed meanwhile nobody waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_deliver, future, result, error)
            # What the caller was given is not to be kept here until the next call.
            del call, loop, future, result, error

    def _next(self, mine: _Idle) -> _Job | None:
        """A call that waits; None: `mine` is to be waited for."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._shut:
                mine.wake.release()
            else:
                self._idle.append(mine)
        return None


def _deliver(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
