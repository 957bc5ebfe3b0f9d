"""An event loop on virtual time that runs one ready callback at a time, drawn by a seed.

Waiting costs nothing: when nothing is ready the clock jumps to the next timer. When there is no
timer either, nothing can ever happen again, and `DeadlockError` says so at once.

Every callback belongs to an owner, inherited with the context in which it was scheduled
(`owned`). An owner can be paused, as SIGSTOP does (its callbacks wait), and killed, as SIGKILL
does: its callbacks never run again, no `finally` included.

The order of `call_soon` is deliberately not kept, since code that relies on it relies on the
scheduler. A byte stream keeps its own order (`tests.sim.network`).
"""

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import random
import selectors
import sys
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any, TypeVar, TypeVarTuple, cast

from typing_extensions import override

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")
"""Whose code is running; "" is the simulator itself."""


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: what is waited for can never come."""


class LivelockError(RuntimeError):
    """Much happens and the test does not end: somebody tries again without waiting."""


STEPS_MAX = 5_000_000
"""Of a test; the longest take a tenth of that."""


class _NoSelector(selectors.BaseSelector):
    """Nothing outside the process exists here."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}

    @override
    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[id(fileobj)] = key
        return key

    @override
    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(id(fileobj))

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    @override
    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {key.fileobj: key for key in self._keys.values()}

    @override
    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        # asyncio asks before it registers; KeyError is its "not yet".
        return self._keys[id(fileobj)]


class _SimTask(asyncio.Task[Any]):
    """Task groups and `asyncio.wait` keep tasks in sets and walk them; an address, which is
    another in each process, must not say in which order."""

    _log_destroy_pending: bool
    """asyncio's own."""

    def __init__(
        self, coro: Coroutine[Any, Any, Any], *, number: int, loop: "SimLoop", **kwargs: Any
    ) -> None:
        self._number = number
        super().__init__(coro, loop=loop, **kwargs)

    @override
    def __hash__(self) -> int:
        return self._number


class _SimFuture(asyncio.Future[Any]):
    """As _SimTask."""

    _number: int

    @override
    def __hash__(self) -> int:
        return self._number


_Timer = tuple[float, asyncio.TimerHandle]
"""A tuple, since a heap compares numbers far faster than handles."""


class SimLoop(asyncio.SelectorEventLoop):
    """See the module. `steps` counts the callbacks that ran.

    What asyncio does in each step beside running it, a run of the simulator does hundreds of
    thousands of times: the methods here that schedule are asyncio's, without what no test needs.
    """

    # asyncio's own.
    _ready: deque[asyncio.Handle]
    _debug: bool

    def __init__(self, rng: random.Random) -> None:
        self._now = 0.0
        self._bits = rng.getrandbits
        self._timers: list[_Timer] = []
        self._paused: dict[str, list[asyncio.Handle]] = {}
        self._dead: set[str] = set()
        self._kept: list[_SimTask] = []
        self._numbers = itertools.count()
        self.steps = 0
        self.steps_max = sys.maxsize
        super().__init__(_NoSelector())
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._on_exception)
        self.failures: list[str] = []
        """Errors that nobody caught."""
        if not self._debug:
            self.__dict__.update(get_debug=bool)  # Each handle and future asks; `bool()` is False.

    @override
    def time(self) -> float:
        return self._now

    @contextlib.contextmanager
    def owned(self, owner: str) -> Iterator[None]:
        """What is scheduled inside belongs to `owner`, and all that follows from it."""
        token = OWNER.set(owner)
        try:
            yield
        finally:
            OWNER.reset(token)

    @override
    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """There are no threads here: it is done in a turn of its own."""

        async def run() -> T:
            return func(*args)

        return self.create_task(run())

    def pause(self, owner: str) -> None:
        self._paused.setdefault(owner, [])

    def is_paused(self, owner: str) -> bool:
        return owner in self._paused

    def resume(self, owner: str) -> None:
        self._ready.extend(self._paused.pop(owner, ()))

    def kill(self, owner: str) -> None:
        """No callback of `owner` runs again. A new life needs a new owner name."""
        assert owner
        self._dead.add(owner)
        self._paused.pop(owner, None)

    @override
    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    @override
    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, timer))
        return timer

    @override
    def create_future(self) -> asyncio.Future[Any]:
        future = _SimFuture(loop=self)
        future._number = next(self._numbers)
        return future

    def _make_task(
        self,
        _loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **kwargs: Any,
    ) -> asyncio.Task[T]:
        # Tasks of killed owners stay referenced: collecting one would run its `finally`.
        coroutine = cast(Coroutine[Any, Any, T], coro)
        task = _SimTask(coroutine, number=next(self._numbers), loop=self, **kwargs)
        self._kept.append(task)
        if len(self._kept) > 10_000:
            self._kept = [task for task in self._kept if not task.done()]
        return task

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if OWNER.get() not in self._dead:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            self._advance()
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[1])
        handle = self._draw(ready) if len(ready) > 1 else ready.popleft()
        if handle._cancelled:
            return
        owner: str = handle._context.get(OWNER, "")  # type: ignore[attr-defined]
        if owner in self._dead:
            return
        if owner in self._paused:
            self._paused[owner].append(handle)
            return
        self.steps += 1
        if self.steps > self.steps_max:
            raise LivelockError(f"{self.steps} steps, and it is {self._now:.3f} s")
        handle._run()

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][1]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise DeadlockError(f"nothing can happen any more at {self._now:.3f} s")
        self._now = max(self._now, timers[0][0])

    def discard(self) -> None:
        """End what never ended, paused and killed owners included, without running it further."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in self._kept:
                if not task.done():
                    task._log_destroy_pending = False
                    # A `finally` may wait or fail now; nobody is interested any more.
                    with contextlib.suppress(BaseException):
                        cast(Coroutine[Any, Any, Any], task.get_coro()).close()
            self._kept.clear()
            self._ready.clear()
            self._timers.clear()
            self.close()

    def _draw(self, ready: deque[asyncio.Handle]) -> asyncio.Handle:
        """One of the ready handles, of several; each is as likely as the others."""
        count = len(ready)
        width = count.bit_length()
        index = self._bits(width)
        while index >= count:
            index = self._bits(width)
        if index == 0:
            return ready.popleft()
        handle = ready[index]
        del ready[index]
        return handle


def current() -> SimLoop:
    """The virtual loop that is running."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop), "this needs the virtual loop"
    return loop


def take_failures() -> list[str]:
    """The errors so far that nobody caught; they fail the test no more."""
    loop = current()
    failures, loop.failures = loop.failures, []
    return failures


def run(main: Callable[[SimLoop, random.Random], Coroutine[Any, Any, T]], *, seed: int) -> T:
    """Run `main(loop, rng)` to its end on a loop of its own; returns what it returns."""
    rng = random.Random(seed)
    loop = SimLoop(random.Random(rng.getrandbits(64)))
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main(loop, rng))
    finally:
        asyncio.set_event_loop(None)
        loop.discard()


def run_test(body: Callable[[], Awaitable[None]], *, seed: int = 1) -> None:
    """Run the body of a test, then cancel the tasks that it left behind.

    Raises AssertionError when an error was caught by nobody, and LivelockError
    after too many steps.
    """

    async def main(loop: SimLoop, _rng: random.Random) -> None:
        loop.steps_max = STEPS_MAX
        try:
            await body()
        finally:
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        assert not loop.failures, loop.failures

    run(main, seed=seed)
