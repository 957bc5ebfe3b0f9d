"""The log reaches the object store: what the worker's replica has applied is put there, entry by entry.

An etcd that is lost takes with it what came after the newest snapshot, and an EndTransaction is nowhere
else. So whoever holds the job of snapshots puts archives (`storage.formats.log_archive`) behind the
snapshot that its replica began with, each of which begins where the one before ended. What a predecessor has
archived is not written again, if the newest archive that leads on from the snapshot has the digest that this
machine had there; else all is written again.

Nothing waits for it: a store that is away is asked for ever, and what waits then is bounded
(`archive_backlog`). When to put is there, too.

Left out: who reads archives (`frazil recover`), and who deletes them (the collection).
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol, TypeVar

from broker.jobs.worker.archive_backlog import Backlog, Batch, Digests, newest_of_chain
from coordinator.commands.declaration import DECLARATIONS
from coordinator.commands.job_commands import JobKind
from coordinator.log.metadata_log import (
    LogCutError,
    LogEntry,
    LogHoleError,
    LogRefusedError,
    LogUnavailableError,
    VoidedEntry,
)
from coordinator.machine.machine import Machine
from coordinator.replica import BUGS, Applied
from coordinator.voids import Voids
from protocol import fault_codes
from protocol.types import POSITION_ZERO, Buffer, Incarnation, Position
from storage.formats.log_archive import (
    FOLDER,
    ArchivedEntry,
    ArchiveFormatError,
    LogArchive,
    archive_key,
    decode_archive,
    encode_archive,
    range_of,
)
from storage.stores.counted import CountedStore, StoreCalls
from storage.stores.object_store import (
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY: Final = RetryPolicy(longest_s=10.0)
"""Nobody waits for it, and a store in trouble need not hear of it."""
LOG_RETRY_S: Final = 1.0
AGE_S: Final = 1.0
"""How often is told how far the archive is behind."""
BUG_PAUSE_S: Final = 60.0


class ArchiveLog(Protocol):
    """Where entries are read again; the worker's link is one."""

    def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        """As `MetadataLog.tail`."""
        ...


@dataclass(slots=True)
class ArchiveStats(StoreCalls):
    """Of one worker; with what it asked of the store."""

    position: Position = POSITION_ZERO
    """The log is in the store to here: the snapshot that the worker began with, or a newer archive."""
    behind_s: float = 0.0
    """Since the oldest entry was applied that is not archived; 0: there is none."""
    objects: int = 0
    failures: int = 0
    """Calls on the store that were made again, and objects that it had another one for."""


class Archiver:
    """Hears what the replica reads and applies; `run` must be going for anything to be put."""

    def __init__(
        self,
        log: ArchiveLog,
        *,
        machine: Machine,
        store: ObjectStore,
        cluster_id: str,
        incarnation: Incarnation,
        every_ms: int,
        stats: ArchiveStats,
    ) -> None:
        """`every_ms` 0: nothing is archived."""
        self._log = log
        self._machine = machine
        self._store: ObjectStore = CountedStore(store, stats)
        self._cluster_id = cluster_id
        self._incarnation = incarnation
        self._every_s = every_ms / 1000
        self._stats = stats
        self._backlog = Backlog()
        self._voids = Voids()
        self._coming: deque[LogEntry] = deque()
        """What the replica has read and not applied yet."""
        self._digests: Digests | None = Digests()
        """None: nobody will ask what is archived already."""
        self._after = POSITION_ZERO
        """Where the replica began."""
        self._look_now = asyncio.Event()
        self._is_idle = False
        """Nothing waits."""
        self._last: Position | None = None
        """What was applied up to here is put without waiting for more: the agent leaves."""
        self._is_through = asyncio.Event()
        self._put_s = -math.inf
        self._is_told = False
        """That the store does not take archives."""

    # What the replica does.

    def voids_read(self, voids: Sequence[VoidedEntry]) -> None:
        """The entries that it passes over."""
        self._voids = Voids(voids)

    def tail_begun(self, after: Position) -> None:
        """It reads from there on: it goes on, or has loaded a snapshot."""
        self._coming.clear()
        if after != self._backlog.newest:
            self._backlog.begin(after)
            self._after = self._stats.position = after
            self._digests = Digests()

    def read(self, batch: Sequence[LogEntry]) -> None:
        """It applies these next, in order."""
        if self._every_s:
            self._coming.extend(batch)

    def applied(self, applied: Applied) -> None:
        """It has applied an entry; the machine is at its position."""
        if not self._every_s:
            return
        logged = self._coming.popleft()
        assert logged.position == applied.position
        changes = any(
            DECLARATIONS[type(command)].changes_state for command in applied.entry.commands
        )
        digest = self._machine.digest()
        now_s = asyncio.get_running_loop().time()
        self._backlog.add(self._archived(logged), digest, changes=changes, now_s=now_s)
        if self._digests is not None:
            self._digests.add(logged.position, digest)
        if changes or self._is_idle:
            self._is_idle = False
            self._look_now.set()

    def _archived(self, logged: LogEntry) -> ArchivedEntry:
        place, session, n, payload = logged
        return ArchivedEntry(place, session, n, self._voids.covers(logged), payload)

    # What is put.

    async def run(self) -> None:
        """Archive, for ever, once the replica has started; whatever fails is tried again."""
        if not self._every_s:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_age(), name="age of the archive")
            while True:
                try:
                    await self._archive()
                except BUGS:
                    self._stats.failures += 1
                    logger.exception("archiving the log failed by a bug")
                    await asyncio.sleep(BUG_PAUSE_S)

    async def _archive(self) -> NoReturn:
        while True:
            if not self._is_held():
                await asyncio.sleep(AGE_S)
                continue
            if self._digests is not None:
                await self._find_archived(self._digests)
                # What comes later is no other's, or no harm when it is there twice.
                self._digests = None
            await self._look()

    async def archived_through(self, last: Position) -> None:
        """Put all up to `last`, which was applied, without waiting for its turn; `run` must be going.

        Waits for ever while the job is another agent's."""
        if not self._every_s:
            return
        self._last = last
        self._look_now.set()
        await self._is_through.wait()

    def _is_held(self) -> bool:
        return self._machine.jobs.get(JobKind.SNAPSHOT).holder == self._incarnation

    async def _tell_age(self) -> None:
        while True:
            self._stats.behind_s = self._backlog.age_s(_now_s()) if self._is_held() else 0.0
            await asyncio.sleep(AGE_S)

    async def _look(self) -> None:
        """Put what is due, or wait for it."""
        self._look_now.clear()
        due_s = self._backlog.due_s(put_s=self._put_s, every_s=self._every_s)
        if self._last is not None:
            if self._backlog.begins_after(self._last):
                self._is_through.set()
            else:
                due_s = -math.inf
        if due_s > _now_s():
            self._is_idle = due_s == math.inf
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if self._is_idle else due_s):
                    await self._look_now.wait()
            return
        self._put_s = _now_s()
        last = self._backlog.newest
        while (batch := self._backlog.next(last)) is not None:
            if not await self._put(batch):
                self._last = None  # Only with what comes will it have another name.
                return

    async def _put(self, batch: Batch) -> bool:
        """Whether it is there."""
        entries = batch.entries if batch.entries is not None else await self._read_again(batch)
        if not entries:
            self._backlog.done(batch)
            return True
        archive = LogArchive(
            self._cluster_id, batch.after, batch.last, batch.digest, tuple(entries)
        )
        key, data = archive_key(batch.after, batch.last), encode_archive(archive)
        try:
            await self._until_answered(lambda: self._store.put_new(key, [data]))
        except ObjectExistsError:
            if await self._digest_in(key) != batch.digest:
                self._stats.failures += 1
                logger.error(  # noqa: TRY400 - A sentence.
                    "%s is an archive of another log, and stays beside that of this one", key
                )
                self._backlog.reach_further(batch)
                return False
        self._stats.objects += 1
        self._stats.position = batch.last
        self._backlog.done(batch)
        return True

    async def _until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Raises ObjectExistsError and ObjectNotFoundError."""
        passing = (StoreUnavailableError, StoreRefusedError)
        answer = await until_done(call, RETRY, tell=self._tell, passing=passing)
        if self._is_told:
            self._is_told = False
            logger.info("the log is being archived again")
        return answer

    def _tell(self, error: Exception, _failures: int) -> None:
        self._stats.failures += 1
        if not self._is_told:
            self._is_told = True
            text = "the log is not archived, and it is tried again until it is: %s"
            logger.warning(text, error, extra=fault_codes.coded(error))

    # What there is.

    async def _find_archived(self, digests: Digests) -> None:
        """Leave out what another worker has archived."""
        ranges = await self._ranges()
        found = newest_of_chain(self._after, ranges, until=self._backlog.newest)
        if found is None:
            return
        _, last = found
        key, digest = archive_key(*found), digests.at(last)
        if digest is None or digest != await self._digest_in(key):
            text = "%s is not of this log: what follows upon position %d is archived again"
            logger.warning(text, key, self._after)
            return
        self._backlog.archived_to(last)
        self._stats.position = last

    async def _ranges(self) -> list[tuple[Position, Position]]:
        """Of all archives."""
        found: list[tuple[Position, Position]] = []
        page: Sequence[ObjectInfo] = ()

        async def next_page() -> Sequence[ObjectInfo]:
            return await self._store.list_after(f"{FOLDER}/", page[-1].key if page else "")

        while page := await self._until_answered(next_page):
            for info in page:
                with suppress(ValueError):  # Somebody else's.
                    found.append(range_of(info.key))
        return found

    async def _digest_in(self, key: str) -> bytes | None:
        """Of the archive; None: there is none that can be read."""
        try:
            data: Buffer = await self._until_answered(lambda: self._store.get(key))
            return decode_archive(data).digest
        except (ObjectNotFoundError, ArchiveFormatError) as error:
            logger.warning("%s cannot be read: %s", key, error)
            return None

    # The log.

    async def _read_again(self, batch: Batch) -> list[ArchivedEntry]:
        """The entries that were forgotten; none when the log was cut behind them meanwhile."""
        while batch.after < batch.last:
            try:
                return await self._entries_of(batch)
            except LogCutError as error:
                # Behind the older snapshot, which nobody needs; the rest follows on that.
                batch.after = error.cut
            except (LogUnavailableError, LogRefusedError, LogHoleError) as error:
                logger.info("waiting, to read what is to be archived: %s", error)
                await asyncio.sleep(LOG_RETRY_S)
        return []

    async def _entries_of(self, batch: Batch) -> list[ArchivedEntry]:
        entries: list[ArchivedEntry] = []
        async with aclosing(self._log.tail(batch.after)) as pages:
            async for page in pages:
                wanted = [each for each in page if each.position <= batch.last]
                entries += map(self._archived, wanted)
                if page[-1].position >= batch.last:
                    return entries
        raise LogUnavailableError("the tail ended")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
