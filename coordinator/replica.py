"""The tail of the log, driven into the machine, entry by entry (P13).

Invariants: entries are applied in the order of their positions, each once, none left out; the
entries of a session carry its incarnation and their numbers come without a hole. An entry that
cannot be decoded, or that makes `apply` raise, stops the replica for good; it is never skipped.
An unavailable log only makes it wait and tail again from where it is.

Left out: what entries mean (`machine`), and when a position counts as the log's end (`barrier`).
"""

import asyncio
import heapq
import itertools
import logging
import struct
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from coordinator.codec import CodecError, decode_entry
from coordinator.commands import Entry, Outcome, Rejected
from coordinator.machine import Machine
from coordinator.metadata_log import (
    LogEntry,
    LogHoleError,
    LogRefusedError,
    LogUnavailableError,
    MetadataLog,
)
from coordinator.stats import CoordinatorStats
from protocol.types import INCARNATION_NONE, Incarnation, Position

logger = logging.getLogger(__name__)

RETRY_S = 0.2
REFUSED_RETRY_S = 5.0
TURN_S = 0.01
"""Longest time that applying a batch keeps the loop before others may run."""

BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)
"""What a fault in `apply` can raise. Anything else would end the agent just as well."""


class ReplicaStoppedError(Exception):
    """This replica cannot follow the log any further, and must not serve."""


class Applied(NamedTuple):
    """An entry that the machine has just taken in."""

    position: Position
    incarnation: Incarnation
    """Of the writer; of an Open the one that it begins."""
    entry: Entry
    outcomes: tuple[Outcome, ...]
    """One for each command of the entry, in order."""


class _Writer:
    """What the next entry of a session must look like."""

    __slots__ = ("incarnation", "last_n")

    def __init__(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.last_n = 0


class Replica:
    """The machine, kept up with the log. `run` must be going for anything to happen."""

    def __init__(self, log: MetadataLog, machine: Machine, stats: CoordinatorStats) -> None:
        self.machine = machine
        self._log = log
        self._stats = stats
        self._writers: dict[int, _Writer] = {}
        self._callbacks: list[Callable[[Applied], None]] = []
        self._waiting: list[tuple[Position, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()

    def on_applied(self, callback: Callable[[Applied], None]) -> None:
        """Call `callback` synchronously after every entry, in the order of registration."""
        self._callbacks.append(callback)

    def wait_for(self, position: Position) -> asyncio.Future[None]:
        """Done as soon as the machine has reached `position`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if position <= self.machine.position:
            future.set_result(None)
        else:
            heapq.heappush(self._waiting, (position, next(self._tickets), future))
        return future

    async def run(self) -> None:
        """Follow the log for ever. Raises ReplicaStoppedError."""
        hole: Position | None = None
        while True:
            pause_s = RETRY_S
            try:
                async with aclosing(self._log.tail(self.machine.position)) as batches:
                    async for batch in batches:
                        await self._apply_batch(batch)
            except LogUnavailableError as error:
                logger.info("the tail of the log broke off: %s", error)
            except LogRefusedError as error:
                logger.warning("the log refuses to be read: %s", error)
                pause_s = REFUSED_RETRY_S
            except LogHoleError as error:
                # A hole in what was pushed may be the connection's; one in what is read anew is
                # the log's.
                if hole == self.machine.position:
                    raise ReplicaStoppedError(f"entries of the log are missing: {error}") from error
                hole = self.machine.position
                logger.warning("reading the log again: %s", error)
            self._stats.tail_restarts += 1
            await asyncio.sleep(pause_s)

    async def _apply_batch(self, batch: Sequence[LogEntry]) -> None:
        loop = asyncio.get_running_loop()
        turn_s = loop.time()
        for logged in batch:
            self._apply(logged)
            now_s = loop.time()
            if now_s - turn_s > TURN_S:
                self._stats.apply_seconds += now_s - turn_s
                await asyncio.sleep(0)
                turn_s = loop.time()
        self._stats.apply_seconds += loop.time() - turn_s

    def _apply(self, logged: LogEntry) -> None:
        if logged.position <= self.machine.position:
            raise ReplicaStoppedError(
                f"the log gave position {logged.position} after {self.machine.position}"
            )
        entry = self._decode(logged)
        incarnation = self._check_writer(logged, entry)
        try:
            outcomes = self.machine.apply(logged.position, entry)
        except BUGS as error:
            raise ReplicaStoppedError(
                f"the entry at position {logged.position} cannot be applied: {error!r}"
            ) from error
        self._stats.entries_applied += 1
        self._stats.commands_applied += len(outcomes)
        self._stats.commands_rejected += sum(isinstance(each, Rejected) for each in outcomes)
        self._stats.applied_position = logged.position
        self._stats.head_position = max(self._stats.head_position, logged.position)
        applied = Applied(logged.position, incarnation, entry, outcomes)
        for callback in self._callbacks:
            callback(applied)
        self._wake()

    def _decode(self, logged: LogEntry) -> Entry:
        try:
            entry = decode_entry(logged.payload)
        except CodecError as error:
            raise ReplicaStoppedError(
                f"the entry at position {logged.position} cannot be decoded: {error}"
            ) from error
        if entry.n != logged.n:
            raise ReplicaStoppedError(
                f"the entry at position {logged.position} says number {entry.n}"
                f" and lies under number {logged.n}"
            )
        return entry

    def _check_writer(self, logged: LogEntry, entry: Entry) -> Incarnation:
        """The entry's incarnation. Raises LogHoleError when one of its session is missing."""
        writer = self._writers.get(logged.session)
        if logged.n == 0:
            known = writer is None and entry.incarnation == INCARNATION_NONE
            incarnation = Incarnation(logged.position)
            self._writers.setdefault(logged.session, _Writer(incarnation))
        else:
            if writer is None or logged.n > writer.last_n + 1:
                raise LogHoleError(f"session {logged.session:x}: no entry before {logged.n}")
            known = logged.n == writer.last_n + 1 and entry.incarnation == writer.incarnation
            incarnation = writer.incarnation
            writer.last_n = logged.n
        if not known:
            raise ReplicaStoppedError(
                f"the entry at position {logged.position} does not follow those of its session"
            )
        return incarnation

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.machine.position:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)
