"""An event loop on virtual time that runs one ready callback at a time, drawn by a seed.

Waiting costs nothing: when nothing is ready the clock jumps to the next timer. When there is no
timer either, nothing can ever happen again, and `DeadlockError` says so at once.

Every callback belongs to an owner, inherited with the context in which it was scheduled
(`owned`). An owner can be paused, as SIGSTOP does (its callbacks wait), and killed, as SIGKILL
does: its callbacks never run again, no `finally` included.

The order of `call_soon` is deliberately not kept, since code that relies on it relies on the
scheduler. A byte stream keeps its own order (see `network`).
"""

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import random
import selectors
import warnings
from collections import deque
from collections.abc import Iterator

OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")
"""Whose code is running; "" is the simulator itself."""


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: what is waited for can never come."""


class _NoSelector(selectors.BaseSelector):
    """Nothing outside the process exists here."""

    def __init__(self):
        self._keys = {}

    def register(self, fileobj, events, data=None):
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[id(fileobj)] = key
        return key

    def unregister(self, fileobj):
        return self._keys.pop(id(fileobj))

    def select(self, timeout=None):
        return []

    def get_map(self):
        return {key.fileobj: key for key in self._keys.values()}

    def get_key(self, fileobj):
        # asyncio asks before it registers; KeyError is its "not yet".
        return self._keys[id(fileobj)]


class _SimTask(asyncio.Task):
    """Task groups and `asyncio.wait` keep tasks in sets and walk them; an address, which is
    another in each process, must not say in which order."""

    def __init__(self, coro, *, number: int, **kwargs) -> None:
        self._number = number
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _SimFuture(asyncio.Future):
    """As _SimTask."""

    def __init__(self, *, number: int, loop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.SelectorEventLoop):
    """See the module. `steps` counts the callbacks that ran; `trace` is a rolling hash of them."""

    def __init__(self, rng: random.Random) -> None:
        self._now = 0.0
        self._rng = rng
        self._paused: dict[str, list] = {}
        self._dead: set[str] = set()
        self._kept: list[asyncio.Task] = []
        self._numbers = itertools.count()
        self.steps = 0
        super().__init__(_NoSelector())
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._on_exception)
        self.failures: list[str] = []

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

    def pause(self, owner: str) -> None:
        self._paused.setdefault(owner, [])

    def resume(self, owner: str) -> None:
        self._ready.extend(self._paused.pop(owner, ()))

    def kill(self, owner: str) -> None:
        """No callback of `owner` runs again. A new life needs a new owner name."""
        assert owner
        self._dead.add(owner)
        self._paused.pop(owner, None)

    def create_future(self) -> asyncio.Future:
        return _SimFuture(number=next(self._numbers), loop=self)

    def _make_task(self, loop, coro, **kwargs):
        # Tasks of killed owners stay referenced: collecting one would run its `finally`.
        task = _SimTask(coro, number=next(self._numbers), loop=loop, **kwargs)
        self._kept.append(task)
        if len(self._kept) > 10_000:
            self._kept = [task for task in self._kept if not task.done()]
        return task

    def _on_exception(self, loop, context) -> None:
        if OWNER.get() not in self._dead:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _run_once(self) -> None:
        ready = self._ready
        if not ready:
            self._advance()
        while self._scheduled and self._scheduled[0]._when <= self._now:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            ready.append(handle)
        handle = self._draw(ready)
        if handle._cancelled:
            return
        owner = handle._context.get(OWNER, "")
        if owner in self._dead:
            return
        if owner in self._paused:
            self._paused[owner].append(handle)
            return
        self.steps += 1
        handle._run()

    def _advance(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
            self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)
        if not self._scheduled:
            raise DeadlockError(f"nothing can happen any more at {self._now:.3f} s")
        self._now = max(self._now, self._scheduled[0]._when)

    def bury(self) -> None:
        """End what never ended, paused and killed owners included, without running it further."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in self._kept:
                if not task.done():
                    task._log_destroy_pending = False
                    # A `finally` may wait or fail now; nobody is interested any more.
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()
            self._kept.clear()
            self._ready.clear()
            self._scheduled.clear()
            self.close()

    def _draw(self, ready: deque):
        """One of the ready handles; mostly near the front, so that nobody starves."""
        index = self._rng.randrange(len(ready)) if len(ready) > 1 else 0
        ready.rotate(-index)
        handle = ready.popleft()
        ready.rotate(index)
        return handle


def run(main, *, seed: int):
    """Run `main(loop, rng)` to its end on a loop of its own; returns what it returns."""
    rng = random.Random(seed)
    loop = SimLoop(random.Random(rng.getrandbits(64)))
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main(loop, rng))
    finally:
        asyncio.set_event_loop(None)
        loop.bury()
