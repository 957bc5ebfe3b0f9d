"""Another era of a cluster: what its store has of the lost log is told, and then made the beginning of another one.

    rebuilt ─▶ told, and agreed ─▶ snapshot of the era ─▶ log of the era ─▶ eras/<era>

What holds: until the last step every agent is refused or is of the era before, and each step finds what it did when it
stopped in the middle, so a recovery is repeated until it is done. No era is begun while an agent has a session in the log
that is to be used, nor over a log that reaches further than what was rebuilt, unless that was asked for. Nothing is deleted.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.check.comparison import Comparison, Wrong
from broker.jobs.kinds.collection_plan import PREFIXES
from broker.recovery.archives import RETRY, store_is_away
from broker.recovery.rebuilding import Rebuilt, RecoveryError, Until, rebuild
from broker.recovery.unarchived import Unarchived, unarchived
from broker.reports.log_lines import place
from broker.store import truncation
from broker.store.identity import (
    ClusterMismatchError,
    LogIdentity,
    decode_log_identity,
    encode_log_identity,
    enter,
    new_life,
    newest_era,
    origin_of,
)
from coordinator.log.metadata_log import MetadataLog
from coordinator.machine.machine import Machine
from coordinator.snapshot import keeping
from coordinator.snapshot.keeping import SnapshotPin
from coordinator.snapshot.listing import pages
from coordinator.snapshot.manifest import encode_published, manifest_key
from coordinator.snapshot.snapshot import dump, restore
from coordinator.snapshot.store import SnapshotStore
from protocol.types import ERA, POSITION_ZERO, Position, first_position
from storage.formats.cluster_identity import ClusterIdentity, read_identity
from storage.formats.era_marker import EraMarker, encode_era
from storage.formats.spans import ObjectKind
from storage.stores.object_store import ObjectExistsError, ObjectStore
from storage.stores.retry import until_done

SNAPSHOTS_TRIED: Final = 8
"""Eras of which a recovery that was given up has left a snapshot of another machine."""


class Effects(NamedTuple):
    """What becomes of the machine with the era before."""

    transactions: tuple[str, ...]
    """Transactional ids whose open transaction is aborted."""
    agents: tuple[str, ...]
    """Node names of agents that lived."""


class _Begun(NamedTuple):
    """An era whose first snapshot is in the store."""

    era: int
    digest: bytes
    snapshots: bytes
    """For the log: what it names."""


class Plan(NamedTuple):
    """What a recovery will do. It is begun once: then its machine is gone."""

    cluster_id: str
    era: int
    """The one that begins."""
    origin: str
    """The life of the log in the first era."""
    life: str
    """Of the log that is lost."""
    behind: Position
    """Where the era of that log has begun: behind this position of the one before."""
    rebuilt: Rebuilt
    reached: Position
    """Of the log that is lost."""
    is_bound: bool
    """What comes behind that is left out because it was asked for."""
    effects: Effects
    lost: Unarchived
    lacking: tuple[Wrong, ...]
    """Objects that the machine points at and the store has not, or not whole."""


async def plan(
    store: ObjectStore,
    log: MetadataLog,
    cluster_id: str,
    until: Until,
    *,
    tell: Callable[[str], None],
) -> Plan:
    """What there is, and what would become of it; nothing is written.

    Raises RecoveryError, StoreError and LogError.
    """
    identity = await read_identity(store)
    if identity is None or identity.cluster_id != cluster_id:
        whose = "no cluster" if identity is None else identity.describe()
        raise RecoveryError(
            f"the object store belongs to {whose}, not to cluster {cluster_id!r}: is it the right bucket,"
            " prefix or folder? Or set the right cluster.id"
        )
    try:
        marker = await enter(store, log)
        origin = await origin_of(store, marker)
    except ClusterMismatchError as error:
        raise RecoveryError.of(error) from error
    era = ERA if marker is None else marker.era
    cluster = ClusterIdentity(cluster_id, era)
    rebuilt = await rebuild(store, cluster, until, tell=tell)
    machine = rebuilt.machine
    tell("comparing what the log points at with what is in the object store")
    lost = await unarchived(store, machine, tell=tell)
    return Plan(
        cluster_id=cluster_id,
        era=era + 1,
        origin=origin,
        life=origin if marker is None else marker.life,
        behind=POSITION_ZERO if marker is None else marker.behind,
        rebuilt=rebuilt,
        reached=machine.position,
        is_bound=rebuilt.stopped
        or (until.position is not None and until.position <= machine.position),
        effects=Effects(
            tuple(machine.transactions.ongoing),
            tuple([row.node_name for row in machine.incarnations]),
        ),
        lost=lost,
        lacking=await _lacking(store, machine),
    )


async def _lacking(store: ObjectStore, machine: Machine) -> tuple[Wrong, ...]:
    """What a copy of a store that has not caught up lacks."""
    comparison = Comparison({kind: machine.objects.referenced(kind) for kind in ObjectKind})
    for prefix in PREFIXES:
        async for page in pages(store, prefix):
            comparison.see(page)
    comparison.end()
    return tuple([wrong for _, wrong in comparison.wrong])


async def begin(
    store: ObjectStore,
    log: MetadataLog,
    planned: Plan,
    *,
    now_ms: int,
    rng: random.Random,
    tell: Callable[[str], None],
) -> EraMarker:
    """Begin the era. May be repeated, from `plan` on, after any error.

    Raises RecoveryError, LogError (LiveSessionsError: agents have sessions) and StoreError.
    """
    newest = await newest_era(store)
    if newest is not None and newest.era >= planned.era:
        raise RecoveryError(
            f"era {newest.era} has begun meanwhile ({newest.key}): somebody else has recovered the cluster. Look at it"
            " again (--dry-run)"
        )
    written = await check_log(store, log, planned)
    era, digest, snapshots = await _put_snapshot(store, planned)
    tell(f"the snapshot of era {era} is in the store, and was read back")
    life = await _life(log, planned, written, (era, snapshots)) or new_life(rng)
    await log.begin_era(
        era,
        encode_log_identity(LogIdentity(planned.cluster_id, era, life)),
        snapshots=snapshots,
        instead_of=written,
    )
    tell(f"the log begins anew, in era {era}")
    marker = EraMarker(
        cluster_id=planned.cluster_id,
        era=era,
        life=life,
        origin=planned.origin,
        behind=planned.reached,
        digest=digest.hex(),
        began_ms=now_ms,
    )
    try:
        await until_done(
            lambda: store.put_new(marker.key, [encode_era(marker)]), RETRY, tell=store_is_away
        )
    except ObjectExistsError as error:
        raise RecoveryError(
            f"{marker.key} is there already: somebody else has begun that era"
        ) from error
    return marker


async def check_log(store: ObjectStore, log: MetadataLog, planned: Plan) -> bytes:
    """What the log says about itself; empty: it is nobody's.

    Raises RecoveryError when it is another cluster's, or the very log that is to be begun anew and has all that was
    rebuilt, or more; StoreError and LogError.
    """
    written = await log.identity()
    if not written:
        return written
    try:
        found = decode_log_identity(written)
    except ClusterMismatchError as error:
        raise RecoveryError.of(error) from error
    if found.cluster_id != planned.cluster_id:
        raise RecoveryError(
            f"the metadata log belongs to cluster {found.cluster_id!r}: use another one, or another prefix"
        )
    if found.era >= planned.era:
        await _check_unused(log, found.era, planned)
    # (Of another life its positions say nothing.)
    if found == (planned.cluster_id, planned.era - 1, planned.life):
        head = await log.head()
        _check_done(head, planned)
        if not planned.is_bound:
            await _check_lost(store, head, planned)
    return written


def _check_done(head: Position, planned: Plan) -> None:
    """This very recovery was not done before, or the era that it began has gone on. Raises RecoveryError."""
    era = planned.era - 1
    begun = first_position(era)
    if planned.reached == planned.behind and max(head, planned.rebuilt.known) == begun:
        raise RecoveryError(
            f"era {era} has begun behind {place(planned.reached)} already, and its log has no entries yet: start the agents"
            f" with it. To begin another one all the same, --to-position {place(begun)}"
        )


async def _check_lost(store: ObjectStore, head: Position, planned: Plan) -> None:
    """The log, which ends at `head`, lacks something of what the store knows. Raises RecoveryError and StoreError."""
    reached = place(planned.reached)
    anyway = f"start the agents with it. To begin it anew all the same, --to-position {reached}"
    if head > planned.reached:
        raise RecoveryError(
            f"the metadata log is there, and has entries up to {place(head)}, of which the object store has those"
            f" up to {reached}: {anyway}"
        )
    if head == planned.reached and not await truncation.traces(store, planned.rebuilt.machine):
        raise RecoveryError(f"the metadata log is there, and nothing is lost of it: {anyway}")


async def _check_unused(log: MetadataLog, era: int, planned: Plan) -> None:
    """The era is one that a recovery has begun in the log and not in the store. Raises RecoveryError, LogError."""
    log.enter(era)
    try:
        head = await log.head()
    finally:
        log.enter(planned.era - 1)
    if head > first_position(era):
        raise RecoveryError(
            f"the metadata log is in era {era}, and agents have written into it up to {place(head)}, but the object store is in"
            f" era {planned.era - 1}: it is another store, a copy from before a recovery. Name the right one, or for"
            " the copy another log, or another prefix"
        )


async def _life(
    log: MetadataLog, planned: Plan, written: bytes, begun: tuple[int, bytes]
) -> str | None:
    """Of the log, where a recovery that stopped before its last step has begun this very era in it, with this very
    snapshot; None: there is none. Raises LogError.

    The snapshot of one that was given up may be gone, and another one be in its place."""
    era, snapshots = begun
    if not written or (found := decode_log_identity(written)).era != era:
        return None
    log.enter(era)
    try:
        return found.life if await log.snapshots() == snapshots else None
    finally:
        log.enter(planned.era - 1)


async def _put_snapshot(store: ObjectStore, planned: Plan) -> _Begun:
    """The machine with which the era begins, in the store and read back.

    A recovery that was given up may have left another snapshot in its place: then it is the next era. There is one machine
    at a time, and its bytes.
    """
    snapshots = SnapshotStore(store, ClusterIdentity(planned.cluster_id, ERA))
    parts = dump(planned.rebuilt.take())
    for era in range(planned.era, planned.era + SNAPSHOTS_TRIED):
        begun, dumped, pins = _begun(parts, era)
        try:
            await snapshots.write(dumped, pins)
        except ObjectExistsError:
            continue
        return begun
    raise RecoveryError(
        f"there are snapshots of the eras {planned.era} to {era} already, of recoveries that were given up:"
        " delete those of them that no eras/<era> names"
    )


def _begun(parts: Sequence[bytes], era: int) -> tuple[_Begun, list[bytes], list[SnapshotPin]]:
    """The machine that these parts make, as the era begins with it, dumped, and what keeps snapshots."""
    machine = Machine()
    restore(machine, parts)
    at = first_position(era)
    machine.begin_era(at, snapshot_key=manifest_key(at))
    begun = _Begun(era, machine.digest(), encode_published(machine.snapshots.published))
    return begun, dump(machine), keeping.snapshot_pins(machine.pins, machine.time_ms)
