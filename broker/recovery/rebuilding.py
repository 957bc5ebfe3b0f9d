"""The machine of a log that is lost, made anew from its store: a snapshot, and the archives that reach on from it.

What holds: the machine is that of the log at the position reached, and the digest that each archive has of it
says so (P13); an entry that is not archived, or lies behind a hole, is never in it. A snapshot or archive
that is missing or damaged is passed over, and told: then the machine is an older one, or the same by other objects. So is
a snapshot that archives contradict which lead further from an older one.

Left out: what becomes of archives that contradict each other (`histories`), and what comes of the machine (`recovery`).
"""

from collections.abc import AsyncIterator, Callable
from typing import Final

from broker.recovery.archive_chain import beyond, furthest
from broker.recovery.archives import RETRY, Archives, store_is_away
from broker.recovery.histories import Histories
from broker.recovery.outcome import ContradictionError, Rebuilt, RecoveryError, Until
from broker.reports.log_lines import place
from broker.store.identity import begun_eras
from coordinator.machine.machine import Machine
from coordinator.snapshot.listing import StoredSnapshot, stored_snapshots
from coordinator.snapshot.snapshot import restoring
from coordinator.snapshot.store import SnapshotStore, run_steps
from coordinator.snapshot.stream import SnapshotError
from protocol.types import ERA, POSITION_ZERO, Position, era_of
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.era_marker import EraMarkerError, decode_era, era_key
from storage.stores.object_store import ObjectNotFoundError, ObjectStore
from storage.stores.retry import until_done

__all__ = ["Rebuilt", "RecoveryError", "Until", "rebuild"]

CONTRADICTED_MAX: Final = 3
"""Snapshots that archives contradict, of which an older one is tried."""


class _Beginning:
    """A snapshot that can be used, or the beginning of the log."""

    def __init__(self, source: SnapshotStore, position: Position, key: str) -> None:
        """`key`: of the snapshot; "": of none."""
        self.position = position
        self._source = source
        self._key = key
        self._made: Machine | None = None

    @property
    def name(self) -> str:
        return f"the snapshot at {place(self.position)}" if self._key else "the log's beginning"

    async def look(self) -> Machine:
        """Its machine, which the next call of `machine` gives away. Raises SnapshotError and StoreError."""
        self._made = await self.machine()
        return self._made

    async def machine(self) -> Machine:
        """For the caller alone. Raises SnapshotError and StoreError."""
        made, self._made = self._made, None
        if made is None:
            made = Machine()
            if self._key:
                await run_steps(restoring(made, await self._source.read(self._key)))
        return made


async def rebuild(
    store: ObjectStore,
    cluster: ClusterIdentity,
    until: Until,
    *,
    tell: Callable[[str], None],
) -> Rebuilt:
    """The newest machine that can be made, of the cluster's era. `tell` hears of progress.

    What an era left that no `eras/<era>` names is of a recovery that was given up, and no part of the log.

    Raises RecoveryError: there is no snapshot to begin with, or archives contradict it, or each other; and StoreError.
    """
    archives = await Archives.listed(store, cluster.cluster_id)
    tell(f"{len(archives.ranges)} archives of the log")
    eras = {each for each in await begun_eras(store) if each <= cluster.era}
    found = [each for each in await stored_snapshots(store) if era_of(each.position) in eras]
    known = [each.last for each in archives.ranges if era_of(each.last) <= cluster.era]
    known += [each.position for each in found]
    contradicted: list[tuple[str, ContradictionError]] = []
    async for beginning in _beginnings(store, cluster, until, found, archives):
        tell(beginning.name)
        histories = Histories(archives, beginning.machine, until, tell=tell)
        try:
            rebuilt = await histories.rebuilt()
        except ContradictionError as error:
            # (Its frames have the machine.)
            contradicted.append((beginning.name, error.with_traceback(None)))
        else:
            if contradicted and rebuilt.machine.position <= contradicted[0][1].reached:
                break
            told = [f"archives contradict {name}: left out" for name, _ in contradicted]
            rebuilt.troubles[:0] = [*archives.troubles, *told]
            rebuilt.troubles += _holes(rebuilt, archives)
            rebuilt.known = max(known)
            return rebuilt
        if len(contradicted) == CONTRADICTED_MAX:
            break
    raise contradicted[0][1]


def _holes(rebuilt: Rebuilt, archives: Archives) -> list[str]:
    reached = rebuilt.machine.position
    return [
        f"{each.key} lies behind a hole: the log from {place(reached)} to"
        f" {place(each.after)} is not archived"
        for each in beyond(archives.ranges, reached)[:1]
        if not rebuilt.stopped and era_of(each.after) == era_of(reached)
    ]


async def _beginnings(
    store: ObjectStore,
    cluster: ClusterIdentity,
    until: Until,
    found: list[StoredSnapshot],
    archives: Archives,
) -> AsyncIterator[_Beginning]:
    """The snapshots that can be used, newest first; then the log's, when there are archives of all that came of it.

    Raises RecoveryError: there is none.
    """
    source = SnapshotStore(store, cluster)
    any_is_usable = False
    for snapshot in found:
        if not until.takes_snapshot(snapshot):
            continue
        beginning = _Beginning(source, snapshot.position, snapshot.key)
        try:
            newest_ms = await _newest_ms(store, await beginning.look())
        except SnapshotError as error:
            archives.troubles.append(f"{snapshot.key} cannot be used: {error}")
            continue
        if until.time_ms is None or (newest_ms is not None and newest_ms <= until.time_ms):
            any_is_usable = True
            yield beginning
    if cluster.era == ERA and furthest(archives.ranges, POSITION_ZERO) is not None:
        yield _Beginning(source, POSITION_ZERO, "")
    elif not found:
        raise RecoveryError(
            "there is no snapshot in the object store: is it the right bucket, prefix or folder?"
        )
    elif not any_is_usable:
        raise RecoveryError(
            f"none of the {len(found)} snapshots in the object store can be used for that: "
            + ("; ".join(archives.troubles) or "all are newer than that")
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
