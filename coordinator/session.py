"""The lifecycle of an agent in the cluster: it gets a session, proves that it lives, notices its loss (P5).

A session is proven for `session_deadline_ms` of the boot-time clock, counted from the *sending*
of the newest renewal that was answered, and likewise from that of the newest linearizable read that found
it alive: a leader of etcd that has lost its followers answers renewals for a while (etcd #15247), but no such
read. The deadline is earlier than the lease's end, so nobody
can have declared it dead while it is proven. It is served only after a barrier taken after it was
got (P12). Its loss shows in three ways: the deadline, the compare of an append, and a periodic
linearizable read. Then a new incarnation is opened, in process.

Whether another agent lives is asked of the log, by reading the session of the next live
incarnation in the order of Opens; who reads that one is gone proposes its Close. No watch is
believed, and no wall clock is read for any of this (P6).

Left out: repeating appends in doubt, which must be settled before a new incarnation begins
(`proposer`).
"""

import asyncio
import logging
from collections.abc import Callable

from coordinator.barrier import Barrier
from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import Close, Entry, Open, Opened, Outcome, Rejected
from coordinator.log.metadata_log import (
    LAST_UNKNOWN,
    LogError,
    LogRefusedError,
    LogUnavailableError,
    MetadataLog,
    Session,
    SessionLostError,
)
from coordinator.machine.machine import Machine
from coordinator.proposer import NotDoneError, Proposer
from coordinator.replica import Applied
from coordinator.settings import FEATURE_LEVEL_MAX, AgentIdentity, LogClientSettings
from coordinator.stats import LogClientStats
from protocol.errors import KafkaError
from protocol.fault_codes import FaultCode, FaultError, Sentence, coded, fault_of
from protocol.types import INCARNATION_NONE, Incarnation

logger = logging.getLogger(__name__)

RETRY_S = 0.2
REFUSED_RETRY_S = 5.0
RENEWALS_PER_TTL = 5
"""One renewal may be late by half the deadline before the session is in doubt."""


class ReplacedError(FaultError):
    """Another process has taken this agent's node name (docs/design/running.md §1)."""

    fault = FaultCode.NODE_NAME_TAKEN


class LifecycleManager:
    """`run` must be going; its owner passes on what the replica applies."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        machine: Machine,
        barrier: Barrier,
        proposer: Proposer,
        identity: AgentIdentity,
        settings: LogClientSettings,
        now_ms: Callable[[], int],
        boot_ms: Callable[[], int],
        stats: LogClientStats,
    ) -> None:
        self._log = log
        self._machine = machine
        self._barrier = barrier
        self._proposer = proposer
        self._identity = identity
        self._settings = settings
        self._now_ms = now_ms
        self._boot_ms = boot_ms
        self._stats = stats
        self._callbacks: list[Callable[[Incarnation | None], None]] = []
        self._own_sessions: list[int] = []
        """All that this process was granted, the newest last."""
        self._opened_once = False
        """The replica has applied an Open of this process."""
        self._open_applied = asyncio.Event()
        """That of the newest session is applied, whatever its outcome."""
        self._open_refusal: Sentence | None = None
        self._session: Session | None = None
        self._opened: Opened | None = None
        self._reached_end = False
        """The log's end was reached since the session was got, or proven again after a lapse."""
        self._behind = asyncio.Event()
        self._lost = asyncio.Event()
        self._replaced = asyncio.Event()
        self._leaving = False
        self._renewed_ms = 0
        """Boot-time ms: when the newest renewal that was answered was sent."""
        self._seen_alive_ms = 0
        """The same of the newest linearizable read, or append, that found the session alive."""
        self._ended_ms = boot_ms()
        self._published: Incarnation | None = None
        proposer.on_lost(self._lost_by_append)

    @property
    def _proven_until_ms(self) -> int:
        return min(self._renewed_ms, self._seen_alive_ms) + self._settings.session_deadline_ms

    def incarnation(self) -> Incarnation | None:
        """The incarnation under which this agent may act at this instant, if any."""
        if not self._reached_end or self._boot_ms() >= self._proven_until_ms:
            return None
        assert self._session is not None
        return self._session.incarnation

    def node_id(self) -> int | None:
        """The number that the log gave to this node's name, as of the newest Open."""
        return None if self._opened is None else self._opened.node_id

    def session_lost_ms(self) -> int:
        """For how long (boot-time ms) there has been no proven session; 0 while there is one."""
        now_ms = self._boot_ms()
        since_ms = self._proven_until_ms if self._reached_end else self._ended_ms
        return max(0, now_ms - since_ms)

    def on_incarnation(self, callback: Callable[[Incarnation | None], None]) -> None:
        """Call whenever `incarnation()` has changed; noticed at the deadline at the latest."""
        self._callbacks.append(callback)

    async def run(self) -> None:
        """Be a member until `leave`. Raises ReplacedError."""
        async with asyncio.TaskGroup() as tasks:
            watches = [
                tasks.create_task(self._watch_deadline()),
                tasks.create_task(self._watch_replaced()),
            ]
            while not self._leaving:
                # In a task of its own, waited for in this way: a task group that ends by an error
                # forgets that its task was cancelled meanwhile, and this one must not.
                await asyncio.wait([tasks.create_task(self._live())])
                self._end()
                # What this incarnation sent must be settled before anything of the next (P3),
                # and if its name was taken by another process meanwhile, there is no next.
                await self._proposer.settled()
                if self._opened_once and not self._leaving:
                    await self._reach_end()
            for watch in watches:
                watch.cancel()

    async def leave(self) -> None:
        """Close the incarnation, if there is one, and end the session. Raises LogError."""
        self._leaving = True
        current = self.incarnation()
        if current is not None:
            try:
                await self._proposer.propose(Close(current, last=0))
            except NotDoneError as error:
                logger.info("the incarnation was over before it was closed: %s", error)
        # Before the lease goes: nobody is told how soon it has gone, and a Close may not be in.
        self._lose()
        if self._own_sessions:
            await self._log.revoke(self._own_sessions[-1])

    def stop(self) -> None:
        """`run` is over: nothing is proven any more."""
        self._lose()

    def applied(self, applied: Applied) -> None:
        """Look for Opens and Closes that concern this agent."""
        for command, outcome in zip(applied.entry.commands, applied.outcomes, strict=True):
            if isinstance(command, Open):
                self._see_open(command, outcome)
            elif isinstance(command, Close):
                self._see_close(command)

    def _see_open(self, command: Open, outcome: Outcome) -> None:
        if command.session in self._own_sessions:
            if isinstance(outcome, Opened):
                self._opened_once = True
                self._opened = outcome
            if command.session == self._own_sessions[-1]:
                self._open_refusal = None
                if isinstance(outcome, Rejected):
                    refusal = KafkaError(outcome.error, outcome.message)
                    self._open_refusal = Sentence(str(refusal), fault_of(refusal))
                self._open_applied.set()
        elif (
            command.node_name == self._identity.node_name
            and isinstance(outcome, Opened)
            and self._opened_once
        ):
            self._replaced.set()
            self._lose()

    def _see_close(self, command: Close) -> None:
        session = self._session
        if session is None or command.incarnation != session.incarnation:
            return
        if self._machine.incarnations.get(session.incarnation) is None:
            self._lose()

    def _lost_by_append(self, session: Session, last: int) -> None:
        logger.warning("an append found the session gone; its newest entry is number %d", last)
        if session == self._session:
            self._lose()

    def _lose(self) -> None:
        """From now on nothing is done under this incarnation; `_live` ends."""
        if self._reached_end:
            self._ended_ms = min(self._boot_ms(), self._proven_until_ms)
        self._reached_end = False
        self._lost.set()
        self._publish()

    def _end(self) -> None:
        self._lose()
        self._proposer.end("the session was lost")
        self._session = None
        self._renewed_ms = self._seen_alive_ms = 0

    def _publish(self) -> None:
        current = self.incarnation()
        if current == self._published:
            return
        self._published = current
        if current is None:
            # Nothing more of this incarnation leaves the agent unless it is proven again.
            self._proposer.refuse_waiting("this agent has no proven session")
        for callback in self._callbacks:
            callback(current)

    async def _live(self) -> None:
        """One incarnation, from its lease to its loss."""
        try:
            await self._hold_session()
        except* SessionLostError as lost:
            if not self._leaving:
                self._stats.sessions_lost += 1
                logger.warning("a new incarnation is needed: %s", lost.exceptions[0])

    async def _hold_session(self) -> None:
        """Ends by SessionLostError, in a group."""
        self._lost.clear()
        self._behind.clear()
        self._open_applied.clear()
        lease = await self._grant()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew(lease))
            tasks.create_task(self._watch_lost())
            session = await self._open(lease)
            await self._open_applied.wait()
            if self._open_refusal is not None:
                await self._give_up(session, self._open_refusal)
            self._session = session
            self._stats.sessions_opened += 1
            self._proposer.begin(session, lambda: self.incarnation() is not None)
            self._behind.set()
            tasks.create_task(self._catch_up())
            tasks.create_task(self._watch_own(session))
            tasks.create_task(self._watch_others(session))

    async def _grant(self) -> int:
        while True:
            sent_ms = self._boot_ms()
            try:
                lease = await self._log.grant(self._settings.lease_ttl_ms)
            except (LogUnavailableError, LogRefusedError) as error:
                await self._pause("get a session", error)
            else:
                self._own_sessions.append(lease)
                self._renewed_ms = sent_ms
                return lease

    async def _open(self, lease: int) -> Session:
        identity = self._identity
        command = Open(
            session=lease,
            node_name=identity.node_name,
            node_id=identity.node_id_wanted,
            zone=identity.zone,
            listeners=identity.listeners,
            software_version=identity.software_version,
            feature_level_max=FEATURE_LEVEL_MAX,
        )
        payload = encode_entry(Entry(INCARNATION_NONE, 0, self._now_ms(), (command,)))
        while True:
            self._seen_alive_ms = self._boot_ms()
            try:
                return await self._log.open(lease, payload)
            except (LogUnavailableError, LogRefusedError) as error:
                await self._pause("open the session", error)

    async def _give_up(self, session: Session, refusal: Sentence) -> None:
        """The machine did not accept the Open: somebody must change something first."""
        text = "the cluster does not accept this agent: %s"
        logger.error(text, refusal, extra=coded(refusal))
        await asyncio.sleep(REFUSED_RETRY_S)
        try:
            await self._log.revoke(session.id)
        except LogError as error:
            logger.info("the session was not ended: %s", error)
        raise SessionLostError(0)

    async def _renew(self, lease: int) -> None:
        every_s = self._settings.lease_ttl_ms / 1000 / RENEWALS_PER_TTL
        loop = asyncio.get_running_loop()
        due_s = loop.time() + every_s
        while True:
            await asyncio.sleep(due_s - loop.time())
            sent_ms = self._boot_ms()
            due_s = loop.time() + every_s
            try:
                await self._log.keep_alive(lease)
            except (LogUnavailableError, LogRefusedError) as error:
                self._stats.keep_alives_failed += 1
                await self._pause("renew the session", error)
                due_s = loop.time()
            else:
                self._stats.keep_alives += 1
                self._look_if_lapsed()
                self._renewed_ms = sent_ms

    def _look_if_lapsed(self) -> None:
        """Before anything is proven anew."""
        if self._reached_end and self._boot_ms() >= self._proven_until_ms:
            # Nobody knows how long the lapse was for the world: reach the log's end again (P12).
            self._ended_ms = self._proven_until_ms
            self._reached_end = False
            self._behind.set()
            self._publish()

    async def _catch_up(self) -> None:
        while True:
            await self._behind.wait()
            self._behind.clear()
            await self._reach_end()
            if not self._behind.is_set() and not self._lost.is_set():
                self._reached_end = True
                self._publish()

    async def _reach_end(self) -> None:
        while True:
            try:
                await self._barrier.wait()
            except LogUnavailableError as error:
                await self._pause("reach the log's end", error)
            else:
                return

    async def _watch_lost(self) -> None:
        await self._lost.wait()
        raise SessionLostError(-1)

    async def _watch_replaced(self) -> None:
        await self._replaced.wait()
        raise ReplacedError(
            f"another agent has taken over the node name {self._identity.node_name!r}"
        )

    async def _watch_deadline(self) -> None:
        """Tell of a lapse when it comes, not when somebody asks."""
        while True:
            self._publish()
            left_ms = self._proven_until_ms - self._boot_ms()
            await asyncio.sleep(left_ms / 1000 if self._reached_end and left_ms > 0 else RETRY_S)

    async def _watch_own(self, session: Session) -> None:
        """Every `session_read_ms`: does our session live?"""
        while True:
            await asyncio.sleep(self._settings.session_read_ms / 1000)
            sent_ms = self._boot_ms()
            try:
                state = await self._log.read_session(session.id)
            except (LogUnavailableError, LogRefusedError) as error:
                logger.info("this agent's session could not be read: %s", error)
                continue
            if not state.alive:
                raise SessionLostError(state.last)
            self._look_if_lapsed()
            self._seen_alive_ms = sent_ms

    async def _watch_others(self, session: Session) -> None:
        """Every `session_read_ms`: does that of the next agent live?"""
        while True:
            await asyncio.sleep(self._settings.session_read_ms / 1000)
            try:
                while self.incarnation() is not None and await self._close_next(session):
                    pass
            except (LogUnavailableError, LogRefusedError) as error:
                logger.info("a session could not be read: %s", error)

    async def _close_next(self, session: Session) -> bool:
        """Close the next live incarnation if its session is gone; was it so?"""
        rows = [(row.incarnation, row.session) for row in self._machine.incarnations]
        others = [row for row in rows if row[0] > session.incarnation]
        others += [row for row in rows if row[0] < session.incarnation]
        if not others:
            return False
        incarnation, other = others[0]
        state = await self._log.read_session(other)
        if state.alive:
            return False
        last, row = state.last, self._machine.incarnations.get(incarnation)
        if last == LAST_UNKNOWN and row is not None:
            # All its entries are behind a cut, so they are applied wherever the log's end was
            # reached; apply compares the number in any case.
            last = row.last_n
        logger.warning("the session of incarnation %d is gone: closing it", incarnation)
        future = self._proposer.propose(Close(incarnation, last))
        await asyncio.wait([future], timeout=self._settings.session_read_ms / 1000)
        if not future.done() or future.exception() is not None:
            return False
        self._stats.others_closed += 1
        # Without this a Close that apply refused would be proposed in a circle.
        return self._machine.incarnations.get(incarnation) is None

    async def _pause(self, what: str, error: LogError) -> None:
        refused = isinstance(error, LogRefusedError)
        logger.log(
            logging.ERROR if refused else logging.INFO,
            "could not %s, trying again: %s",
            what,
            error,
            extra=coded(error),
        )
        await asyncio.sleep(REFUSED_RETRY_S if refused else RETRY_S)
