"""The tail of the log, driven into the machine, entry by entry (P13).

Invariants: entries are applied in the order of their positions, each once, none left out; the
entries of a session carry its incarnation and their numbers come without a hole. An entry that
cannot be decoded, or that makes `apply` raise, stops the replica for good; it is never skipped, unless
an operator has voided it, for all (`voids`).
An unavailable log only makes it wait and tail again from where it is.

It begins with the newest snapshot, if there is one, and has *started* when it has reached the end
that the log had then. Until then a cut that overtakes it makes it load a newer snapshot, since
nobody has relied on what it says; later it stops. Where a published snapshot has another digest
than this machine had at that position, it stops too: start again, from that snapshot.

Left out: what entries mean (`machine`), how snapshots are found (`snapshot_loading`), and when a
position counts as the log's end (`barrier`).
"""

import asyncio
import heapq
import itertools
import logging
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from coordinator.commands.codec import CodecError, decode_entry
from coordinator.commands.entries import Entry, Outcome, Rejected
from coordinator.commands.job_commands import BeginSnapshot, PublishSnapshot
from coordinator.log.metadata_log import (
    LogCutError,
    LogEntry,
    LogHoleError,
    LogRefusedError,
    LogUnavailableError,
    VoidedEntry,
)
from coordinator.machine.machine import Machine
from coordinator.own_entries import OwnEntries
from coordinator.snapshot.loading import Loader, SnapshotSource, until_answered
from coordinator.stats import LogClientStats
from coordinator.voids import Voids, way_out
from protocol.fault_codes import FaultError, coded
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Incarnation, Position

logger = logging.getLogger(__name__)

RETRY_S = 0.2
REFUSED_RETRY_S = 5.0
TURN_S = 0.01
"""Longest time that applying a batch keeps the loop before others may run."""
PUBLISHED_MAX = 2
WRITERS_MAX = 4_000
"""Sessions that are kept in mind, the live ones always; half of the others go at the bound."""

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


class ReplicaStoppedError(FaultError):
    """This replica cannot follow the log any further, and must not serve."""


class BadEntryError(ReplicaStoppedError):
    """No replica of this release can take in the entry at `position`."""

    def __init__(self, position: Position, reason: str) -> None:
        super().__init__(f"the entry at position {position} {reason}; {way_out(position)}")
        self.position = position
        self.reason = reason


class ReadLog(Protocol):
    """What a replica needs of a log, as `MetadataLog` has it."""

    async def voids(self) -> Sequence[VoidedEntry]: ...

    async def snapshots(self) -> bytes: ...

    async def head(self) -> Position: ...

    def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]: ...


class Applied(NamedTuple):
    """An entry that the machine has just taken in."""

    position: Position
    incarnation: Incarnation
    """Of the writer; of an Open the one that it begins."""
    entry: Entry
    outcomes: tuple[Outcome, ...]
    """One for each command of the entry, in order."""


@dataclass(slots=True)
class _Writer:
    """The number and the position that the next entry of a session must have."""

    incarnation: Incarnation
    last_n: int = 0


class Replica:
    """The machine, kept up with the log. `run` must be going for anything to happen."""

    def __init__(
        self,
        log: ReadLog,
        machine: Machine,
        stats: LogClientStats,
        snapshots: SnapshotSource | None = None,
        *,
        own: OwnEntries | None = None,
    ) -> None:
        """Without `snapshots` it begins at the log's beginning. `own`: what this agent appends."""
        self.machine = machine
        self._own = OwnEntries() if own is None else own
        self._log = log
        self._stats = stats
        self._loader = (
            None if snapshots is None else Loader(log, snapshots, machine=machine, stats=stats)
        )
        self._voids = Voids()
        self._started = asyncio.Event()
        self._start_end: Position | None = None
        """Where it will have started; None: it has, or does not know yet."""
        self._bytes = 0
        """Payloads applied."""
        self._bytes_at: dict[Position, int] = {}
        """How many they were where snapshots were begun."""
        self._bytes_at_older = 0
        self._writers: dict[int, _Writer] = {}
        """By session, in the order in which they were first met."""
        self._unknown_to: int = POSITION_ZERO
        """Incarnations up to this one may be missing in `_writers`, unless they are live."""
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

    @property
    def log_bytes(self) -> int:
        """Payloads applied since the older published snapshot, which the log is cut behind; or
        since this replica began, if that was later."""
        return self._bytes - self._bytes_at_older

    async def started(self) -> None:
        """Wait until the end is reached that the log had when `run` began."""
        await self._started.wait()

    async def run(self) -> None:
        """Follow the log for ever. Raises ReplicaStoppedError and LogReplacedError."""
        await self._read_voids()
        if self._loader is None:
            self._started.set()
        else:
            await self._load(self._loader)
        hole: Position | None = None
        while True:
            pause_s = RETRY_S
            try:
                async with aclosing(self._log.tail(self.machine.position)) as batches:
                    async for batch in batches:
                        await self._apply_batch(batch)
            except LogUnavailableError as error:
                logger.info("the tail of the log broke off: %s", error, extra=coded(error))
            except LogRefusedError as error:
                logger.warning("the log refuses to be read: %s", error, extra=coded(error))
                pause_s = REFUSED_RETRY_S
            except LogCutError as error:
                await self._load_anew(error)
                continue
            except LogHoleError as error:
                # A hole in what was pushed may be the connection's; one in what is read anew is
                # the log's.
                if hole == self.machine.position:
                    raise ReplicaStoppedError(f"entries of the log are missing: {error}") from error
                hole = self.machine.position
                logger.warning("reading the log again: %s", error)
            self._stats.tail_restarts += 1
            await asyncio.sleep(pause_s)

    async def _read_voids(self) -> None:
        """Before the first entry is applied."""
        self._voids = Voids(await until_answered(self._log.voids))

    async def _load(self, loader: Loader) -> None:
        """Begin with a snapshot if there is one, and find out how far the log goes."""
        if await loader.load():
            self._follow_snapshot()
        self._start_end = await until_answered(self._log.head)
        self._look_if_started()

    async def _load_anew(self, cut: LogCutError) -> None:
        if self._loader is None or self._started.is_set():
            raise ReplicaStoppedError(
                f"this agent has fallen behind the log, start it again: {cut}"
            ) from cut
        await self._read_voids()
        if not await self._loader.load() or self.machine.position < cut.cut:
            reasons = "; ".join(self._loader.failures) or "none that is newer is published"
            raise ReplicaStoppedError(
                f"no snapshot leads to the end of the log: {reasons}; {cut}"
            ) from cut
        self._follow_snapshot()
        self._look_if_started()

    def _follow_snapshot(self) -> None:
        """What the machine says of writers is what the next entries have to follow."""
        position = self.machine.position
        self._writers = {
            row.session: _Writer(row.incarnation, row.last_n) for row in self.machine.incarnations
        }
        self._unknown_to = position
        self._bytes = 0
        self._bytes_at_older = 0
        self._bytes_at = {}
        self._stats.applied_position = position
        self._stats.head_position = max(self._stats.head_position, position)
        self._wake()

    def _look_if_started(self) -> None:
        if self._start_end is not None and self.machine.position >= self._start_end:
            self._start_end = None
            self._started.set()

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
        # What is void was there before this agent wrote anything: it is never an entry of its own.
        applied = self._passed_over(logged) if self._voids.covers(logged) else self._taken(logged)
        self._stats.entries_applied += 1
        self._stats.commands_applied += len(applied.outcomes)
        self._stats.commands_rejected += sum(
            isinstance(each, Rejected) for each in applied.outcomes
        )
        self._stats.applied_position = logged.position
        self._stats.head_position = max(self._stats.head_position, logged.position)
        self._count_bytes(logged, applied.entry)
        for callback in self._callbacks:
            callback(applied)
        self._wake()
        if self._start_end is not None:
            self._look_if_started()

    def _taken(self, logged: LogEntry) -> Applied:
        entry = self._decode(logged)
        incarnation = self._check_writer(logged, entry)
        self._compare_digests(logged, entry)
        self._compare_voids(logged, entry)
        try:
            outcomes = self.machine.apply(logged.position, entry)
        except BUGS as error:
            raise BadEntryError(logged.position, f"cannot be applied: {error!r}") from error
        return Applied(logged.position, incarnation, entry, outcomes)

    def _passed_over(self, logged: LogEntry) -> Applied:
        """Nothing that the entry says counts, only where it lies."""
        writer = self._writers.get(logged.session)
        if logged.n == 0:
            writer = _Writer(Incarnation(logged.position))
            self._remember(logged.session, writer)
        elif writer is None and self._unknown_to == POSITION_ZERO:
            raise LogHoleError(f"session {logged.session:x}: no entry before {logged.n}")
        elif writer is not None:
            if logged.n != writer.last_n + 1:
                raise LogHoleError(f"session {logged.session:x}: no entry before {logged.n}")
            writer.last_n = logged.n
        self.machine.void(logged.position, session=logged.session, n=logged.n)
        logger.warning("the entry at position %d is void, and passed over", logged.position)
        incarnation = INCARNATION_NONE if writer is None else writer.incarnation
        return Applied(logged.position, incarnation, Entry(incarnation, logged.n, 0, ()), ())

    def _compare_voids(self, logged: LogEntry, entry: Entry) -> None:
        if logged.n > 0:
            return
        if (command := self._voids.contradicted_by(entry)) is not None:
            raise ReplicaStoppedError(
                f"the entry at position {command.position} was voided, as {logged.position} says, and"
                " this replica had applied it: start again"
            )

    def _compare_digests(self, logged: LogEntry, entry: Entry) -> None:
        """A snapshot that is published is what every machine was at its position (P13)."""
        for command in entry.commands:
            if not isinstance(command, PublishSnapshot):
                continue
            begun = self.machine.snapshots.begun
            if (
                begun is not None
                and begun.position == command.position
                and begun.digest != command.digest
            ):
                published = command.digest.hex()
                if self._voids:  # It may be of a replica that had applied one of them.
                    raise BadEntryError(
                        logged.position,
                        f"publishes a snapshot of {command.position} with the digest {published},"
                        f" and this replica had {begun.digest.hex()}",
                    )
                raise ReplicaStoppedError(
                    f"at position {command.position} this replica had the digest"
                    f" {begun.digest.hex()}, but the snapshot published at {logged.position} has"
                    f" {published}: one of them is wrong; start again from the snapshot"
                )

    def _count_bytes(self, logged: LogEntry, entry: Entry) -> None:
        self._bytes += len(logged.payload)
        for command in entry.commands:
            if isinstance(command, BeginSnapshot):
                begun = self.machine.snapshots.begun
                if begun is not None and begun.position == logged.position:
                    self._bytes_at[logged.position] = self._bytes
            elif isinstance(command, PublishSnapshot):
                self._forget_bytes()
        self._stats.log_bytes = self.log_bytes

    def _forget_bytes(self) -> None:
        """Positions before the older of the two published snapshots count no more."""
        published = self.machine.snapshots.published
        if len(published) < PUBLISHED_MAX:
            return
        older = published[-1].position
        self._bytes_at_older = self._bytes_at.get(older, self._bytes_at_older)
        self._bytes_at = {place: at for place, at in self._bytes_at.items() if place >= older}

    def _decode(self, logged: LogEntry) -> Entry:
        if (own := self._own.take(logged)) is not None:
            return own
        try:
            entry = decode_entry(logged.payload)
        except CodecError as error:
            raise BadEntryError(logged.position, f"cannot be decoded: {error}") from error
        if entry.n != logged.n:
            raise BadEntryError(
                logged.position, f"says number {entry.n} and lies under number {logged.n}"
            )
        return entry

    def _check_writer(self, logged: LogEntry, entry: Entry) -> Incarnation:
        """The entry's incarnation. Raises LogHoleError when one of its session is missing."""
        writer = self._writers.get(logged.session)
        if logged.n == 0:
            known = writer is None and entry.incarnation == INCARNATION_NONE
            incarnation = Incarnation(logged.position)
            self._remember(logged.session, _Writer(incarnation))
        elif writer is None and self._may_be_unknown(entry.incarnation):
            # It is not live, so all its commands are refused, whatever its number.
            known = True
            incarnation = entry.incarnation
            self._remember(logged.session, _Writer(incarnation, logged.n))
        else:
            if writer is None or logged.n > writer.last_n + 1:
                raise LogHoleError(f"session {logged.session:x}: no entry before {logged.n}")
            known = logged.n == writer.last_n + 1 and entry.incarnation == writer.incarnation
            incarnation = writer.incarnation
            writer.last_n = logged.n
        if not known:
            raise BadEntryError(logged.position, "does not follow those of its session")
        return incarnation

    def _may_be_unknown(self, incarnation: Incarnation) -> bool:
        return (
            INCARNATION_NONE < incarnation <= self._unknown_to
            and self.machine.incarnations.get(incarnation) is None
        )

    def _remember(self, session: int, writer: _Writer) -> None:
        self._writers.setdefault(session, writer)
        if len(self._writers) <= WRITERS_MAX:
            return
        live = self.machine.incarnations
        ended = [
            (key, each.incarnation)
            for key, each in self._writers.items()
            if live.get(each.incarnation) is None
        ]
        for key, incarnation in ended[: len(ended) // 2]:
            del self._writers[key]
            self._unknown_to = max(self._unknown_to, incarnation)

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.machine.position:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the error that ended the group; the others in it followed from that one."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
