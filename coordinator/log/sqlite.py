"""MetadataLog in one SQLite file, for a single agent (`frazil dev` needs nothing but Python).

One process at a time holds the file, by a lock beside it; so sessions live in memory, and those
of an earlier process are gone. WAL with synchronous=FULL: what was answered survives a power cut.
All work is done by one thread; whatever waited during a commit shares the next one, so that many
appends cost one fsync.

A cut deletes rows; their pages are used again, so the file grows to what a cut leaves and no
further. It strands at once who reads from before it. Of a session whose entries are cut, what is
still needed stays in `newest`.

Left out: several agents, and giving pages back to the file system.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from coordinator.log.metadata_log import (
    LAST_UNKNOWN,
    SESSIONS_KEPT_MAX,
    FirstFailedError,
    LogCutError,
    LogEntry,
    LogError,
    LogHoleError,
    LogRefusedError,
    LogReplacedError,
    LogUnavailableError,
    Session,
    SessionLostError,
    SessionState,
    VoidedEntry,
)
from coordinator.log.sqlite_era import read_identity, write_era
from coordinator.log.sqlite_file import SqliteFile, fault_of_sqlite, is_damage
from coordinator.log.sqlite_queries import check_nobody_lives, head_of, last_of
from coordinator.log.voided import check, decode_void, encode_void, other_snapshots
from protocol.types import (
    POSITION_ZERO,
    Incarnation,
    Position,
    first_position,
    position,
    revision_of,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

CALL_S_MAX = 5.0
JOBS_PER_COMMIT_MAX = 1024
BATCH_ENTRIES_MAX = 1000
FEED_ENTRIES_MAX = 10_000
"""A tail that is further behind reads the file again."""

CUT_ENTRIES_MAX = 1000
"""Entries that a cut deletes in one transaction."""


@dataclass(slots=True)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    """Runs in the thread, inside a transaction. Raises LogError, or sqlite3.Error."""
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    expires_s: float
    """In the loop's time."""


@dataclass(slots=True)
class _Feed:
    """What was committed since a tail began to read."""

    entries: deque[LogEntry] = field(default_factory=deque)
    overflowed: bool = False
    grown: asyncio.Event = field(default_factory=asyncio.Event)


class _Calls:
    """Calls that wait for the thread, and one timer for all: none of them is unanswered for longer than
    CALL_S_MAX."""

    def __init__(self, late: str) -> None:
        self._late = late
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        """When each has to be answered, in the loop's time; the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, future: asyncio.Future[Any], loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting
        while waiting and waiting[0][1].done():
            waiting.popleft()
        waiting.append((loop.time() + CALL_S_MAX, future))
        if self._timer is None:
            self._timer = loop.call_later(CALL_S_MAX, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        waiting = self._waiting
        now_s = loop.time()
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now_s):
            _, future = waiting.popleft()
            if not future.done():
                future.set_exception(LogUnavailableError(self._late))
        if waiting:
            self._timer = loop.call_at(waiting[0][0], self._look, loop)

    def close(self) -> None:
        """No calls come any more; those that wait are answered when the thread ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Worker:
    """The thread: takes jobs, runs all that wait in one transaction, tells the loop."""

    def __init__(self, path: Path, committed: Callable[[list[LogEntry] | None], None]) -> None:
        """`committed` is told the entries of each commit; None: nobody knows which of them are in."""
        self._database = SqliteFile(path)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._committed = committed
        self._thread = threading.Thread(target=self._run, name="frazil-log", daemon=True)
        self._thread.start()
        self.appended: list[LogEntry] = []
        """By the jobs of the transaction under way; they add to it."""
        self._in_doubt = False
        """The newest transaction may be in, or not."""
        self.newest: dict[int, int] = {}
        """By session: the number of its newest entry, of the newest session that appended. Nobody else
        writes into the file; what was not committed is forgotten."""

    def submit(self, job: _Job | None) -> None:
        self._jobs.put(job)

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while True:
            first = self._jobs.get()
            jobs = [] if first is None else [first]
            last = first is None
            while not last and len(jobs) < JOBS_PER_COMMIT_MAX:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                last = job is None
                jobs += [] if job is None else [job]
            if jobs:
                results = self._commit(jobs)
                self._deliver(jobs, results, None if self._in_doubt else self.appended)
            if last:
                self._database.close()
                return

    def _commit(self, jobs: Sequence[_Job]) -> list[Any]:
        """For each job what it returned, or its LogError."""
        self.appended = []
        self._in_doubt = False
        results: list[Any] = []
        try:
            connection = self._database.connection()
        except (LogRefusedError, LogReplacedError) as error:
            return [error] * len(jobs)
        try:
            connection.execute("BEGIN")
            for job in jobs:
                try:
                    results.append(job.work(connection))
                except LogError as error:
                    results.append(error)
            self._database.check_alone(connection)
            connection.execute("COMMIT")
            self._database.check()
            payload_bytes = sum([len(entry.payload) for entry in self.appended])
            self._database.checkpoint(connection, payload_bytes)
        except LogReplacedError as replaced:
            self._forget_appended()
            return [replaced] * len(jobs)
        except sqlite3.Error as error:
            self._forget_appended()
            self._in_doubt = True
            # Whatever state the connection was left in goes with it.
            try:
                self._database.forget_connection()
            except LogReplacedError as replaced:
                return [replaced] * len(jobs)
            if is_damage(error):
                return [LogRefusedError(f"the log is damaged: {error}")] * len(jobs)
            sentence = f"the log could not be written: {error}"
            return [LogUnavailableError(sentence, fault=fault_of_sqlite(error))] * len(jobs)
        return results

    def _forget_appended(self) -> None:
        self.appended = []
        self.newest = {}

    def _deliver(
        self, jobs: Sequence[_Job], results: Sequence[Any], entries: list[LogEntry] | None
    ) -> None:
        def deliver() -> None:
            self._committed(entries)
            for job, result in zip(jobs, results, strict=True):
                if job.future.done():
                    continue
                if isinstance(result, LogError):
                    job.future.set_exception(result)
                else:
                    job.future.set_result(result)

        try:
            jobs[0].loop.call_soon_threadsafe(deliver)
        except RuntimeError:
            logger.info("the loop was closed while the log was at work")


class SqliteLog:
    """See `MetadataLog`. The file is opened, and the thread started, by the first call."""

    def __init__(self, path: Path, *, era: int = 1, sessions_kept: int = SESSIONS_KEPT_MAX) -> None:
        self._path = path
        self._era = era
        self._sessions_kept = sessions_kept
        self._worker: _Worker | None = None
        self._closed = False
        self._leases: dict[int, _Lease] = {}
        self._feeds: list[_Feed] = []
        self._calls = _Calls(f"the log {path} did not answer within {CALL_S_MAX:g} s")

    async def identify(self, identity: bytes) -> bytes:
        def work(connection: sqlite3.Connection) -> bytes:
            connection.execute("INSERT OR IGNORE INTO identity VALUES (1, ?)", (identity,))
            (value,) = connection.execute("SELECT value FROM identity").fetchone()
            return bytes(value)

        return await self._call(work)

    def enter(self, era: int) -> None:
        self._era = era

    async def identity(self) -> bytes:
        return await self._call(read_identity)

    async def begin_era(
        self, era: int, identity: bytes, *, snapshots: bytes, instead_of: bytes
    ) -> None:
        first = revision_of(first_position(era))
        leases = self._live_leases()

        def work(connection: sqlite3.Connection) -> None:
            check_nobody_lives(connection, self._era, leases)
            write_era(connection, identity, snapshots=snapshots, instead_of=instead_of, first=first)

        # It takes as long as the log is large. Nobody else uses it, and who gave up would repeat it for nothing.
        await self._call(work, is_bounded=False)
        self.enter(era)

    async def grant(self, ttl_ms: int) -> int:
        assert ttl_ms > 0

        def work(connection: sqlite3.Connection) -> int:
            session = connection.execute("INSERT INTO granted DEFAULT VALUES").lastrowid
            assert session is not None
            connection.execute("DELETE FROM granted WHERE session < ?", (session,))
            return session

        session = await self._call(work)
        ttl_s = ttl_ms / 1000
        self._leases[session] = _Lease(ttl_s, asyncio.get_running_loop().time() + ttl_s)
        return session

    async def open(self, session: int, payload: bytes) -> Session:
        if not self._is_alive(session):
            raise SessionLostError(await self._last(session))
        place = await self._call(lambda connection: self._insert(connection, session, 0, payload))
        return Session(session, Incarnation(place))

    async def keep_alive(self, session: int) -> None:
        if not self._is_alive(session):
            raise SessionLostError(await self._last(session))
        lease = self._leases[session]
        lease.expires_s = asyncio.get_running_loop().time() + lease.ttl_s

    async def append(self, session: Session, n: int, payload: bytes) -> Position:
        # Appends that were accepted before are ahead of its read in the queue.
        await self._check_alive(session)
        return await self._call(lambda connection: self._insert(connection, session.id, n, payload))

    async def append_after(
        self, first: Callable[[], None], session: Session, n: int, payload: bytes
    ) -> Position:
        await self._check_alive(session)

        def work(connection: sqlite3.Connection) -> Position:
            try:
                first()
            except Exception as error:
                raise FirstFailedError(error) from error
            return self._insert(connection, session.id, n, payload)

        return await self._call(work)

    async def read_session(self, session: int) -> SessionState:
        alive = self._is_alive(session)
        last = await self._last(session)
        return SessionState(alive, -1 if alive and last == LAST_UNKNOWN else last)

    async def revoke(self, session: int) -> None:
        self._leases.pop(session, None)

    async def head(self) -> Position:
        def work(connection: sqlite3.Connection) -> Position:
            head = head_of(connection)
            return position(self._era, head) if head else POSITION_ZERO

        return await self._call(work)

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        feed = _Feed()
        self._feeds.append(feed)
        try:
            while True:
                # What is committed from here on is in the feed too.
                rows = await self._rows(after)
                if rows:
                    after = rows[-1].position
                    yield rows
                if len(rows) == BATCH_ENTRIES_MAX:
                    continue
                while not feed.overflowed:
                    if self._closed:
                        raise LogUnavailableError("the log is closed")
                    batch = [entry for entry in feed.entries if entry.position > after]
                    feed.entries.clear()
                    feed.grown.clear()
                    if batch:
                        after = batch[-1].position
                        yield batch
                    else:
                        await feed.grown.wait()
                feed.overflowed = False
        finally:
            self._feeds.remove(feed)

    async def snapshots(self) -> bytes:
        def work(connection: sqlite3.Connection) -> bytes:
            (snapshots,) = connection.execute("SELECT snapshots FROM bound").fetchone()
            return bytes(snapshots)

        return await self._call(work)

    async def publish(self, session: Session, snapshots: bytes, *, older: Position) -> None:
        await self._check_alive(session)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE bound SET snapshots = ?, older = ? WHERE older <= ?",
                (snapshots, revision_of(older), revision_of(older)),
            )

        await self._call(work)

    async def cut(self, session: Session, through: Position) -> int:
        total = 0
        while True:
            await self._check_alive(session)
            count = await self._call(lambda connection: self._cut_slice(connection, through))
            if not count:
                return total
            total += count

    async def voids(self) -> Sequence[VoidedEntry]:
        def work(connection: sqlite3.Connection) -> list[VoidedEntry]:
            rows = connection.execute("SELECT value FROM void ORDER BY revision")
            return [decode_void(value) for (value,) in rows]

        return await self._call(work)

    async def void(self, entry: VoidedEntry, notice: bytes, *, snapshots: bytes) -> Position:
        leases = self._live_leases()

        def work(connection: sqlite3.Connection) -> Position:
            return self._void(connection, entry, notice, snapshots=snapshots, leases=leases)

        return await self._call(work)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._calls.close()
        for feed in self._feeds:
            feed.grown.set()
        if self._worker is not None:
            self._worker.submit(None)
            await asyncio.to_thread(self._worker.join)

    async def _call(self, work: Callable[[sqlite3.Connection], T], *, is_bounded: bool = True) -> T:
        """The result of `work` once it is committed."""
        if self._closed:
            raise LogUnavailableError("the log is closed")
        if self._worker is None:
            self._worker = _Worker(self._path, self._publish)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if is_bounded:
            self._calls.add(future, loop)
        self._worker.submit(_Job(work, loop, future))
        return await future

    def _is_alive(self, session: int) -> bool:
        lease = self._leases.get(session)
        if lease is not None and asyncio.get_running_loop().time() >= lease.expires_s:
            del self._leases[session]
            return False
        return lease is not None

    def _live_leases(self) -> list[int]:
        return [session for session in tuple(self._leases) if self._is_alive(session)]

    def _publish(self, entries: list[LogEntry] | None) -> None:
        for feed in self._feeds if entries != [] else ():
            if entries is None or len(feed.entries) + len(entries) > FEED_ENTRIES_MAX:
                feed.entries.clear()
                feed.overflowed = True
            else:
                feed.entries.extend(entries)
            feed.grown.set()

    def _insert(
        self, connection: sqlite3.Connection, session: int, n: int, payload: bytes
    ) -> Position:
        worker = self._worker
        assert worker is not None
        if worker.newest.get(session) != n - 1:
            # The newest one is not known, or an append is repeated.
            found = connection.execute(
                "SELECT revision FROM entry WHERE session = ? AND n = ?", (session, n)
            ).fetchone()
            if found is not None:
                return position(self._era, found[0])
            last = last_of(connection, session)
            if last >= n:
                return self._place_of_cut(connection, session, n)
            if last != n - 1:
                raise LogRefusedError(f"entry {n} of session {session} cannot follow entry {last}")
        revision = connection.execute(
            "INSERT INTO entry (session, n, payload) VALUES (?, ?, ?)", (session, n, payload)
        ).lastrowid
        assert revision is not None
        place = position(self._era, revision)
        worker.appended.append(LogEntry(place, session, n, bytes(payload)))
        worker.newest = {session: n}
        return place

    def _place_of_cut(self, connection: sqlite3.Connection, session: int, n: int) -> Position:
        """What is told of an entry that was in before, and is cut."""
        (opened,) = connection.execute(
            "SELECT opened FROM newest WHERE session = ?", (session,)
        ).fetchone()
        (cut,) = connection.execute("SELECT cut FROM bound").fetchone()
        return position(self._era, cut if n else opened)

    def _cut_slice(self, connection: sqlite3.Connection, through: Position) -> int:
        """Delete the next entries; none are left when the answer is 0."""
        older, cut = connection.execute("SELECT older, cut FROM bound").fetchone()
        if revision_of(through) > older:
            raise LogRefusedError(
                f"a cut at revision {revision_of(through)}: the older snapshot is at {older}"
            )
        cut = max(cut, revision_of(through))
        connection.execute("UPDATE bound SET cut = ?", (cut,))
        (end,) = connection.execute(
            "SELECT max(revision) FROM"
            " (SELECT revision FROM entry WHERE revision <= ? ORDER BY revision LIMIT ?)",
            (cut, CUT_ENTRIES_MAX),
        ).fetchone()
        if end is None:
            self._forget(connection)
            connection.execute("DELETE FROM void WHERE revision <= ?", (cut,))
            return 0
        connection.execute(
            "INSERT INTO newest SELECT session, max(n), min(revision) FROM entry"
            " WHERE revision <= ? GROUP BY session"
            " ON CONFLICT (session) DO UPDATE SET n = excluded.n",
            (end,),
        )
        return connection.execute("DELETE FROM entry WHERE revision <= ?", (end,)).rowcount

    def _forget(self, connection: sqlite3.Connection) -> None:
        """Keep the newest numbers of live sessions, of those with entries, of so many others."""
        rows = connection.execute(
            "SELECT session FROM newest WHERE session NOT IN (SELECT session FROM entry)"
            " ORDER BY session DESC"
        )
        gone = [session for (session,) in rows if session not in self._leases]
        forgotten = gone[self._sessions_kept :]
        if forgotten:
            connection.executemany(
                "DELETE FROM newest WHERE session = ?", [(session,) for session in forgotten]
            )
            connection.execute("UPDATE bound SET forgotten = max(forgotten, ?)", (forgotten[0],))

    def _void(
        self,
        connection: sqlite3.Connection,
        entry: VoidedEntry,
        notice: bytes,
        *,
        snapshots: bytes,
        leases: Sequence[int],
    ) -> Position:
        """`leases`: those that live; a session was opened under some of them."""
        revision = revision_of(entry.position)
        before = connection.execute("SELECT notice FROM void WHERE revision = ?", (revision,))
        if (found := before.fetchone()) is not None:
            return position(self._era, found[0])
        check_nobody_lives(connection, self._era, leases)
        row = connection.execute(
            "SELECT session, n, payload FROM entry WHERE revision = ?", (revision,)
        ).fetchone()
        (voids,) = connection.execute("SELECT count(*) FROM void").fetchone()
        check(entry, None if row is None else LogEntry(entry.position, *row), voids=voids)
        (published,) = connection.execute("SELECT snapshots FROM bound").fetchone()
        if published != snapshots:
            raise other_snapshots()
        session = connection.execute("INSERT INTO granted DEFAULT VALUES").lastrowid
        assert session is not None
        place = self._insert(connection, session, 0, notice)
        connection.execute(
            "INSERT INTO void VALUES (?, ?, ?)", (revision, revision_of(place), encode_void(entry))
        )
        return place

    async def _check_alive(self, session: Session) -> None:
        if not self._is_alive(session.id):
            raise SessionLostError(await self._last(session.id))

    async def _last(self, session: int) -> int:
        return await self._call(lambda connection: last_of(connection, session))

    async def _rows(self, after: Position) -> list[LogEntry]:
        def work(connection: sqlite3.Connection) -> list[LogEntry]:
            (cut,) = connection.execute("SELECT cut FROM bound").fetchone()
            if revision_of(after) < cut:
                raise LogCutError(after, position(self._era, cut))
            head = head_of(connection)
            if revision_of(after) > head:
                raise LogReplacedError(
                    f"the log ends at revision {head}, before {revision_of(after)}"
                )
            rows = connection.execute(
                "SELECT revision, session, n, payload FROM entry WHERE revision > ?"
                " ORDER BY revision LIMIT ?",
                (revision_of(after), BATCH_ENTRIES_MAX),
            )
            found = [
                LogEntry(position(self._era, revision), session, n, bytes(payload))
                for revision, session, n, payload in rows
            ]
            # Revisions follow one another, up to the newest.
            end = revision_of(after) + len(found)
            last = revision_of(found[-1].position) if found else end
            if last != end or (end < head and len(found) < BATCH_ENTRIES_MAX):
                raise LogHoleError(
                    f"{self._path} goes up to revision {head}, and lacks entries behind"
                    f" {revision_of(after)}: was a copy put back beside a newer file"
                    f" {self._path.name}-wal? They belong together"
                )
            return found

        return await self._call(work)
