"""Whose request begins next, of all connections (P15).

What holds:

* One turn of the loop begins requests for `TURN_MS`; it begins `TASKS_PER_TURN` at most of those that
  work as tasks, since these do their work behind it. So nobody waits long for the next turn,
  in which answers are written, and what came back from store and log goes on.
* What does not begin waits in a line, drawn round robin by client address and connection
  (`broker.calls.line`). While there is one nothing begins but from it.
* Produce requests have a line of their own: they may wait for room for their bytes, too, and keep
  nobody else waiting meanwhile. The two lines take turns.

Left out: what a connection may begin by itself (`broker.edge.connection`), long requests, which are cut
into slices besides (`broker.calls.slices`).
"""

from collections.abc import Callable
from typing import Final, Protocol

from broker.calls.line import Line
from broker.calls.shares import Owner
from protocol import apis

TURN_MS: Final = 2
TASKS_PER_TURN: Final = 8
CALLBACKS: Final = frozenset(
    {apis.PRODUCE, apis.FETCH, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE}
)
"""They do their work when they begin."""


class Starter(Protocol):
    """A connection, as far as the beginning of its requests goes."""

    number: int
    owner: Owner
    queued: bool
    """It waits in a line of these."""

    def start_in_turn(self) -> None:
        """Begin the next request, if there still is one that may."""
        ...


class Queued(Protocol):
    """What is told of the lines (`broker.node.EdgeStats`)."""

    queued: int
    queued_since_ms: int


class Starts:
    """The turns of all requests of an agent."""

    def __init__(
        self,
        stats: Queued,
        *,
        boot_ms: Callable[[], int],
        is_full: Callable[[], bool],
        schedule: Callable[[], None],
    ) -> None:
        """`is_full`: there is no room for another Produce request; `schedule`: have `begin_turn`
        and `serve` called in the next turn of the loop."""
        self._stats = stats
        self._boot_ms = boot_ms
        self._is_full = is_full
        self._schedule = schedule
        self._produces: Line[Starter] = Line()
        self._others: Line[Starter] = Line()
        self._until_ms = 0
        """When the time of this turn is up, as far as anybody knows when it began."""
        self._due = False
        """It has no other time: `begin_turn` is to come."""
        self._tasks = 0
        """That began in this turn."""
        self._served: Starter | None = None
        """Whose turn it is."""

    @property
    def waiting(self) -> bool:
        """Whether somebody waits whose request may begin."""
        return bool(self._others) or (bool(self._produces) and not self._is_full())

    # What connections call.

    def admits(self, connection: Starter, api_key: int) -> bool:
        """Whether the next request of the connection begins now; else it waits in the line."""
        line = self._produces if api_key == apis.PRODUCE else self._others
        if connection is self._served:
            self._served = None
        elif line or not self._has_time():
            self._put(line, connection)
            self._schedule()
            return False
        if api_key not in CALLBACKS:
            self._tasks += 1
        return True

    def block(self, connection: Starter) -> None:
        """The next request of the connection is a Produce, and there is no room for it."""
        self._put(self._produces, connection)

    def forget(self, connection: Starter) -> None:
        """The connection is closed."""
        if connection.queued:
            self._leave(connection)
            self._produces.drop(connection.owner, connection.number)
            self._others.drop(connection.owner, connection.number)

    # What the server calls.

    def begin_turn(self, now_ms: int) -> None:
        """A turn of the loop begins."""
        self._until_ms = now_ms + TURN_MS
        self._due = False
        self._tasks = 0

    def serve(self) -> None:
        """Begin what waits, for as long as there is time; one of each line in any case."""
        while self.waiting:
            self._due = True
            if self._others:
                self._serve(self._others.take())
            if self._produces and not self._is_full():
                self._serve(self._produces.take())
            self._due = False
            if self._tasks >= TASKS_PER_TURN or self._boot_ms() >= self._until_ms:
                return

    def _serve(self, connection: Starter) -> None:
        self._leave(connection)
        self._served = connection
        connection.start_in_turn()
        self._served = None

    def _put(self, line: Line[Starter], connection: Starter) -> None:
        assert not connection.queued
        connection.queued = True
        if not self._stats.queued:
            self._stats.queued_since_ms = self._boot_ms()
        self._stats.queued += 1
        line.put(connection.owner, connection.number, connection)

    def _leave(self, connection: Starter) -> None:
        connection.queued = False
        self._stats.queued -= 1

    def _has_time(self) -> bool:
        if self._tasks >= TASKS_PER_TURN:
            return False
        now_ms = self._boot_ms()
        if now_ms >= self._until_ms:
            if self._due:
                return False
            # Nobody says when a turn of the loop begins that only reads. After one that wrote, too,
            # those that are read have this time.
            self.begin_turn(now_ms)
            self._due = True
            self._schedule()
        return True
