"""The machine of a log that is lost, made anew from its store: a snapshot, and the archives that reach on from it.

What holds: the machine is that of the log at the position reached, and the digest that each archive has of it
says so (P13); an entry that is not archived, or lies behind a hole, is never in it. A snapshot or archive
that is missing or damaged is passed over, and told: then the machine is an older one, or the same by other objects.

Left out: what comes of it (`recovery`).
"""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from broker.recovery.archive_chain import ArchiveRange, beyond, chain
from broker.reports.log_lines import place
from coordinator.commands.codec import CodecError, decode_entry
from coordinator.commands.entries import Entry
from coordinator.machine.machine import Machine
from coordinator.replica import BUGS
from coordinator.snapshot.listing import StoredSnapshot, pages, stored_snapshots
from coordinator.snapshot.snapshot import restoring
from coordinator.snapshot.store import SnapshotStore, run_steps
from coordinator.snapshot.stream import SnapshotError
from protocol.fault_codes import FaultError
from protocol.types import ERA, POSITION_ZERO, Position, era_of
from storage.formats import log_archive
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.era_marker import EraMarkerError, decode_era, era_key
from storage.formats.log_archive import ArchiveFormatError, LogArchive, decode_archive
from storage.stores.object_store import ObjectNotFoundError, ObjectStore
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

logger = logging.getLogger(__name__)

RETRY: Final = RetryPolicy(first_s=0.5, attempts_max=5)


class RecoveryError(FaultError):
    """The cluster cannot be recovered like that; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """How far: to the end of what is there, unless one of these says less."""

    position: Position | None = None
    """Entries behind it are left out."""
    time_ms: int | None = None
    """The first entry that its writer's clock dates later is left out, and all behind it."""

    def takes_snapshot(self, snapshot: StoredSnapshot) -> bool:
        at_ms = 0 if snapshot.manifest is None else snapshot.manifest.time_ms
        return (self.position is None or snapshot.position <= self.position) and (
            self.time_ms is None or at_ms <= self.time_ms
        )

    def takes_entry(self, position: Position, entry: Entry | None) -> bool:
        if self.position is not None and position > self.position:
            return False
        return self.time_ms is None or entry is None or entry.clock_ms <= self.time_ms


@dataclass(slots=True)
class Rebuilt:
    """What was made."""

    machine: Machine
    begun: Position
    """Of the snapshot that it began with; POSITION_ZERO: with nothing, as the log did."""
    entries: int = 0
    """Applied after it."""
    clock_ms: int = 0
    """Of the newest of them, by its writer; 0: there is none."""
    stopped: bool = False
    """There is more than was asked for."""
    known: Position = POSITION_ZERO
    """The log had got as far, by the keys of what there is, whether or not it can be used."""
    troubles: list[str] = field(default_factory=list)
    """What could not be used, and archives that lie behind a hole."""

    @property
    def is_all(self) -> bool:
        """There is nothing of the log behind the machine."""
        return not self.stopped and self.known <= self.machine.position


async def rebuild(
    store: ObjectStore,
    cluster: ClusterIdentity,
    until: Until,
    *,
    tell: Callable[[str], None],
) -> Rebuilt:
    """The newest machine that can be made, of the cluster's era. `tell` hears of progress.

    What a later era left is of a recovery that was given up, and no part of the log.

    Raises RecoveryError: there is no snapshot to begin with, or an archive contradicts it; and StoreError.
    """
    ranges = await _ranges(store)
    tell(f"{len(ranges)} archives of the log")
    rebuilt = await _restored(store, cluster, until, ranges, tell=tell)
    troubles = rebuilt.troubles
    ends = [each.last for each in ranges if era_of(each.last) <= cluster.era]
    rebuilt.known = max([rebuilt.known, *ends])
    while not rebuilt.stopped and (
        links := chain(
            [each for each in ranges if each.last > rebuilt.machine.position],
            rebuilt.machine.position,
        )
    ):
        for number, link in enumerate(links, 1):
            archive = await _read(store, cluster.cluster_id, link, troubles)
            if archive is None:
                ranges.remove(link)
                break
            await run_steps(_applying(rebuilt, archive, until))
            tell(f"archive {number} of {len(links)}: at {place(rebuilt.machine.position)}")
            if rebuilt.stopped:
                break
    if not rebuilt.stopped:
        troubles += [
            f"{each.key} lies behind a hole: the log from {place(rebuilt.machine.position)} to"
            f" {place(each.after)} is not archived"
            for each in beyond(ranges, rebuilt.machine.position)[:1]
            if era_of(each.after) == era_of(rebuilt.machine.position)
        ]
    return rebuilt


async def _restored(
    store: ObjectStore,
    cluster: ClusterIdentity,
    until: Until,
    ranges: list[ArchiveRange],
    *,
    tell: Callable[[str], None],
) -> Rebuilt:
    """The newest snapshot that can be used; nothing, when there are archives of all that came of it."""
    troubles: list[str] = []
    source = SnapshotStore(store, cluster)
    stored = await stored_snapshots(store)
    found = [each for each in stored if era_of(each.position) <= cluster.era]
    for snapshot in found:
        if not until.takes_snapshot(snapshot):
            continue
        machine = Machine()
        try:
            await run_steps(restoring(machine, await source.read(snapshot.key)))
        except SnapshotError as error:
            troubles.append(f"{snapshot.key} cannot be used: {error}")
            continue
        if until.time_ms is not None:
            newest_ms = await _newest_ms(store, machine)
            if newest_ms is None or newest_ms > until.time_ms:
                continue
        tell(f"the snapshot at {place(snapshot.position)}")
        return Rebuilt(machine, snapshot.position, known=found[0].position, troubles=troubles)
    if cluster.era == ERA and chain(ranges, POSITION_ZERO):
        tell("no snapshot: the log from its beginning")
        newest = found[0].position if found else POSITION_ZERO
        return Rebuilt(Machine(), POSITION_ZERO, known=newest, troubles=troubles)
    if not found:
        raise RecoveryError(
            "there is no snapshot in the object store: is it the right bucket, prefix or folder?"
        )
    raise RecoveryError(
        f"none of the {len(found)} snapshots in the object store can be used for that: "
        + ("; ".join(troubles) or "all are newer than that")
    )


async def _newest_ms(store: ObjectStore, machine: Machine) -> int | None:
    """When the newest of what is in a snapshot's machine was written; None: nobody knows.

    The machine's own time may be much older: it is the least of all agents' clocks, and idle ones seldom write
    theirs. Whoever begins a snapshot writes its own in that step. Nobody lives where an era begins.
    """
    if clocks := [row.clock_ms for row in machine.incarnations]:
        return max(clocks)
    key = era_key(era_of(machine.position))
    try:
        return decode_era(
            key, await until_done(lambda: store.get(key), RETRY, tell=store_is_away)
        ).began_ms
    except (EraMarkerError, ObjectNotFoundError):
        return None  # Of a recovery that was given up.


async def _ranges(store: ObjectStore) -> list[ArchiveRange]:
    """Of all archives; what has another key is somebody else's."""
    found = []
    async for page in pages(store, f"{log_archive.FOLDER}/"):
        for info in page:
            try:
                found.append(ArchiveRange(*log_archive.range_of(info.key)))
            except ValueError:
                continue
    return found


async def _read(
    store: ObjectStore, cluster_id: str, link: ArchiveRange, troubles: list[str]
) -> LogArchive | None:
    """None: it cannot be used."""
    try:
        data = await until_done(lambda: store.get(link.key), RETRY, tell=store_is_away)
        archive = decode_archive(data)
    except (ArchiveFormatError, ObjectNotFoundError) as error:
        troubles.append(f"{link.key} cannot be used: {error}")
        return None
    if archive.cluster_id != cluster_id or (archive.after, archive.last) != link:
        troubles.append(f"{link.key} is an archive of {archive.cluster_id!r}, of other positions")
        return None
    return archive


def _applying(rebuilt: Rebuilt, archive: LogArchive, until: Until) -> Generator[None, None, None]:
    """Raises RecoveryError when the archive is not of the machine's log."""
    machine = rebuilt.machine
    for each in archive.entries:
        if each.position <= machine.position:
            continue
        try:
            entry = None if each.voided else decode_entry(each.payload)
            if not until.takes_entry(each.position, entry):
                rebuilt.stopped = True
                return
            if entry is None:
                machine.void(each.position, session=each.session, n=each.n)
            else:
                machine.apply(each.position, entry)
                rebuilt.clock_ms = entry.clock_ms
        except (CodecError, *BUGS) as error:
            raise RecoveryError(
                f"the entry at {place(each.position)} cannot be applied: {error!r}. Recover to before it"
                f" (--to-position), or by the release that wrote it"
            ) from error
        rebuilt.entries += 1
        yield
    if machine.position == archive.last and machine.digest() != archive.digest:
        raise RecoveryError(
            f"the archive up to {place(archive.last)} contradicts the snapshot at"
            f" {place(rebuilt.begun)} (P13): one of them is damaged, or not this cluster's."
            " Recover to before it (--to-position)"
        )


def store_is_away(error: Exception, failures: int) -> None:
    """For `until_done`."""
    logger.info("the store is away, attempt %d: %s", failures, error)
