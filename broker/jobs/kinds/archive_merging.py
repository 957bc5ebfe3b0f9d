"""Small archives of the log become large ones: a second's worth each, there are hundreds between two snapshots.

Only those that end before the newest snapshot are merged: nobody adds to them. The large one is read back
before the small ones go, so at any time the entries are there, at least once. What cannot be read, or does not
agree with its neighbours, is left alone.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.jobs.worker.archive_backlog import OBJECT_BYTES
from broker.jobs.worker.context import JobContext
from coordinator.log.metadata_log import LogEntry
from coordinator.snapshot.loading import until_answered
from coordinator.voids import Voids
from protocol.types import Position
from storage.formats.log_archive import (
    ArchivedEntry,
    ArchiveFormatError,
    LogArchive,
    archive_key,
    decode_archive,
    encode_archive,
    range_of,
)
from storage.stores.object_store import ObjectExistsError, ObjectInfo, ObjectNotFoundError

logger = logging.getLogger(__name__)

SMALL_BYTES: Final = 1 << 20
MERGE_ROUNDS: Final = 10
"""Rounds of the collection of which one merges: as often as there is a snapshot, about."""
RUN_MIN: Final = 16
"""Of fewer it is not worth it."""


class Archived(NamedTuple):
    """An archive in the store."""

    after: Position
    last: Position
    length: int

    @property
    def key(self) -> str:
        return archive_key(self.after, self.last)


def small_archives(infos: Iterable[ObjectInfo], *, until: Position | None) -> Iterator[Archived]:
    """Those that nobody adds to, since a snapshot at `until` is published; None: there is none."""
    for info in infos:
        try:
            after, last = range_of(info.key)
        except ValueError:
            continue  # Somebody else's.
        if until is not None and last <= until and info.length < SMALL_BYTES:
            yield Archived(after, last, info.length)


def runs(archives: Iterable[Archived]) -> Iterator[Sequence[Archived]]:
    """Archives that go into one: none leaves a hole to the next."""
    run: list[Archived] = []
    end, length = Position(0), 0
    for archive in sorted(archives):
        if run and (archive.after > end or length + archive.length > OBJECT_BYTES):
            if len(run) >= RUN_MIN:
                yield run
            run, length = [], 0
        end = max(end, archive.last) if run else archive.last
        run.append(archive)
        length += archive.length
    if len(run) >= RUN_MIN:
        yield run


def merged(archives: Sequence[LogArchive], voids: Voids) -> LogArchive:
    """One of all of them. Raises ArchiveFormatError when they are not of one log, or one is of before an entry was voided:
    what comes of that is another machine, and no digest of a later one fits."""
    entries: dict[Position, ArchivedEntry] = {}
    last = max(archives, key=lambda archive: archive.last)
    for archive in archives:
        if archive.cluster_id != last.cluster_id:
            raise ArchiveFormatError(f"archives of {archive.cluster_id} and {last.cluster_id}")
        for entry in archive.entries:
            logged = LogEntry(entry.position, entry.session, entry.n, entry.payload)
            if voids.covers(logged) and not entry.voided:
                raise ArchiveFormatError(f"{logged.position} was voided after it was archived")
            if entries.setdefault(entry.position, entry) != entry:
                raise ArchiveFormatError(f"archives that differ at position {entry.position}")
    after = min(archive.after for archive in archives)
    in_order = tuple([entries[place] for place in sorted(entries)])
    return LogArchive(last.cluster_id, after, last.last, last.digest, in_order)


async def merge(context: JobContext, run: Sequence[Archived]) -> None:
    """Put one archive in the place of these."""
    try:
        voids = Voids(await until_answered(context.log.voids))
        archive = merged([decode_archive(await context.read(each.key)) for each in run], voids)
        key = archive_key(archive.after, archive.last)
        await context.put(key, [encode_archive(archive)])
        if decode_archive(await context.read(key)) != archive:
            raise ArchiveFormatError(f"{key} is not what was written")
    except (ArchiveFormatError, ObjectExistsError, ObjectNotFoundError) as error:
        logger.warning("archives from %s on are not merged: %s", run[0].key, error)
        return
    await context.delete_leftovers([each.key for each in run if each.key != key])
