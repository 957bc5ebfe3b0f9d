"""The machine of a log that is lost, made anew from its store: a snapshot, and the archives that reach on from it.

What holds: the machine is that of the log at the position reached, and the digest that each archive has of it
says so (P13); an entry that is not archived, or lies behind a hole, is never in it. A snapshot or archive
that is missing or damaged is passed over, and told: then the machine is an older one, or the same by other objects. So is
a snapshot that archives contradict which lead further from an older one.

Left out: what becomes of archives that contradict each other (`histories`), and what comes of the machine (`recovery`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from broker.recovery.archive_chain import FurthestFirst, beyond
from broker.recovery.archives import RETRY, Archives, store_is_away
from broker.recovery.histories import Histories
from broker.recovery.outcome import ContradictionError, Rebuilt, RecoveryError, Until
from broker.reports.log_lines import place
from broker.store.identity import begun_eras
from coordinator.machine.machine import Machine
from coordinator.snapshot.listing import StoredSnapshot, stored_snapshots
from coordinator.snapshot.manifest import manifest_key
from coordinator.snapshot.snapshot import restoring
from coordinator.snapshot.store import SnapshotStore, run_steps
from coordinator.snapshot.stream import SnapshotError
from protocol.types import ERA, POSITION_ZERO, Position, era_of, first_position
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.era_marker import FOLDER, EraMarker, EraMarkerError, decode_era, era_key
from storage.stores.object_store import ObjectNotFoundError, ObjectStore
from storage.stores.retry import until_done

__all__ = ["Rebuilt", "RecoveryError", "Until", "rebuild"]

CONTRADICTED_MAX: Final = 3
"""Snapshots that archives contradict, of which an older one is tried."""


class _Beginning:
    """A snapshot, the beginning of an era, or that of the log."""

    def __init__(
        self, name: str, position: Position, key: str, make: Callable[[], Awaitable[Machine]]
    ) -> None:
        """`key`: of the snapshot, or of what says how the era began; `make` raises SnapshotError, and StoreError."""
        self.name = name
        self.position = position
        self.key = key
        self._make = make
        self._made: Machine | None = None

    @property
    def is_anew(self) -> bool:
        """It stands in for a snapshot that an era began with."""
        return self.key.startswith(f"{FOLDER}/")

    async def look(self) -> Machine:
        """Its machine, which the next call of `machine` gives away. Raises SnapshotError and StoreError."""
        self._made = await self.machine()
        return self._made

    async def machine(self) -> Machine:
        """For the caller alone. Raises SnapshotError and StoreError."""
        made, self._made = self._made, None
        return await self._make() if made is None else made


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
    archives = await Archives(store, cluster.cluster_id).look()
    tell(f"{len(archives.ranges)} archives of the log")
    eras = {each for each in await begun_eras(store) if each <= cluster.era}
    found = [each for each in await stored_snapshots(store) if era_of(each.position) in eras]
    known = [each.last for each in archives.ranges if era_of(each.last) <= cluster.era]
    known += [each.position for each in found]
    contradicted: list[tuple[str, ContradictionError]] = []
    search = _Search(store, cluster, until, archives=archives, tell=tell)
    async for beginning in search.beginnings(found, eras):
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
            if beginning.is_anew:
                told.append(
                    f"{beginning.name}: of its first snapshot there is nothing that can be used"
                )
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


class _Search:
    """For what a machine can begin with."""

    def __init__(
        self,
        store: ObjectStore,
        cluster: ClusterIdentity,
        until: Until,
        *,
        archives: Archives,
        tell: Callable[[str], None],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._until = until
        self._archives = archives
        self._tell = tell

    async def beginnings(
        self, found: Sequence[StoredSnapshot], eras: Iterable[int]
    ) -> AsyncIterator[_Beginning]:
        """The snapshots that can be used, newest first; behind those of an era its beginning, made anew; then that of
        the log, when there are archives of all that came of it.

        Raises RecoveryError: there is none.
        """
        troubles, any_is_usable = self._archives.troubles, False
        restored: Position | None = None
        for beginning in self._wanted(found, eras):
            if beginning.position == restored:
                continue  # Of the era's first snapshot there is no need of another one.
            try:
                newest_ms = await _newest_ms(self._store, await beginning.look())
            except SnapshotError as error:
                troubles.append(f"{beginning.key} cannot be used: {error}")
                continue
            restored = beginning.position
            time_ms = self._until.time_ms
            if time_ms is None or (newest_ms is not None and newest_ms <= time_ms):
                any_is_usable = True
                yield beginning
        links = FurthestFirst(self._archives.ranges)
        if self._cluster.era == ERA and links.next(POSITION_ZERO) is not None:
            yield _Beginning("the beginning of the log", POSITION_ZERO, "", _empty)
        elif not found:
            raise RecoveryError(
                "there is no snapshot in the object store: is it the right bucket, prefix or folder?"
            )
        elif not any_is_usable:
            raise RecoveryError(
                f"none of the {len(found)} snapshots in the object store can be used for that: "
                + ("; ".join(troubles) or "all are newer than that")
            )

    def _wanted(self, found: Sequence[StoredSnapshot], eras: Iterable[int]) -> Iterator[_Beginning]:
        source, left = SnapshotStore(self._store, self._cluster), [*found]
        for era in sorted(eras, reverse=True):
            begun = POSITION_ZERO if era == ERA else first_position(era)
            while left and left[0].position >= begun:
                if self._until.takes_snapshot(snapshot := left.pop(0)):
                    at, key = snapshot.position, snapshot.key
                    name = f"the snapshot at {place(at)}"
                    yield _Beginning(name, at, key, partial(_restored, source, key))
            if era != ERA and (self._until.position is None or begun <= self._until.position):
                name = f"the beginning of era {era}, made anew"
                yield _Beginning(name, begun, era_key(era), partial(self._anew, era))

    async def _anew(self, era: int) -> Machine:
        """The machine of an era's first snapshot, out of what the store has of the era before: there is no other copy of it
        until there is a second snapshot. Raises SnapshotError and StoreError."""
        try:
            marker = await _marker(self._store, era)
            before = ClusterIdentity(self._cluster.cluster_id, era_of(marker.behind))
            until = Until(position=marker.behind)
            machine = (await rebuild(self._store, before, until, tell=self._tell)).take()
        except (EraMarkerError, ObjectNotFoundError, RecoveryError) as error:
            raise SnapshotError(f"its first snapshot cannot be made anew: {error}") from error
        if machine.position == marker.behind:
            machine.begin_era(marker.begun, snapshot_key=manifest_key(marker.begun))
            if machine.digest().hex() == marker.digest:
                return machine
        raise SnapshotError("its first snapshot cannot be made anew: it would be another machine")


async def _restored(source: SnapshotStore, key: str) -> Machine:
    machine = Machine()
    await run_steps(restoring(machine, await source.read(key)))
    return machine


async def _empty() -> Machine:
    return Machine()


async def _newest_ms(store: ObjectStore, machine: Machine) -> int | None:
    """When the newest of what is in a snapshot's machine was written; None: nobody knows.

    The machine's own time may be much older: it is the least of all agents' clocks, and idle ones seldom write
    theirs. Whoever begins a snapshot writes its own in that step. Nobody lives where an era begins.
    """
    if clocks := [row.clock_ms for row in machine.incarnations]:
        return max(clocks)
    try:
        return (await _marker(store, era_of(machine.position))).began_ms
    except (EraMarkerError, ObjectNotFoundError):
        return None  # It is not to be had.


async def _marker(store: ObjectStore, era: int) -> EraMarker:
    """Raises EraMarkerError, ObjectNotFoundError and StoreError."""
    key = era_key(era)
    return decode_era(key, await until_done(lambda: store.get(key), RETRY, tell=store_is_away))
