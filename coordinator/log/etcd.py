"""MetadataLog on etcd: the keys and transactions of docs/design/log-and-sessions.md §2, §4.

    <prefix>/<cluster>/identity              whose log this is
    <prefix>/<cluster>/<era>/log/<cell>/<lease>/<n>   one entry, leaseless
    <prefix>/<cluster>/<era>/last/<cell>/<lease>      n of the session's newest entry
    <prefix>/<cluster>/<era>/head/<cell>     rewritten by every append: its revision is the head
    <prefix>/<cluster>/<era>/session/<lease> the Open entry, under the agent's lease
    <prefix>/<cluster>/<era>/snapshot        what was published, and how far the log may be cut
    <prefix>/<cluster>/<era>/cut/<cell>      how far it is cut (`etcd_cut`)
    <prefix>/<cluster>/<era>/void/<cell>/<revision>   an entry that is voided (`etcd_void`)

A position is the revision of the transaction that put the entry. An append compares the session's
create revision and `last`, so it takes effect at most once and only while the session lives; a
session key is never created twice, so once it is gone `last` is final.

Catching up never reads etcd's history: the sessions' entries are paged through at one revision
and merged, then a watch goes on from there. So compaction by anybody strands nobody, and a
reader that comes back pays for what is new only. How far the log is cut is read at that same
revision, and written before anything is deleted: what lies behind the cut is whole there.
"""

import contextlib
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd_client import CompactedError, EtcdClient, LeaseNotFoundError
from coordinator.log.etcd_cut import CutState, EtcdCutter, Written, first_after, read_written
from coordinator.log.etcd_era import read_identity, write_era
from coordinator.log.etcd_keys import Keys, created_at, end_of, equals, get, number, only, put
from coordinator.log.etcd_void import NOTICE_TTL_MS, read_voids, write_void
from coordinator.log.metadata_log import (
    LAST_UNKNOWN,
    SESSIONS_KEPT_MAX,
    EraOverError,
    LogCutError,
    LogEntry,
    LogHoleError,
    LogRefusedError,
    LogReplacedError,
    LogUnavailableError,
    Session,
    SessionLostError,
    SessionState,
    VoidedEntry,
)
from protocol.types import (
    POSITION_ZERO,
    Incarnation,
    Position,
    era_of,
    first_position,
    position,
    revision_of,
)

BATCH_ENTRIES_MAX = 500
PAGE_ENTRIES_MAX = 128
PAGE_ENTRIES_MIN = 8
BUFFERED_ENTRIES_MAX = 4096
"""Entries held while merging, of all sessions together, unless there are very many sessions."""


class EtcdLog:
    """See `MetadataLog`. Owns its client."""

    def __init__(
        self,
        client: EtcdClient,
        *,
        prefix: str,
        cluster: str,
        era: int = 1,
        compact: bool = True,
        sessions_kept: int = SESSIONS_KEPT_MAX,
    ) -> None:
        """`compact`: a cut also compacts etcd's history (of all that is in that etcd)."""
        self._client = client
        self._prefix = prefix
        self._cluster = cluster
        self._compact = compact
        self._sessions_kept = sessions_kept
        self._identity = b""
        """That was read or written: no session opens in a log that says another one. Empty: none was."""
        self.enter(era)

    def enter(self, era: int) -> None:
        self._era = era
        self._keys = Keys.of(prefix=self._prefix, cluster=self._cluster, era=era)
        self._cutter = EtcdCutter(
            self._client, self._keys, compact=self._compact, sessions_kept=self._sessions_kept
        )

    async def identity(self) -> bytes:
        self._identity = await read_identity(self._client, self._keys)
        return self._identity

    async def begin_era(
        self, era: int, identity: bytes, *, snapshots: bytes, instead_of: bytes
    ) -> None:
        beginning = Keys.of(prefix=self._prefix, cluster=self._cluster, era=era)
        await write_era(
            self._client,
            (self._keys, beginning),
            (self._era, era),
            identity,
            snapshots=snapshots,
            instead_of=instead_of,
            first=revision_of(first_position(era)),
        )
        self._identity = identity
        self.enter(era)

    async def identify(self, identity: bytes) -> bytes:
        # A full etcd answers reads, but no transaction that might put.
        if written := await self.identity():
            return written
        key = self._keys.identity
        response = await self._client.txn(
            pb.TxnRequest(
                compare=[created_at(key, 0)], success=[put(key, identity)], failure=[get(key)]
            )
        )
        written = (
            identity if response.succeeded else response.responses[0].response_range.kvs[0].value
        )
        self._identity = written
        return written

    async def grant(self, ttl_ms: int) -> int:
        assert ttl_ms > 0
        return await self._client.grant(-(-ttl_ms // 1000))

    async def open(self, session: int, payload: bytes) -> Session:
        session_key, last_key = self._keys.session(session), self._keys.last(session)
        compare = [created_at(session_key, 0), created_at(last_key, 0)]
        if self._identity:
            compare.append(equals(self._keys.identity, self._identity))
        request = pb.TxnRequest(
            compare=compare,
            success=[put(session_key, payload, lease=session), *self._puts(session, 0, payload)],
            failure=[get(session_key), get(last_key)],
        )
        try:
            response = await self._client.txn(request)
        except LeaseNotFoundError:
            # With the lease gone this open cannot take effect later: what is read now is final.
            raise SessionLostError((await self._read_final(session)).last) from None
        if response.succeeded:
            return Session(session, Incarnation(self._position(response.header.revision)))
        opened, last = only(response.responses[0]), only(response.responses[1])
        if opened is None and last is None:
            raise EraOverError
        if opened is None:
            raise SessionLostError(number(last))
        return Session(session, Incarnation(self._position(opened.create_revision)))

    async def keep_alive(self, session: int) -> None:
        try:
            await self._client.keep_alive(session)
        except LeaseNotFoundError:
            state = await self.read_session(session)
            if state.alive:
                raise LogUnavailableError("etcd's answers about the lease differ") from None
            raise SessionLostError(state.last) from None

    async def append(self, session: Session, n: int, payload: bytes) -> Position:
        assert n > 0
        session_key, last_key = self._keys.session(session.id), self._keys.last(session.id)
        request = pb.TxnRequest(
            compare=[
                created_at(session_key, revision_of(Position(session.incarnation))),
                equals(last_key, b"%d" % (n - 1)),
            ],
            success=self._puts(session.id, n, payload),
            failure=[
                get(session_key),
                get(last_key),
                get(self._keys.entry(session.id, n)),
                get(self._keys.cut),
            ],
        )
        response = await self._client.txn(request)
        if response.succeeded:
            return self._position(response.header.revision)
        alive, last, entry, cut = (only(each) for each in response.responses)
        if alive is None:
            # It was open once, so without a number nothing can be said of entry n (P4).
            raise SessionLostError(number(last, absent=LAST_UNKNOWN))
        if entry is None and number(last) >= n:
            return self._position(CutState.of(cut).through)
        if entry is None:
            raise LogRefusedError(
                f"entry {n} of session {session.id:x} cannot follow entry {number(last)}"
            )
        return self._position(entry.mod_revision)

    async def read_session(self, session: int) -> SessionState:
        state = await self._read(session)
        if state.alive or state.last >= 0:
            return state
        if await self._client.time_to_live(session) >= 0:
            return SessionState(alive=True, last=-1)
        # It may have been opened, and lost, between the two reads.
        return await self._read_final(session)

    async def revoke(self, session: int) -> None:
        try:
            await self._client.revoke(session)
        except LeaseNotFoundError:
            return

    async def head(self) -> Position:
        response = await self._client.range(pb.RangeRequest(key=self._keys.head))
        if response.kvs:
            return self._position(response.kvs[0].mod_revision)
        # Nothing was appended yet. An era after the first begins behind a snapshot (`begin_era`).
        cut = await self._client.range(pb.RangeRequest(key=self._keys.cut))
        return self._position(CutState.of(cut.kvs[0]).through) if cut.kvs else POSITION_ZERO

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        assert after == 0 or era_of(after) == self._era
        # Of a backup that was restored the revision may be ahead (`--bump-revision`), the head not.
        if (head := await self.head()) < after:
            raise LogReplacedError(
                f"the log ends at revision {revision_of(head)}, before {revision_of(after)}: etcd was"
                " restored from a backup, or replaced"
            )
        read_to = revision_of(after)
        # etcd answers no request for progress before a watch's first revision has come, so the
        # watch begins at one that has: the last of those read, whose entry is left out.
        overlap = 1
        while True:
            try:
                revision, cut, written = await read_written(self._client, self._keys)
                if read_to < cut:
                    raise LogCutError(self._position(read_to), self._position(cut))
                async with aclosing(self._merged(written, read_to, revision)) as batches:
                    async for batch in batches:
                        yield batch
                        read_to = revision_of(batch[-1].position)
                read_to = revision
                numbers = {each.session: each.last for each in written}
                watch = self._followed(numbers, revision, start=revision + 1 - overlap)
                async with aclosing(watch) as batches:
                    async for batch in batches:
                        yield batch
                        read_to = revision_of(batch[-1].position)
            except CompactedError:
                # Somebody has compacted beyond what we read: read on at a newer revision. (At the
                # newest one, perhaps: it can be read, but a watch can only begin after it.)
                overlap = 0

    async def snapshots(self) -> bytes:
        return await self._cutter.snapshots()

    async def publish(self, session: Session, snapshots: bytes, *, older: Position) -> None:
        await self._cutter.publish(session, snapshots, older=revision_of(older))

    async def cut(self, session: Session, through: Position) -> int:
        return await self._cutter.cut(session, revision_of(through))

    async def voids(self) -> Sequence[VoidedEntry]:
        return await read_voids(self._client, self._keys)

    async def void(self, entry: VoidedEntry, notice: bytes, *, snapshots: bytes) -> Position:
        lease = await self.grant(NOTICE_TTL_MS)
        puts = self._puts(lease, 0, notice)
        writing = write_void(self._client, self._keys, entry, puts, snapshots=snapshots)
        try:
            return self._position(await writing)
        finally:
            with contextlib.suppress(LogUnavailableError, LogRefusedError):
                await self.revoke(lease)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _merged(
        self, written: Sequence[Written], read_to: int, revision: int
    ) -> AsyncGenerator[Sequence[LogEntry], None]:
        """Entries after `read_to`, as of `revision`, of all sessions in one order."""
        news = [each for each in written if each.revision > read_to]
        page = BUFFERED_ENTRIES_MAX // max(1, len(news))
        page = max(PAGE_ENTRIES_MIN, min(PAGE_ENTRIES_MAX, page))
        heap: list[tuple[Position, int, LogEntry]] = []
        cursors: dict[int, _Cursor] = {}
        for each in news:
            first = 0
            if read_to:
                first = await first_after(
                    self._client,
                    self._keys,
                    each.session,
                    read_to,
                    numbers=range(each.last),
                    revision=revision,
                )
            cursor = _Cursor(
                self,
                session=each.session,
                first=first,
                last=each.last,
                revision=revision,
                limit=page,
            )
            cursors[each.session] = cursor
            entry = await cursor.next()
            assert entry is not None
            heapq.heappush(heap, (entry.position, entry.session, entry))
        batch: list[LogEntry] = []
        while heap:
            entry = heap[0][2]
            batch.append(entry)
            following = await cursors[entry.session].next()
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (following.position, following.session, following))
            if len(batch) == BATCH_ENTRIES_MAX or not heap:
                yield batch
                batch = []

    async def page(
        self, session: int, *, first: int, last: int, limit: int, revision: int
    ) -> list[LogEntry]:
        """Entries `first` to `last` of a session, at most `limit`. Raises LogHoleError."""
        response = await self._client.range(
            pb.RangeRequest(
                key=self._keys.entry(session, first),
                range_end=self._keys.entry(session, last) + b"\0",
                limit=limit,
                revision=revision,
            )
        )
        entries = [self._entry(each) for each in response.kvs]
        expected = [(session, first + index) for index in range(len(entries))]
        if not entries or [(entry.session, entry.n) for entry in entries] != expected:
            raise LogHoleError(f"session {session:x}: an entry from {first} on is missing")
        return entries

    async def _followed(
        self, numbers: dict[int, int], revision: int, *, start: int
    ) -> AsyncGenerator[Sequence[LogEntry], None]:
        """What is put after `revision`; `numbers`: newest of each session then."""
        watch = self._client.watch(
            key=self._keys.log_prefix,
            range_end=end_of(self._keys.log_prefix),
            start_revision=start,
        )
        async with aclosing(watch) as puts:
            async for pairs in puts:
                entries = [self._entry(pair) for pair in pairs if pair.mod_revision > revision]
                for entry in entries:
                    expected = numbers.get(entry.session, -1) + 1
                    if entry.n != expected:
                        raise LogHoleError(
                            f"session {entry.session:x}: entry {entry.n} came, not {expected}"
                        )
                    numbers[entry.session] = entry.n
                if entries:
                    yield entries

    async def _read(self, session: int) -> SessionState:
        """Session and last in one linearizable transaction."""
        response = await self._client.txn(
            pb.TxnRequest(success=[get(self._keys.session(session)), get(self._keys.last(session))])
        )
        alive, last = (only(each) for each in response.responses)
        return SessionState(alive is not None, number(last))

    async def _read_final(self, session: int) -> SessionState:
        """The same; the lease is gone."""
        keys = [self._keys.session(session), self._keys.last(session), self._keys.cut]
        response = await self._client.txn(pb.TxnRequest(success=[get(key) for key in keys]))
        alive, last, cut = (only(each) for each in response.responses)
        absent = LAST_UNKNOWN if CutState.of(cut).forgotten else -1
        return SessionState(alive is not None, number(last, absent=absent))

    def _puts(self, session: int, n: int, payload: bytes) -> list[pb.RequestOp]:
        return [
            put(self._keys.entry(session, n), payload),
            put(self._keys.last(session), b"%d" % n),
            put(self._keys.head, b"%016x/%d" % (session, n)),
        ]

    def _position(self, revision: int) -> Position:
        return position(self._era, revision)

    def _entry(self, pair: pb.KeyValue) -> LogEntry:
        session, n = pair.key[len(self._keys.log_prefix) :].split(b"/")
        place = self._position(pair.mod_revision)
        return LogEntry(place, int(session, 16), int(n, 16), pair.value)


@dataclass(slots=True)
class _Cursor:
    """The entries of one session, page by page."""

    log: EtcdLog
    session: int
    first: int
    """Number of the first that was not read yet."""
    last: int
    revision: int
    limit: int
    page: deque[LogEntry] = field(default_factory=deque)

    async def next(self) -> LogEntry | None:
        if not self.page and self.first <= self.last:
            entries = await self.log.page(
                self.session,
                first=self.first,
                last=self.last,
                limit=self.limit,
                revision=self.revision,
            )
            self.page.extend(entries)
            self.first = entries[-1].n + 1
        return self.page.popleft() if self.page else None
