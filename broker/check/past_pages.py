"""Makes lost pages anew out of the log's past: of a kept snapshot, and of the archives that lead on from it.

A page is made of rows that the machine has in memory just before the SpillRows that names it. So a machine that is as
old, and gets the archived entries up to there, has the very rows: spans in chunks and ends of transactions, too.

What holds: a body has the digest that the log has of the page, or it is not found. What is older than the
oldest kept snapshot, or lies behind a hole in the archives, is not found so.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Final

from coordinator.commands.codec import CodecError, decode_entry
from coordinator.commands.entries import Entry
from coordinator.commands.job_commands import SpillRows
from coordinator.machine.machine import Machine
from coordinator.replica import BUGS
from coordinator.snapshot.listing import pages, stored_snapshots
from coordinator.snapshot.snapshot import restoring
from coordinator.snapshot.store import SnapshotStore, run_steps
from coordinator.snapshot.stream import SnapshotError
from protocol.types import Position
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.log_archive import (
    FOLDER,
    ArchiveFormatError,
    LogArchive,
    archive_key,
    decode_archive,
    range_of,
)
from storage.formats.page import PAGE_ROWS_MAX, digest, encode_rows
from storage.formats.spans import Page
from storage.stores.object_store import ObjectNotFoundError, ObjectStore
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

RETRY: Final = RetryPolicy(first_s=0.5, attempts_max=5)

Range = tuple[Position, Position]
"""Entries behind the first, up to and with the second."""


class PastPages:
    """One search; `find` is called once."""

    def __init__(
        self,
        store: ObjectStore,
        identity: ClusterIdentity,
        *,
        digests: set[bytes],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """`digests`: of the bodies that are looked for. `tell` gets lines about how far it is."""
        self._store = store
        self._identity = identity
        self._left = digests
        self._tell = tell
        self._found: dict[bytes, bytes] = {}

    async def find(self) -> dict[bytes, bytes]:
        """The bodies that were found, by digest. Raises StoreError."""
        ranges = await self._ranges()
        source = SnapshotStore(self._store, self._identity)
        until: Position | None = None
        # Each machine goes on to where the next newer one begins: the newest pages are found first.
        for snapshot in await stored_snapshots(self._store):
            machine = Machine()
            try:
                await run_steps(restoring(machine, await source.read(snapshot.key)))
            except SnapshotError:
                continue
            await self._go_on(machine, ranges, until)
            until = snapshot.position
            if not self._left:
                return self._found
        await self._go_on(Machine(), ranges, until)
        return self._found

    async def _ranges(self) -> list[Range]:
        found = []
        async for page in pages(self._store, f"{FOLDER}/"):
            for info in page:
                try:
                    found.append(range_of(info.key))
                except ValueError:  # Somebody else's.
                    continue
        return sorted(found)

    async def _go_on(self, machine: Machine, ranges: list[Range], until: Position | None) -> None:
        """Apply what is archived, as far as it leads on without a hole, and look at each page that is made."""
        await self._tell(f"looking for {len(self._left)} lost pages behind {machine.position}")
        for after, last in ranges:
            if not self._left or (until is not None and machine.position >= until):
                return
            if not after <= machine.position < last:
                continue
            archive = await self._read((after, last))
            if archive is None:
                continue
            try:
                await run_steps(self._applying(machine, archive))
            except (CodecError, *BUGS):
                return  # Not of this snapshot's log.

    async def _read(self, place: Range) -> LogArchive | None:
        """None: it cannot be used."""
        key = archive_key(*place)
        try:
            data = await until_done(
                lambda: self._store.get(key), RETRY, tell=lambda _error, _failures: None
            )
            archive = decode_archive(data)
        except (ArchiveFormatError, ObjectNotFoundError):
            return None
        is_ours = archive.cluster_id == self._identity.cluster_id
        return archive if is_ours and (archive.after, archive.last) == place else None

    def _applying(self, machine: Machine, archive: LogArchive) -> Generator[None, None, None]:
        for each in archive.entries:
            if each.position <= machine.position:
                continue
            if each.voided:
                machine.void(each.position, session=each.session, n=each.n)
            else:
                entry = decode_entry(each.payload)
                self._look(machine, entry)
                machine.apply(each.position, entry)
            yield

    def _look(self, machine: Machine, entry: Entry) -> None:
        """At the rows of pages that the entry is about to make."""
        for command in entry.commands:
            for page in command.pages if isinstance(command, SpillRows) else ():
                if page.digest not in self._left or page.rows > PAGE_ROWS_MAX:
                    continue
                partition = machine.partitions.find(page.topic_id, page.partition)
                if partition is None:
                    continue
                indexes = partition.rows_between(page.base_offset, page.next_offset)
                rows = [partition.row(index) for index in indexes or ()]
                kept = [row for row in rows if not isinstance(row, Page)]
                if len(kept) == len(rows) == page.rows:
                    body = encode_rows(kept)
                    if digest(body) == page.digest:
                        self._found[page.digest] = body
                        self._left.discard(page.digest)
