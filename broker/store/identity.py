"""Checks that store and log belong to this cluster and to each other (docs/design/running.md §2).

The store says in which era the cluster is (`newest_era`). Both carry the cluster's name, and both carry the log's
*life*: a number drawn when the log was first written, or when a recovery began it anew. So neither another cluster's bucket is used, nor a bucket that belongs to
an earlier log of the same name (whose chunk names would come again with other contents), nor an
empty bucket by mistake for the one that the log's entries point into.

Definite mismatches raise `ClusterMismatchError`; what may pass raises the ports' own errors, and the
composition root asks again.

A store that replaces what is there is no store for records, and refused here, too.
"""

import json
import random
from contextlib import suppress
from typing import NamedTuple

from typing_extensions import override

from coordinator.log.metadata_log import LogRefusedError, MetadataLog
from coordinator.snapshot.listing import pages
from protocol.fault_codes import FaultCode, FaultError, Sentence
from protocol.types import ERA, POSITION_ZERO
from storage.formats import cluster_identity, era_marker
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.era_marker import EraMarker, EraMarkerError, decode_era
from storage.stores.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    StoreRefusedError,
)
from storage.stores.put_once import check_puts_once

LIFE_KEY = "log.json"
LIFE_HEX_DIGITS = 16
PUT_ONCE_KEY = "put-once"
"""Stays, so that who starts later need put nothing but one thing that must be refused."""
FORMAT_VERSION = 1
_UNREADABLE = Sentence(
    "the metadata log says nothing readable about its cluster", FaultCode.OTHER_CLUSTER
)


class ClusterMismatchError(FaultError):
    """The store or the log is another cluster's, or of another life; the sentence says which."""


class LogIdentity(NamedTuple):
    """Whose a log is."""

    cluster_id: str
    era: int
    life: str

    @override
    def __str__(self) -> str:
        return f"cluster {self.cluster_id!r}, era {self.era}, life {self.life}"


async def check(store: ObjectStore, log: MetadataLog, cluster_id: str, rng: random.Random) -> str:
    """Mark store and log as this cluster's, or find them so. May be repeated after any error.

    Has the log read and write the cluster's era. Returns the life of the log in the first era, which
    a recovery does not change.

    Raises ClusterMismatchError for good, and StoreError and LogError.
    """
    try:
        marker = await enter(store, log)
    except StoreRefusedError as error:
        raise ClusterMismatchError.of(error) from error
    if marker is not None:
        await _find_log(log, marker)
        origin = marker.origin
    else:
        origin = await _claim_log(log, cluster_id, rng)
        await _find_store(store, log)
    try:
        await cluster_identity.claim_store(store, ClusterIdentity(cluster_id, ERA))
    except StoreRefusedError as error:
        raise ClusterMismatchError.of(error) from error
    if marker is None:
        await _claim_life(store, origin)
    await check_puts_once(store, PUT_ONCE_KEY, b"%016x" % rng.getrandbits(64))
    return origin


async def look(store: ObjectStore, log: MetadataLog, cluster_id: str) -> None:
    """Find nothing that `check` would refuse in what the two say of each other already; writes nothing.

    Raises ClusterMismatchError, StoreError and LogError.
    """
    marker = await enter(store, log)
    if marker is not None:
        await _find_log(log, marker)
    elif written := await log.identity():
        found = decode_log_identity(written)
        _must_be_of(found, cluster_id)
        with suppress(ObjectNotFoundError):
            _must_be_life_of(bytes(await store.get(LIFE_KEY)), found.life)


async def newest_era(store: ObjectStore) -> EraMarker | None:
    """How the cluster's era began; None while that is the first. Raises StoreError."""
    newest = None
    while page := await store.list_after(f"{era_marker.FOLDER}/", newest or ""):
        newest = page[-1].key
    if newest is None:
        return None
    try:
        return decode_era(newest, await store.get(newest))
    except EraMarkerError as error:
        raise StoreRefusedError.of(error) from error


async def begun_eras(store: ObjectStore) -> set[int]:
    """The eras that the cluster has been in: what lies in the store of others is of recoveries that were given up.

    Raises StoreError.
    """
    eras = {ERA}
    async for page in pages(store, f"{era_marker.FOLDER}/"):
        for info in page:
            with suppress(ValueError):  # Somebody else's.
                eras.add(era_marker.era_of_key(info.key))
    return eras


async def check_era(store: ObjectStore, era: int) -> None:
    """Find none that has begun behind this one. Raises ClusterMismatchError and StoreError."""
    later = await store.list_after(f"{era_marker.FOLDER}/", era_marker.era_key(era))
    if later:
        raise ClusterMismatchError(
            f"the metadata log of era {era} is over: {later[-1].key} in the object store says that the cluster"
            " was recovered without it. Point this agent to the log of the recovery, and start it again",
            fault=FaultCode.OTHER_CLUSTER,
        )


async def enter(store: ObjectStore, log: MetadataLog) -> EraMarker | None:
    """Have the log read and write the cluster's era; how that began. Raises StoreError."""
    marker = await newest_era(store)
    log.enter(ERA if marker is None else marker.era)
    return marker


async def enter_own(log: MetadataLog) -> None:
    """Have the log read the era that it says itself it is in. Raises ClusterMismatchError and LogError."""
    if written := await log.identity():
        log.enter(decode_log_identity(written).era)


def new_life(rng: random.Random) -> str:
    return f"{rng.getrandbits(4 * LIFE_HEX_DIGITS):0{LIFE_HEX_DIGITS}x}"


def encode_log_identity(identity: LogIdentity) -> bytes:
    fields = identity._asdict() | {"format_version": FORMAT_VERSION}
    return json.dumps(fields, sort_keys=True).encode()


def decode_log_identity(written: bytes) -> LogIdentity:
    """Raises ClusterMismatchError: it is of a newer format, or says nothing readable."""
    try:
        match json.loads(written):
            case {
                "cluster_id": str(cluster_id),
                "era": int(era),
                "format_version": int(version),
                "life": str(life),
            }:
                pass
            case _:
                raise ClusterMismatchError(_UNREADABLE)
    except ValueError as error:
        raise ClusterMismatchError(_UNREADABLE) from error
    if version > FORMAT_VERSION:
        raise ClusterMismatchError(
            f"the metadata log has format version {version}, newer than {FORMAT_VERSION}, the"
            " newest known here: use a newer release",
            fault=FaultCode.VERSION_MISMATCH,
        )
    return LogIdentity(cluster_id, era, life)


async def _find_log(log: MetadataLog, marker: EraMarker) -> None:
    """The log is the one that a recovery has begun: that has said whose it is, and nobody else does."""
    written = await log.identity()
    if not written:
        raise ClusterMismatchError(
            f"the metadata log is empty, but the object store is in era {marker.era} ({marker.key}): point"
            " this agent to the right log; if that was lost, recover the cluster (frazil recover)",
            fault=FaultCode.OTHER_CLUSTER,
        )
    found = decode_log_identity(written)
    expected = LogIdentity(marker.cluster_id, marker.era, marker.life)
    _must_be_begun(found, expected)
    if found != expected:
        raise ClusterMismatchError(
            f"the metadata log belongs to {found}, but the object store to {expected} ({marker.key}): put the"
            " newest log back, or point this agent to the right one; if that was lost, recover the cluster"
            " (frazil recover)",
            fault=FaultCode.OTHER_CLUSTER,
        )


async def _claim_log(log: MetadataLog, cluster_id: str, rng: random.Random) -> str:
    """The log's life, after making sure that the log is this cluster's, in its first era."""
    ours = LogIdentity(cluster_id, ERA, new_life(rng))
    try:
        found = decode_log_identity(await log.identify(encode_log_identity(ours)))
    except LogRefusedError as error:
        raise ClusterMismatchError.of(error) from error
    _must_be_of(found, cluster_id)
    return found.life


def _must_be_of(found: LogIdentity, cluster_id: str) -> None:
    """In the first era. Raises ClusterMismatchError."""
    ours = LogIdentity(cluster_id, ERA, found.life)
    _must_be_begun(found, ours)
    if found != ours:
        raise ClusterMismatchError(
            f"the metadata log belongs to cluster {found.cluster_id!r}, era {found.era}, but this agent to"
            f" cluster {cluster_id!r}, era {ERA}: point it to another log, or set the right cluster.id",
            fault=FaultCode.OTHER_CLUSTER,
        )


def _must_be_begun(found: LogIdentity, expected: LogIdentity) -> None:
    """The store knows the era of the log. Raises ClusterMismatchError."""
    if found.cluster_id == expected.cluster_id and found.era > expected.era:
        raise ClusterMismatchError(
            f"the metadata log is in era {found.era}, but the object store in era {expected.era}: a recovery of this cluster"
            " stopped before its last step (repeat it: frazil recover), or the store is a copy from before one (point"
            " this agent to the right one)",
            fault=FaultCode.OTHER_CLUSTER,
        )


async def origin_of(store: ObjectStore, marker: EraMarker | None) -> str:
    """The life of the log in the first era, as the store has it. Raises ClusterMismatchError and StoreError."""
    if marker is not None:
        return marker.origin
    try:
        life = json.loads(bytes(await store.get(LIFE_KEY)))["life"]
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        life = None
    if isinstance(life, str):
        return life
    raise ClusterMismatchError(
        f"{LIFE_KEY} in the object store says nothing readable: is it a whole copy of the cluster's store?",
        fault=FaultCode.OTHER_CLUSTER,
    )


async def _find_store(store: ObjectStore, log: MetadataLog) -> None:
    """A log that has entries has a store, too: entries come only after the store was claimed, so one without
    a marker is not this log's."""
    head = await log.head()
    try:
        present = await cluster_identity.read_identity(store)
    except StoreRefusedError as error:
        raise ClusterMismatchError.of(error) from error
    if present is None and head > POSITION_ZERO:
        raise ClusterMismatchError(
            "the metadata log has entries, but the object store has no"
            f" {cluster_identity.KEY}: is it the right bucket, prefix or folder?",
            fault=FaultCode.OTHER_CLUSTER,
        )


async def _claim_life(store: ObjectStore, life: str) -> None:
    """Tie the store to the log's life, or find that it is tied to it."""
    ours = _life_object(life)
    try:
        present = bytes(await store.get(LIFE_KEY))
    except ObjectNotFoundError:
        try:
            await store.put_new(LIFE_KEY, [ours])
        except ObjectExistsError:
            present = bytes(await store.get(LIFE_KEY))
        else:
            return
    _must_be_life_of(present, life)


def _life_object(life: str) -> bytes:
    return json.dumps({"life": life}).encode() + b"\n"


def _must_be_life_of(present: bytes, life: str) -> None:
    """What the store has is of that life of the log. Raises ClusterMismatchError."""
    if present != _life_object(life):
        raise ClusterMismatchError(
            f"the object store belongs to another metadata log ({LIFE_KEY} there says"
            f" {present[:64].decode(errors='replace').strip()}, the log says {life}): the log was"
            " replaced or lost; restore it, recover the cluster from this store (frazil recover), or begin"
            " with an empty one",
            fault=FaultCode.OTHER_CLUSTER,
        )
