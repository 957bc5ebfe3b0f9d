"""The object store and the metadata log with faults in front: `FaultyStore` and `FaultyLog`.

A fault is a `Gate`, an async function that gets the arguments of a call. `before[name]` is awaited
before the call takes effect, `after[name]` between its effect and its answer; "*" is for all calls
that have no gate of their own. A gate may wait, and may raise what the port's contract allows:

    agent.log.before["append"] = lost(2)           the next two appends never arrive
    agent.log.after["append"] = lost()             they arrive, and nobody hears of it
    agent.log.after["grant"] = slow(3)             the answer takes three seconds
    agent.log.before["append"] = late(20, 1)       the next one arrives 20 s after its caller gave up
    world.store.before["put_new"] = held(event)    PUTs wait for the event
    world.store.before["delete"] = refused(error)  a definite no
    agent.log.down = True                          nothing answers, the tail included
    agent.log.tail_gate.clear()                    the agent's replica gets nothing new

`Weather` draws faults from a seed, for whole runs.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from coordinator.log.memory import LocalMemoryLog
from coordinator.log.metadata_log import (
    LogEntry,
    LogError,
    LogRefusedError,
    LogUnavailableError,
    MetadataLog,
    Session,
    SessionState,
    VoidedEntry,
)
from protocol.types import Buffer, Position
from storage.stores.object_store import (
    DeleteRefusal,
    LocalStore,
    ObjectInfo,
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from tests.kit.chances import Chances

T = TypeVar("T")
Gate = Callable[..., Awaitable[None]]

FOREVER = 1 << 60
CHANGES = ("put_new", "delete", "grant", "open", "keep_alive", "append", "revoke", "publish", "cut")
"""Calls that change something."""
AGAIN_S_MAX = 3.0
"""Until a tail goes on when its log was away."""
LOST_S = 0.1
"""Until the caller of a lost call hears that there is no answer."""


class NoAnswerError(Exception):
    """Raised by a gate: the caller gets its port's own error for "no answer"."""


class LateError(NoAnswerError):
    """Raised by a gate before a call: the caller gets no answer, and the call takes effect later."""

    def __init__(self, seconds: float, landed: Callable[[], None] | None = None) -> None:
        """`landed` is called when it has taken effect."""
        super().__init__(f"under way for {seconds:g} s more")
        self.seconds, self.landed = seconds, landed


def late(seconds: float, times: int = FOREVER) -> Gate:
    """So many calls get no answer and take effect so much later."""
    left = times

    async def gate(*_arguments: object) -> None:
        nonlocal left
        if left:
            left -= 1
            raise LateError(seconds)

    return gate


def lost(times: int = FOREVER) -> Gate:
    """So many calls get no answer; later ones pass."""
    left = times

    async def gate(*_arguments: object) -> None:
        nonlocal left
        if left:
            left -= 1
            await asyncio.sleep(LOST_S)
            raise NoAnswerError("lost on the way")

    return gate


def slow(seconds: float) -> Gate:
    async def gate(*_arguments: object) -> None:
        await asyncio.sleep(seconds)

    return gate


def held(event: asyncio.Event) -> Gate:
    """Calls wait for the event."""

    async def gate(*_arguments: object) -> None:
        await event.wait()

    return gate


def refused(error: Exception, times: int = FOREVER) -> Gate:
    """So many calls raise this error."""
    left = times

    async def gate(*_arguments: object) -> None:
        nonlocal left
        if left:
            left -= 1
            raise error

    return gate


class _Faulty:
    """Calls of a port, each through its gates."""

    IN_ORDER: ClassVar[frozenset[str]] = frozenset()
    """Calls that take effect in the order in which they are made, also those that are late."""

    def __init__(self, no_answer: type[Exception], *, recording: bool) -> None:
        self.before: dict[str, Gate] = {}
        self.after: dict[str, Gate] = {}
        self.down = False
        """Nothing answers at all."""
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        """Names and arguments, as they are made."""
        self._no_answer = no_answer
        self._recording = recording
        self._due: tuple[asyncio.Event, asyncio.Task[None]] | None = None
        """The late one of those that take effect in order."""

    def called(self, *names: str) -> list[tuple[object, ...]]:
        """The arguments of these calls, one after the other."""
        return [arguments for name, arguments in self.calls if name in names]

    async def _call(
        self, name: str, call: Callable[..., Awaitable[T]], *arguments: object, **named: object
    ) -> T:
        if self._recording:
            self.calls.append((name, arguments))
        try:
            if self.down:
                raise NoAnswerError("it is away")
            try:
                await self._pass(self.before, name, arguments)
            except LateError as under_way:
                await self._catch_up(name)
                at_once = asyncio.Event() if name in self.IN_ORDER else None
                task = _land(functools.partial(call, **named), arguments, under_way, at_once)
                if at_once is not None:
                    self._due = at_once, task
                raise
            await self._catch_up(name)
            result = await call(*arguments, **named)
            await self._pass(self.after, name, arguments)
        except NoAnswerError as error:
            raise self._no_answer(str(error)) from None
        return result

    async def _catch_up(self, name: str) -> None:
        """Whatever has to take effect before a call of this name has."""
        if name in self.IN_ORDER and self._due is not None:
            (at_once, task), self._due = self._due, None
            at_once.set()
            await asyncio.wait([task])

    async def _pass(self, gates: dict[str, Gate], name: str, arguments: tuple[object, ...]) -> None:
        gate = gates.get(name) or gates.get("*")
        if gate is not None:
            await gate(*arguments)


def _land(
    call: Callable[..., Awaitable[object]],
    arguments: tuple[object, ...],
    under_way: LateError,
    at_once: asyncio.Event | None,
) -> asyncio.Task[None]:
    """Make a call later, whatever has become of its caller: nobody hears what comes of it."""
    sent = [_as_sent(each) for each in arguments]

    async def landing() -> None:
        if at_once is None:
            await asyncio.sleep(under_way.seconds)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(at_once.wait(), under_way.seconds)
        with contextlib.suppress(StoreError, LogError):
            await call(*sent)
            if under_way.landed is not None:
                under_way.landed()

    # In a context of its own: a process that was killed takes nothing back that is under way.
    task = asyncio.get_running_loop().create_task(landing(), context=contextvars.Context())
    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)
    return task


def _as_sent(argument: object) -> object:
    """Bytes as they are now: their owner may use the memory again."""
    if not isinstance(argument, list):
        return argument
    return [part if isinstance(part, str) else bytes(part) for part in argument]


_UNDER_WAY: set[asyncio.Task[None]] = set()


def _open() -> None:
    """A gate that lets everything pass."""


class FaultyStore(_Faulty):
    """A `LocalStore` in front of another. `put_now` waits for nothing: its gate is a plain function."""

    def __init__(self, inner: LocalStore, *, recording: bool = True) -> None:
        super().__init__(StoreUnavailableError, recording=recording)
        self.inner = inner
        self.before_now: Callable[[], None] = _open
        self.after_now: Callable[[], None] = _open

    @property
    def puts(self) -> list[str]:
        """The keys of all PUTs so far."""
        return [str(key) for key, *_ in self.called("put_new", "put_now")]

    @property
    def reads(self) -> list[str]:
        """The keys of all reads so far."""
        return [str(key) for key, *_ in self.called("get", "get_range")]

    def lose(self, *keys: str, times: int = FOREVER) -> None:
        """So many reads of these objects find nothing; all others pass."""
        left = dict.fromkeys(keys, times)

        async def gate(key: str, *_range: object) -> None:
            if left.get(key, 0):
                left[key] -= 1
                raise ObjectNotFoundError(key)

        self.before["get"] = self.before["get_range"] = gate

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._call("put_new", self.inner.put_new, key, parts)

    def put_now(self, key: str, parts: Sequence[Buffer]) -> None:
        if self._recording:
            self.calls.append(("put_now", (key, parts)))
        try:
            if self.down:
                raise NoAnswerError("it is away")
            self.before_now()
            self.inner.put_now(key, parts)
            self.after_now()
        except NoAnswerError as error:
            raise StoreUnavailableError(str(error)) from None

    async def get(self, key: str) -> Buffer:
        return await self._call("get", self.inner.get, key)

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        return await self._call("get_range", self.inner.get_range, key, start, length)

    async def list_after(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        return await self._call("list_after", self.inner.list_after, prefix, start_after)

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        return await self._call("delete", self.inner.delete, keys)

    async def aclose(self) -> None:
        """The inner store may be shared with others."""


class FaultyLog(_Faulty):
    """A `MetadataLog` in front of another.

    `before["tail"]` gets each batch before it is handed out; "*" is not for the tail.
    """

    def __init__(self, inner: MetadataLog, *, recording: bool = True) -> None:
        super().__init__(LogUnavailableError, recording=recording)
        self.inner = inner
        self.tail_gate = asyncio.Event()
        self.tail_gate.set()

    async def identify(self, identity: bytes) -> bytes:
        return await self._call("identify", self.inner.identify, identity)

    def enter(self, era: int) -> None:
        self.inner.enter(era)

    async def identity(self) -> bytes:
        return await self._call("identity", self.inner.identity)

    async def begin_era(
        self, era: int, identity: bytes, *, snapshots: bytes, instead_of: bytes
    ) -> None:
        async def call() -> None:
            await self.inner.begin_era(era, identity, snapshots=snapshots, instead_of=instead_of)

        await self._call("begin_era", call)

    async def grant(self, ttl_ms: int) -> int:
        return await self._call("grant", self.inner.grant, ttl_ms)

    async def open(self, session: int, payload: bytes) -> Session:
        return await self._call("open", self.inner.open, session, payload)

    async def keep_alive(self, session: int) -> None:
        await self._call("keep_alive", self.inner.keep_alive, session)

    async def append(self, session: Session, n: int, payload: bytes) -> Position:
        return await self._call("append", self.inner.append, session, n, payload)

    async def read_session(self, session: int) -> SessionState:
        return await self._call("read_session", self.inner.read_session, session)

    async def revoke(self, session: int) -> None:
        await self._call("revoke", self.inner.revoke, session)

    async def head(self) -> Position:
        return await self._call("head", self.inner.head)

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        async for batch in self.inner.tail(after):
            try:
                if (gate := self.before.get("tail")) is not None:
                    await gate(batch)
            except NoAnswerError as error:
                raise LogUnavailableError(str(error)) from None
            await self.tail_gate.wait()
            if self.down:
                raise LogUnavailableError("it is away")
            yield batch

    async def snapshots(self) -> bytes:
        return await self._call("snapshots", self.inner.snapshots)

    async def voids(self) -> Sequence[VoidedEntry]:
        return await self._call("voids", self.inner.voids)

    async def void(self, entry: VoidedEntry, notice: bytes, *, snapshots: bytes) -> Position:
        return await self._call("void", self.inner.void, entry, notice, snapshots=snapshots)

    async def publish(self, session: Session, snapshots: bytes, *, older: Position) -> None:
        await self._call("publish", self.inner.publish, session, snapshots, older=older)

    async def cut(self, session: Session, through: Position) -> int:
        return await self._call("cut", self.inner.cut, session, through)

    async def aclose(self) -> None:
        await self.inner.aclose()


class FaultyLocalLog(FaultyLog):
    """A `LocalLog` in front of another; an append is an append, with or without something first."""

    IN_ORDER = frozenset({"append"})
    inner: LocalMemoryLog

    async def append_after(
        self, first: Callable[[], None], session: Session, n: int, payload: bytes
    ) -> Position:
        append = functools.partial(self.inner.append_after, first)
        return await self._call("append", append, session, n, payload)


def _calls_of(port: type) -> list[str]:
    """Its calls that wait, but for the last."""
    waiting = [name for name, each in vars(port).items() if inspect.iscoroutinefunction(each)]
    return [name for name in waiting if name != "aclose"]


STORE_CALLS, LOG_CALLS = _calls_of(FaultyStore), _calls_of(FaultyLog)


@dataclass
class Weather:
    """How often each fault happens: probabilities per call, seconds at most for delays.

    Which kinds happen at all in a run is drawn first (swarm testing), then how often. Each fault has
    a name, "agent1.log.append.12.lost", and chances of its own (`tests.kit.chances`).
    """

    delay: float = 0.0
    delay_s_max: float = 0.0
    slow_answer: float = 0.0
    """Of calls that take effect in time, and whose answers are as slow as a call may be."""
    fail_before: float = 0.0
    fail_after: float = 0.0
    late: float = 0.0
    """Of calls that change something: they take effect after their caller has given up."""
    late_s_max: float = 0.0
    tail_break: float = 0.0
    tail_delay_s_max: float = 0.0
    stuck: float = 0.0
    """Of new objects: the store takes them at no attempt, and all others meanwhile."""
    refused: float = 0.0
    """Of appends: the log says no, as etcd does that has no space left."""
    away: bool = False
    """Nothing answers at all."""
    away_from: str = ""
    """It is away as soon as something is got whose key begins so; "": not by that."""

    @classmethod
    def drawn(cls, rng: random.Random) -> "Weather":
        def maybe(most: float) -> float:
            return rng.choice((0.0, rng.uniform(0.0, most)))

        return cls(
            delay=maybe(0.5),
            delay_s_max=rng.choice((0.01, 0.3, 3.0)),
            fail_before=maybe(0.2),
            fail_after=maybe(0.2),
            tail_break=maybe(0.05),
            tail_delay_s_max=rng.choice((0.0, 0.05, 1.5)),
            late=maybe(0.1),
            late_s_max=rng.choice((1.0, 10.0, 60.0)),
            slow_answer=maybe(0.2),
            refused=rng.choice((0.0,) * 11 + (0.02,)),
            stuck=rng.choice((0.0,) * 4 + (0.02,)),
        )

    def clear(self) -> None:
        """Fine weather: no fault of any kind."""
        self.delay = self.slow_answer = self.fail_before = self.fail_after = self.late = 0.0
        self.tail_break = self.tail_delay_s_max = self.refused = self.stuck = 0.0
        self.away, self.away_from = False, ""

    def befall(self, port: FaultyStore | FaultyLog, chances: Chances, place: str) -> None:
        """All calls of the port from now on are under this weather; faults are named for the place."""
        names = LOG_CALLS
        if isinstance(port, FaultyStore):
            names = STORE_CALLS
            self._befall_now(port, chances, f"{place}.put_now")
        else:
            port.before["tail"] = self._tail(chances, f"{place}.tail")
        for name in names:
            is_change = name in CHANGES
            port.before[name] = self._before(chances, f"{place}.{name}", is_change=is_change)
            port.after[name] = self._after(chances, f"{place}.{name}")

    def _before(self, chances: Chances, what: str, *, is_change: bool) -> Gate:
        kind = what.rpartition(".")[2]

        async def before(*arguments: object) -> None:
            call = chances.numbered(what)
            if self.away_from and kind == "get" and str(arguments[0]).startswith(self.away_from):
                self.away, self.away_from = True, ""
            if self.away:
                await asyncio.sleep(1.0)
                raise NoAnswerError("away")
            if kind == "put_new" and chances.happens(f"{what}.{arguments[0]}.stuck", self.stuck):
                await asyncio.sleep(1.0)
                raise NoAnswerError("this object is not taken")
            if chances.happens(name := f"{call}.slow", self.delay):
                await asyncio.sleep(chances.stream(name).uniform(0, self.delay_s_max))
            if chances.happens(f"{call}.failed", self.fail_before):
                raise NoAnswerError("failed before it took effect")
            if kind == "append" and chances.happens(f"{call}.refused", self.refused):
                raise LogRefusedError("there is no space left")
            if is_change and chances.happens(name := f"{call}.late", self.late):
                await asyncio.sleep(LOST_S)
                seconds = chances.stream(name).uniform(0, self.late_s_max)
                raise LateError(seconds, functools.partial(chances.note, f"late {kind}"))

        return before

    def _after(self, chances: Chances, what: str) -> Gate:
        async def after(*_arguments: object) -> None:
            answer = chances.numbered(f"{what}.answer")
            if chances.happens(name := f"{answer}.slow", self.slow_answer):
                await asyncio.sleep(chances.stream(name).uniform(0, self.delay_s_max))
            if self.away or chances.happens(f"{answer}.lost", self.fail_after):
                raise NoAnswerError("took effect, but the answer was lost")

        return after

    def _tail(self, chances: Chances, what: str) -> Gate:
        async def tail(*_arguments: object) -> None:
            batch = chances.numbered(what)
            # All that lag are one fault: few would notice one of them.
            if self.tail_delay_s_max and chances.allows(f"{what}.lags"):
                delays = chances.stream(f"{batch}.lags")
                await asyncio.sleep(delays.uniform(0, self.tail_delay_s_max))
            if self.away:
                while self.away:
                    await asyncio.sleep(0.5)
                # Calls are answered again before a watch that broke off is there again.
                await asyncio.sleep(chances.stream(f"{batch}.again").uniform(0, AGAIN_S_MAX))
            if chances.happens(f"{batch}.broke", self.tail_break):
                raise NoAnswerError("the tail broke")

        return tail

    def _befall_now(self, store: FaultyStore, chances: Chances, what: str) -> None:
        """Those that wait for nothing."""

        def before() -> None:
            name = f"{chances.numbered(what)}.failed"
            if self.away or chances.happens(name, self.fail_before):
                raise NoAnswerError("failed before it took effect")

        def after() -> None:
            name = f"{chances.numbered(f'{what}.answer')}.lost"
            if chances.happens(name, self.fail_after):
                raise NoAnswerError("took effect, and then failed")

        store.before_now = before
        store.after_now = after
