"""Commands on their way into the log: one queue, one append in flight, nothing in doubt.

Invariants (P3): entries of an incarnation are appended in order, one at a time; an append without
an answer is repeated, the same bytes under the same number, until the log says that it is in or
that the session is gone, and nothing else is appended before. What belongs to one incarnation is
never appended by another. Nothing is sent first while the session is not proven (P5).

A command's future ends with its outcome when the replica applies its entry, or with NotDoneError
when it is certain that it did not and will not happen (P4). If nobody can tell any more whether an
entry in doubt is in, its futures end with LogUnavailableError.

Over its budget the log takes only what is declared to bound it again, and the rest is not done:
long before etcd's quota is reached and nobody could write anything.

Left out: getting and losing sessions (`session`), and what commands mean (`machine`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from coordinator.commands.codec import (
    ENTRY_BYTES_MAX,
    ENTRY_OVERHEAD_BYTES_MAX,
    CodecError,
    encode_command,
    join_entry,
)
from coordinator.commands.declaration import DECLARATIONS
from coordinator.commands.entries import Close, Command, Outcome, Tick
from coordinator.log.metadata_log import (
    LAST_UNKNOWN,
    FirstFailedError,
    LocalLog,
    LogRefusedError,
    LogUnavailableError,
    MetadataLog,
    Session,
    SessionLostError,
)
from coordinator.own_entries import OwnEntries
from coordinator.replica import Applied
from coordinator.stats import LogClientStats
from protocol.fault_codes import coded
from protocol.types import Incarnation

logger = logging.getLogger(__name__)

COMMANDS_WAITING_MAX = 10_000
COMMAND_BYTES_MAX = ENTRY_BYTES_MAX - ENTRY_OVERHEAD_BYTES_MAX
ENTRIES_PER_SECOND_MAX = 800
"""Of all agents together (docs/design/bounded.md §9); each takes its share."""

REPEAT_FIRST_S = 0.05
REPEAT_MAX_S = 1.0
REFUSED_REPEAT_S = 5.0


class NotDoneError(Exception):
    """The command was not appended and never will be (P4)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InvalidCommandError(NotDoneError):
    """It cannot be written, by any agent at any time: too large, or not to be encoded."""


class FirstNotDoneError(NotDoneError):
    """What was to be done first raised an error, which is the cause of this one."""


class _Proposal(NamedTuple):
    command: Command
    encoded: bytes
    incarnation: Incarnation | None
    future: asyncio.Future[Outcome]
    first: Callable[[], None] | None
    """To be done before, in the log's thread."""


class Proposer:
    """`run` must be going for anything to be appended."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        now_ms: Callable[[], int],
        live_agents: Callable[[], int],
        over_budget: Callable[[], bool],
        tick_ms: int,
        stats: LogClientStats,
        own: OwnEntries,
    ) -> None:
        """`own`: told of each entry before it is appended."""
        assert tick_ms > 0
        self._own = own
        self._log = log
        self._local = log if isinstance(log, LocalLog) else None
        self._now_ms = now_ms
        self._live_agents = live_agents
        self._over_budget = over_budget
        self._told_over = False
        self._tick_s = tick_ms / 1000
        self._stats = stats
        self._session: Session | None = None
        self._may_send: Callable[[], bool] = lambda: False
        self._next_n = 1
        self._waiting: deque[_Proposal] = deque()
        self._sent: dict[tuple[Incarnation, int], list[asyncio.Future[Outcome]]] = {}
        self._work = asyncio.Event()
        """Something waits, or there was nothing for long."""
        self._silent = False
        self._worked_s = 0.0
        """When there was something to do, the last time, in the loop's time."""
        self._watch: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._on_lost: Callable[[Session, int], None] = lambda _session, _last: None

    @property
    def takes_first(self) -> bool:
        """The log's thread can do something before an append."""
        return self._local is not None

    def on_lost(self, callback: Callable[[Session, int], None]) -> None:
        """Call when an append finds the session gone, with its final last number."""
        self._on_lost = callback

    def begin(self, session: Session, may_send: Callable[[], bool]) -> None:
        """Append under `session` from now on, its Open being in; `may_send` is asked each time."""
        assert self._idle.is_set(), "an append of the incarnation before is not settled"
        assert not self._waiting
        self._session = session
        self._next_n = 1
        self._may_send = may_send

    def end(self, reason: str) -> None:
        """The session is gone: what was not sent is not done."""
        self._session = None
        self.refuse_waiting(reason)

    def refuse_waiting(self, reason: str) -> None:
        """What was not sent yet is not done; what was, is settled as ever."""
        refused, self._waiting = self._waiting, deque()
        self._work.clear()
        self._stats.commands_not_done += len(refused)
        for proposal in refused:
            _fail(proposal.future, NotDoneError(reason))

    def propose(
        self,
        command: Command,
        incarnation: Incarnation | None = None,
        *,
        first: Callable[[], None] | None = None,
    ) -> asyncio.Future[Outcome]:
        """Put `command` into the log after all that were proposed before; see `LogClient`."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        encoded, misfit = _encode(command)
        if misfit is not None:
            refusal: NotDoneError = InvalidCommandError(misfit)
        elif self._session is None or not self._may_send():
            refusal = NotDoneError("this agent has no proven session")
        elif incarnation is not None and incarnation != self._session.incarnation:
            refusal = NotDoneError(f"incarnation {incarnation} is over")
        elif len(self._waiting) >= COMMANDS_WAITING_MAX:
            refusal = NotDoneError(f"{COMMANDS_WAITING_MAX} commands are waiting already")
        elif self._over_budget() and not DECLARATIONS[type(command)].bounds_log:
            self._stats.commands_over_budget += 1
            self._tell_budget(over=True)
            refusal = NotDoneError("the log is over its budget until it is cut behind a snapshot")
        else:
            self._tell_budget(over=self._over_budget())
            self._waiting.append(_Proposal(command, encoded, incarnation, future, first))
            self._work.set()
            return future
        self._stats.commands_not_done += 1
        _fail(future, refusal)
        return future

    def _tell_budget(self, *, over: bool) -> None:
        """Once when writes begin to be refused, and once when they are taken again."""
        if over == self._told_over:
            return
        self._told_over = over
        if over:
            logger.warning(
                "the log is over its budget (log.bytes.max): writes are refused until it is cut"
                " behind a snapshot; are the jobs running (frazil job list)?"
            )
        else:
            logger.info("the log is within its budget again")

    def applied(self, applied: Applied) -> None:
        """Give the outcomes of an entry to those who proposed its commands."""
        futures = self._sent.pop((applied.incarnation, applied.entry.n), None)
        if futures is None:
            return
        assert len(futures) == len(applied.outcomes)
        for future, outcome in zip(futures, applied.outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)

    async def settled(self) -> None:
        """Wait until no append is in doubt."""
        await self._idle.wait()

    async def run(self) -> None:
        """Append what is proposed, for ever."""
        loop = asyncio.get_running_loop()
        pace_s = self._worked_s = loop.time()
        self._watch_silence(loop)
        try:
            while True:
                await self._work.wait()
                self._worked_s = loop.time()
                if self._silent:
                    self._tick()
                if pace_s > self._worked_s:
                    await asyncio.sleep(pace_s - self._worked_s)
                session = self._session
                if session is None or not self._may_send():
                    self.refuse_waiting("this agent has no proven session")
                    continue
                pace_s = loop.time() + max(1, self._live_agents()) / ENTRIES_PER_SECOND_MAX
                if proposals := self._take(session.incarnation):
                    await self._append(session, proposals)
        finally:
            assert self._watch is not None
            self._watch.cancel()

    def _watch_silence(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have `run` look when there was nothing to do for as long as a tick; one timer for all."""
        due_s = self._worked_s + self._tick_s
        if loop.time() >= due_s:
            self._silent = True
            self._work.set()
            due_s = loop.time() + self._tick_s
        self._watch = loop.call_at(due_s, self._watch_silence, loop)

    def shut(self) -> None:
        """The agent ends: nothing will be settled any more."""
        self.end("the agent ends")
        unknown = [future for futures in self._sent.values() for future in futures]
        self._sent = {}
        for future in unknown:
            _fail(future, LogUnavailableError("the agent ended before the outcome was known"))

    def _tick(self) -> None:
        """Nothing was said for long: write the clock, and who hears the outcome does not matter."""
        self._silent = False
        if not self._waiting and self._session is not None and self._may_send():
            abandoned = self.propose(Tick())
            assert not abandoned.done()

    def _take(self, incarnation: Incarnation) -> list[_Proposal]:
        """The next entry's worth of proposals, at least one if any wait."""
        taken: list[_Proposal] = []
        total_bytes = 0
        while self._waiting:
            proposal = self._waiting[0]
            if total_bytes + len(proposal.encoded) > COMMAND_BYTES_MAX:
                break
            if proposal.first is not None and any(each.first is not None for each in taken):
                break
            self._waiting.popleft()
            # `end` empties the queue with the incarnation that it was filled under.
            assert proposal.incarnation in (None, incarnation)
            total_bytes += len(proposal.encoded)
            taken.append(proposal)
        if not self._waiting:
            self._work.clear()
        return taken

    async def _append(self, session: Session, proposals: list[_Proposal]) -> None:
        n = self._next_n
        self._next_n += 1
        clock_ms = self._now_ms()
        payload = join_entry(
            incarnation=session.incarnation,
            n=n,
            clock_ms=clock_ms,
            commands=[_numbered(proposal, session, n) for proposal in proposals],
        )
        assert len(payload) <= ENTRY_BYTES_MAX
        self._own.keep(
            session.id,
            payload,
            incarnation=session.incarnation,
            n=n,
            clock_ms=clock_ms,
            commands=tuple([proposal.command for proposal in proposals]),
        )
        self._sent[session.incarnation, n] = [proposal.future for proposal in proposals]
        first = next((each.first for each in proposals if each.first is not None), None)
        self._idle.clear()
        started_s = asyncio.get_running_loop().time()
        try:
            await self._settle(session, n, payload, first)
        except FirstFailedError as failed:
            self._put_back(session, n, proposals, failed.cause)
        finally:
            self._idle.set()
        self._stats.append_seconds_last = asyncio.get_running_loop().time() - started_s
        self._stats.append_seconds += self._stats.append_seconds_last

    async def _settle(
        self, session: Session, n: int, payload: bytes, first: Callable[[], None] | None
    ) -> None:
        """Send entry n until it is in or never will be (P3). Raises FirstFailedError."""
        pause_s = REPEAT_FIRST_S
        while True:
            try:
                if first is None:
                    position = await self._log.append(session, n, payload)
                else:
                    assert self._local is not None
                    position = await self._local.append_after(first, session, n, payload)
            except SessionLostError as lost:
                self._lose(session, lost.last)
                return
            except LogUnavailableError as error:
                text = "entry %d is not known to be in, sending it again: %s"
                logger.info(text, n, error, extra=coded(error))
            except LogRefusedError as error:
                text = "the log refuses entry %d, trying again: %s"
                logger.warning(text, n, error, extra=coded(error))
                pause_s = REFUSED_REPEAT_S
            else:
                self._stats.entries_appended += 1
                self._stats.bytes_appended += len(payload)
                self._stats.head_position = max(self._stats.head_position, position)
                return
            # The replica may have read it meanwhile: that too is an answer.
            if (session.incarnation, n) not in self._sent:
                self._stats.entries_appended += 1
                self._stats.bytes_appended += len(payload)
                return
            self._stats.appends_repeated += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, REPEAT_MAX_S)

    def _put_back(
        self, session: Session, n: int, proposals: list[_Proposal], cause: Exception
    ) -> None:
        """Entry n is not in, for what had to be done first; the others go into the next one."""
        assert self._next_n == n + 1
        self._next_n = n
        del self._sent[session.incarnation, n]
        for proposal in reversed(proposals):
            if proposal.first is not None:
                self._stats.commands_not_done += 1
                refusal = FirstNotDoneError(str(cause))
                refusal.__cause__ = cause
                _fail(proposal.future, refusal)
            elif self._session is session:
                self._waiting.appendleft(proposal)
                self._work.set()
            else:
                self._stats.commands_not_done += 1
                _fail(proposal.future, NotDoneError("the session was lost before"))

    def _lose(self, session: Session, last: int) -> None:
        """The session is gone; entries up to `last` are in and get their outcomes when applied."""
        in_doubt = self._next_n - 1
        for incarnation, n in list(self._sent):
            if incarnation != session.incarnation:
                continue
            if last == LAST_UNKNOWN and n == in_doubt:
                unknown = LogUnavailableError("nobody knows any more whether the entry is in")
                for future in self._sent.pop((incarnation, n)):
                    _fail(future, unknown)
            elif last != LAST_UNKNOWN and n > last:
                for future in self._sent.pop((incarnation, n)):
                    self._stats.commands_not_done += 1
                    _fail(future, NotDoneError("the session was lost before the entry was in"))
        self._on_lost(session, last)


def _encode(command: Command) -> tuple[bytes, str | None]:
    """The command as it stands in an entry, and why it cannot be written, if it cannot."""
    try:
        encoded = encode_command(command)
    except CodecError as error:
        return b"", f"the command cannot be written: {error}"
    if len(encoded) > COMMAND_BYTES_MAX:
        return encoded, f"a command of {len(encoded)} bytes does not fit into an entry"
    return encoded, None


def _numbered(proposal: _Proposal, session: Session, n: int) -> bytes:
    """A Close of oneself names the entry before its own, and only here that number is known."""
    command = proposal.command
    if isinstance(command, Close) and command.incarnation == session.incarnation:
        return encode_command(replace(command, last=n - 1))
    return proposal.encoded


def _fail(future: asyncio.Future[Outcome], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Whoever abandoned the command need not hear of it.
        future.exception()
