"""MetadataLog in a list, for tests and the simulator; stricter than the real ones.

`MemoryLogCluster` is what an etcd cluster would hold; each agent has its own `MemoryLog` on it.
Leases run out by the loop's time. Strict: a repeated append must repeat the same bytes, a number
that leaves a hole is the caller's bug, positions have gaps, a cut strands whoever is catching up
from before it at once, and others run between its slices. Faults (lost answers, stalls) are not
made here: the simulator wraps the adapter.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from coordinator.log.metadata_log import (
    LAST_UNKNOWN,
    SESSIONS_KEPT_MAX,
    EraOverError,
    FirstFailedError,
    LiveSessionsError,
    LogCutError,
    LogEntry,
    LogRefusedError,
    LogReplacedError,
    LogUnavailableError,
    Session,
    SessionLostError,
    SessionState,
    VoidedEntry,
    other_identity,
)
from coordinator.log.voided import check, other_snapshots
from protocol.types import POSITION_ZERO, Incarnation, Position, first_position, position

BATCH_ENTRIES_MAX = 100
"""Entries that `tail` hands out at once."""

CUT_ENTRIES_MAX = 50
"""Entries that a cut deletes at once."""

REVISIONS_PER_ENTRY = 2
"""So that nobody comes to rely on positions without gaps."""


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    expires_s: float
    """In the loop's time."""


class MemoryLogCluster:
    """All sessions and entries of one log, shared by the adapters of several agents."""

    def __init__(self, *, era: int = 1, sessions_kept: int = SESSIONS_KEPT_MAX) -> None:
        self.entries: list[LogEntry] = []
        """Those that were not cut."""
        self.published = b""
        self._older = POSITION_ZERO
        self._cut = POSITION_ZERO
        self._head = POSITION_ZERO
        self._era = era
        self._sessions_kept = sessions_kept
        self._forgotten = 0
        """The newest session whose last number is not kept any more."""
        self._revision = 0
        self._identity: bytes | None = None
        self._leases: dict[int, _Lease] = {}
        self._sessions: dict[int, Incarnation] = {}
        self._last: dict[int, int] = {}
        self._placed: dict[tuple[int, int], LogEntry] = {}
        self._voids: dict[Position, tuple[VoidedEntry, Position]] = {}
        """And where the log tells of it."""
        self._granted = 0
        self._grown = asyncio.Event()

    def identify(self, identity: bytes) -> bytes:
        if self._identity is None:
            self._identity = identity
            self._revision += 1
        return self._identity

    def identity(self) -> bytes:
        return self._identity or b""

    def begin_era(
        self, era: int, identity: bytes, snapshots: bytes, instead_of: bytes, *, now_s: float
    ) -> None:
        if self._identity == identity:
            return
        if self.identity() != instead_of:
            raise other_identity()
        if live := self._live(now_s):
            raise LiveSessionsError(live)
        self._era, self._identity, self._revision = era, identity, max(self._revision, 1)
        self.entries, self.published, self._older = [], bytes(snapshots), POSITION_ZERO
        self._last, self._placed, self._voids = {}, {}, {}
        self._head = self._cut = first_position(era)
        self.wake()

    def _live(self, now_s: float) -> list[Session]:
        return [
            Session(session, incarnation)
            for session, incarnation in self._sessions.items()
            if self.lease_is_alive(session, now_s=now_s)
        ]

    def grant(self, ttl_ms: int, *, now_s: float) -> int:
        assert ttl_ms > 0
        self._granted += 1
        ttl_s = ttl_ms / 1000
        self._leases[self._granted] = _Lease(ttl_s, now_s + ttl_s)
        return self._granted

    def expire(self, session: int) -> None:
        """End a lease now: by `revoke`, by a test, or early as a broken etcd would."""
        if self._leases.pop(session, None) is not None:
            self._revision += 1

    def lease_is_alive(self, session: int, *, now_s: float) -> bool:
        lease = self._leases.get(session)
        if lease is not None and now_s >= lease.expires_s:
            self.expire(session)
            return False
        return lease is not None

    def keep_alive(self, session: int, *, now_s: float) -> None:
        if not self.lease_is_alive(session, now_s=now_s):
            raise SessionLostError(self.last(session))
        lease = self._leases[session]
        lease.expires_s = now_s + lease.ttl_s

    def last(self, session: int) -> int:
        forgotten = session <= self._forgotten and session not in self._leases
        return self._last.get(session, LAST_UNKNOWN if forgotten else -1)

    def open(self, session: int, payload: bytes, *, now_s: float) -> Session:
        if not self.lease_is_alive(session, now_s=now_s):
            raise SessionLostError(self.last(session))
        if session not in self._sessions:
            self._sessions[session] = Incarnation(self._place(session, 0, payload))
        self._repeated(session, 0, payload)
        return Session(session, self._sessions[session])

    def append(self, session: Session, n: int, payload: bytes, *, now_s: float) -> Position:
        if session.incarnation > self._head:
            raise LogReplacedError(f"the log ends at {self._head}, before the session's Open")
        if not self.lease_is_alive(session.id, now_s=now_s):
            raise SessionLostError(self.last(session.id))
        assert self._sessions.get(session.id) == session.incarnation, "not an open session"
        if n <= self._last[session.id]:
            return self._repeated(session.id, n, payload)
        assert n == self._last[session.id] + 1, "an append that would leave a hole"
        return self._place(session.id, n, payload)

    def _repeated(self, session: int, n: int, payload: bytes) -> Position:
        placed = self._placed.get((session, n))
        if placed is None:
            return self._cut
        assert placed.payload == payload, "a repeated append differs"
        return placed.position

    def _place(self, session: int, n: int, payload: bytes) -> Position:
        self._revision += REVISIONS_PER_ENTRY
        entry = LogEntry(position(self._era, self._revision), session, n, bytes(payload))
        self.entries.append(entry)
        self._head = entry.position
        # The session that wrote last stands last.
        self._last.pop(session, None)
        self._last[session] = n
        self._placed[session, n] = entry
        self.wake()
        return entry.position

    def head(self) -> Position:
        return self._head

    def publish(self, session: Session, snapshots: bytes, older: Position, *, now_s: float) -> None:
        self._check_alive(session.id, now_s=now_s)
        if older >= self._older:
            self.published = bytes(snapshots)
            self._older = older

    def cut_slice(self, session: Session, through: Position, *, now_s: float) -> int:
        """Delete the next entries; none are left when the answer is 0."""
        self._check_alive(session.id, now_s=now_s)
        if through > self._older:
            raise LogRefusedError(f"a cut at {through}: the older snapshot is at {self._older}")
        self._cut = max(self._cut, through)
        count = bisect_right(self.entries, self._cut, key=attrgetter("position"))
        count = min(count, CUT_ENTRIES_MAX)
        for entry in self.entries[:count]:
            del self._placed[entry.session, entry.n]
        del self.entries[:count]
        if not count:
            self._forget(now_s)
            self._voids = {at: void for at, void in self._voids.items() if at > self._cut}
        self.wake()
        return count

    def _forget(self, now_s: float) -> None:
        """Keep the last numbers of live sessions, of those with entries, and of so many others."""
        writing = {entry.session for entry in self.entries}
        gone = [
            session
            for session in self._last
            if session not in writing and not self.lease_is_alive(session, now_s=now_s)
        ]
        for session in gone[: max(0, len(gone) - self._sessions_kept)]:
            del self._last[session]
            del self._sessions[session]
            self._forgotten = max(self._forgotten, session)

    def voids(self) -> Sequence[VoidedEntry]:
        return [entry for entry, _ in sorted(self._voids.values())]

    def void(
        self, entry: VoidedEntry, notice: bytes, snapshots: bytes, *, now_s: float
    ) -> Position:
        if (before := self._voids.get(entry.position)) is not None:
            return before[1]
        if live := self._live(now_s):
            raise LiveSessionsError(live)
        check(entry, self._placed.get((entry.session, entry.n)), voids=len(self._voids))
        if snapshots != self.published:
            raise other_snapshots()
        self._granted += 1
        place = self._place(self._granted, 0, notice)
        self._sessions[self._granted] = Incarnation(place)
        self._voids[entry.position] = (entry, place)
        return place

    def _check_alive(self, session: int, *, now_s: float) -> None:
        if not self.lease_is_alive(session, now_s=now_s):
            raise SessionLostError(self.last(session))

    def after(self, place: Position) -> Sequence[LogEntry]:
        """The next entries after a position, at most BATCH_ENTRIES_MAX."""
        if place > self._head:
            raise LogReplacedError(f"the log ends at position {self._head}, before {place}")
        if place < self._cut:
            raise LogCutError(place, self._cut)
        first = bisect_right(self.entries, place, key=attrgetter("position"))
        return self.entries[first : first + BATCH_ENTRIES_MAX]

    def wake(self) -> None:
        """Let all tails look again."""
        self._grown.set()
        self._grown = asyncio.Event()

    async def grown(self) -> None:
        await self._grown.wait()


class MemoryLog:
    """One agent's connection to a `MemoryLogCluster`; see `MetadataLog`."""

    def __init__(self, cluster: MemoryLogCluster) -> None:
        self._cluster = cluster
        self._closed = False
        self._identity = b""
        """That was read or written; empty: none was."""

    async def _arrive(self) -> float:
        """The way to the cluster: others may run meanwhile. Returns the loop's time there."""
        await asyncio.sleep(0)
        if self._closed:
            raise LogUnavailableError("the adapter is closed")
        return asyncio.get_running_loop().time()

    async def identify(self, identity: bytes) -> bytes:
        await self._arrive()
        self._identity = self._cluster.identify(identity)
        return self._identity

    def enter(self, era: int) -> None:
        """A list has one era; whose it is, its identity says."""

    async def identity(self) -> bytes:
        await self._arrive()
        self._identity = self._cluster.identity()
        return self._identity

    async def begin_era(
        self, era: int, identity: bytes, *, snapshots: bytes, instead_of: bytes
    ) -> None:
        now_s = await self._arrive()
        self._cluster.begin_era(era, identity, snapshots, instead_of, now_s=now_s)
        self._identity = identity

    async def grant(self, ttl_ms: int) -> int:
        return self._cluster.grant(ttl_ms, now_s=await self._arrive())

    async def open(self, session: int, payload: bytes) -> Session:
        now_s = await self._arrive()
        if self._identity and self._cluster.identity() != self._identity:
            raise EraOverError
        opened = self._cluster.open(session, payload, now_s=now_s)
        await asyncio.sleep(0)  # The way back: a tail may see the entry before its writer does.
        return opened

    async def keep_alive(self, session: int) -> None:
        self._cluster.keep_alive(session, now_s=await self._arrive())

    async def append(self, session: Session, n: int, payload: bytes) -> Position:
        place = self._cluster.append(session, n, payload, now_s=await self._arrive())
        await asyncio.sleep(0)
        return place

    async def read_session(self, session: int) -> SessionState:
        alive = self._cluster.lease_is_alive(session, now_s=await self._arrive())
        return SessionState(alive, self._cluster.last(session))

    async def revoke(self, session: int) -> None:
        await self._arrive()
        self._cluster.expire(session)

    async def head(self) -> Position:
        await self._arrive()
        head = self._cluster.head()
        await asyncio.sleep(0)
        return head

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        while True:
            await self._arrive()
            if batch := self._cluster.after(after):
                after = batch[-1].position
                yield batch
            else:
                await self._cluster.grown()

    async def snapshots(self) -> bytes:
        await self._arrive()
        return self._cluster.published

    async def publish(self, session: Session, snapshots: bytes, *, older: Position) -> None:
        self._cluster.publish(session, snapshots, older, now_s=await self._arrive())
        await asyncio.sleep(0)

    async def cut(self, session: Session, through: Position) -> int:
        total = 0
        while count := self._cluster.cut_slice(session, through, now_s=await self._arrive()):
            total += count
        return total

    async def voids(self) -> Sequence[VoidedEntry]:
        await self._arrive()
        return self._cluster.voids()

    async def void(self, entry: VoidedEntry, notice: bytes, *, snapshots: bytes) -> Position:
        place = self._cluster.void(entry, notice, snapshots, now_s=await self._arrive())
        await asyncio.sleep(0)
        return place

    async def aclose(self) -> None:
        self._closed = True
        self._cluster.wake()


class LocalMemoryLog(MemoryLog):
    """A `LocalLog`, as that of an embedded agent: it does something else first, in the same instant."""

    async def append_after(
        self, first: Callable[[], None], session: Session, n: int, payload: bytes
    ) -> Position:
        now_s = await self._arrive()
        try:
            first()
        except Exception as error:
            raise FirstFailedError(error) from error
        place = self._cluster.append(session, n, payload, now_s=now_s)
        await asyncio.sleep(0)
        return place
