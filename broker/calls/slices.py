"""Long requests share the loop: in slices of about two milliseconds, with pauses for other work.

Whose slice comes next is drawn round robin, by the client's address and then by its connection
(`broker.calls.line`), so that long requests of one client slow down nobody else's. (Slices
cost about the same, so turns need no deficit counters.) Short requests take no turns: they run
between slices, and never wait behind a long one.

A long request enters before it is decoded, likewise in turn: what all of them may come to in
memory is bounded (`ELEMENTS_HELD_MAX`). Once the client is gone, the next turn ends the request
(`AbandonedError`).

Invariants: at most one turn is granted and not yet begun; the next one is granted a pause later.
What is cut into slices looks at everything anew behind a pause: the machine moves.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Any, Final, TypeVar

from broker.calls.call import Call
from broker.calls.line import Line
from broker.calls.shares import owner_of

PAUSE_S: Final = 0.001
"""Between two slices. Else threads that write to store and log would wait five milliseconds for the
interpreter each time, and with them whoever is acknowledged; a third of the loop is theirs."""
SLICE_ELEMENTS: Final = 500
"""Of a request or its answer, looked at in one slice."""
ELEMENTS_HELD_MAX: Final = 500_000
"""Of all long requests that have entered. An element takes up to 200 bytes decoded, and about as
much in the answer."""

T = TypeVar("T")


class AbandonedError(Exception):
    """Nobody waits for the answer any more."""


class Slices:
    """Turns of all long requests of an agent."""

    def __init__(self, *, held_max: int = ELEMENTS_HELD_MAX) -> None:
        self._held_max = held_max
        self.held = 0
        """Elements of the requests that have entered."""
        self._line: Line[asyncio.Future[None]] = Line()
        self._granted: asyncio.Future[None] | None = None
        self._due = False
        self._outside: Line[tuple[asyncio.Future[None], int]] = Line()
        self._first: tuple[asyncio.Future[None], int] | None = None
        """Taken out of `_outside`, and waits for room."""

    @property
    def waiting(self) -> int:
        """1 when long requests wait for their slices, else 0."""
        return int(bool(self._line))

    def of(self, call: Call) -> "Turns":
        """The turns of one request; costs nothing while it is short."""
        return Turns(self, call)

    async def turn(self, call: Call) -> None:
        """Wait for the next slice. Raises AbandonedError."""
        mine = asyncio.get_running_loop().create_future()
        self._put(self._line, call, mine)
        self._schedule()
        try:
            await mine
        finally:
            if self._granted is mine:
                self._granted = None
                self._schedule()
        if call.abandoned:
            raise AbandonedError

    @contextlib.asynccontextmanager
    async def enter(self, call: Call, elements: int) -> AsyncIterator["Entered"]:
        """Room for a request that may come to so many elements, and its first slice."""
        entered = Entered(self, elements)
        mine = asyncio.get_running_loop().create_future()
        self._put(self._outside, call, (mine, elements))
        self._admit()
        try:
            await mine
            await self.turn(call)
            yield entered
        finally:
            # Cancelled while it was outside: then it holds nothing.
            if mine.done() and not mine.cancelled():
                entered.settle(0)

    @staticmethod
    def _put(line: Line[T], call: Call, waiter: T) -> None:
        connection = call.connection
        line.put(owner_of(connection.peer), connection.number, waiter)

    def _schedule(self) -> None:
        if self._granted is None and self._line and not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(PAUSE_S, self._grant)

    def _grant(self) -> None:
        self._due = False
        while self._line:
            mine = self._line.take()
            if not mine.done():
                self._granted = mine
                mine.set_result(None)
                return

    def _admit(self) -> None:
        while True:
            if self._first is None:
                if not self._outside:
                    return
                self._first = self._outside.take()
            mine, elements = self._first
            if not mine.done():
                # One alone may always: its API's budget bounds it.
                if self.held and self.held + elements > self._held_max:
                    return
                self.held += elements
                mine.set_result(None)
            self._first = None

    def _release(self, elements: int) -> None:
        self.held -= elements
        assert self.held >= 0
        self._admit()


class Entered:
    """What one request holds of the room for long ones."""

    __slots__ = ("_elements", "_slices")

    def __init__(self, slices: Slices, elements: int) -> None:
        self._slices = slices
        self._elements = elements

    def settle(self, elements: int) -> None:
        """It came to so many, and no more than it was let in for."""
        assert elements <= self._elements
        released = self._elements - elements
        self._elements = elements
        self._slices._release(released)  # noqa: SLF001  # One class in two parts.


class Turns:
    """The work of one request, cut into slices."""

    __slots__ = ("_call", "_left", "_slices")

    def __init__(self, slices: Slices, call: Call) -> None:
        self._slices = slices
        self._call = call
        self._left = SLICE_ELEMENTS

    async def spend(self, elements: int) -> None:
        """So many more were looked at; waits for the next slice when this one is used up."""
        self._left -= elements
        if self._left <= 0:
            await self.next()

    async def next(self) -> None:
        """Wait for the next slice. Raises AbandonedError."""
        await self._slices.turn(self._call)
        self._left = SLICE_ELEMENTS

    async def over(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items, with a wait for the next slice where one is used up."""
        for item in items:
            self._left -= 1
            if self._left <= 0:
                await self.next()
            yield item

    async def run(self, work: Generator[None, None, Any]) -> Any:
        """What `work` returns; it yields where its slice is used up."""
        try:
            while True:
                next(work)
                await self.next()
        except StopIteration as end:
            return end.value
