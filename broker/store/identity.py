"""Checks that store and log belong to this cluster and to each other (docs/design/running.md §2).

Both carry the cluster's name and era, and both carry the log's *life*: a number drawn when the
log was first written. So neither another cluster's bucket is used, nor a bucket that belongs to
an earlier log of the same name (whose chunk names would come again with other contents), nor an
empty bucket by mistake for the one that the log's entries point into.

Definite mismatches raise `ClusterMismatchError`; what may pass raises the ports' own errors, and the
composition root asks again.

A store that replaces what is there is no store for records, and refused here, too.
"""

import json
import random

from coordinator.log.metadata_log import LogRefusedError, MetadataLog
from protocol.fault_codes import FaultCode, FaultError, Sentence
from protocol.types import POSITION_ZERO
from storage.formats import cluster_identity
from storage.formats.cluster_identity import ClusterIdentity
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


async def check(
    store: ObjectStore, log: MetadataLog, identity: ClusterIdentity, rng: random.Random
) -> str:
    """Mark store and log as this cluster's, or find them so. May be repeated after any error.

    Returns the log's life.

    Raises WrongPlaceError for good, and StoreError and LogError.
    """
    life = await _claim_log(log, identity, rng)
    # In this order: entries come only after the store was claimed, so a log that has some while
    # the store has no marker is not this store's log.
    head = await log.head()
    try:
        present = await cluster_identity.read_identity(store)
        if present is None and head > POSITION_ZERO:
            raise ClusterMismatchError(
                "the metadata log has entries, but the object store has no"
                f" {cluster_identity.KEY}: is it the right bucket, prefix or folder?",
                fault=FaultCode.OTHER_CLUSTER,
            )
        await cluster_identity.claim_store(store, identity)
    except StoreRefusedError as error:
        raise ClusterMismatchError.of(error) from error
    await _claim_life(store, life)
    await check_puts_once(store, PUT_ONCE_KEY, b"%016x" % rng.getrandbits(64))
    return life


async def _claim_log(log: MetadataLog, identity: ClusterIdentity, rng: random.Random) -> str:
    """The log's life, after making sure that the log is this cluster's."""
    ours = {
        "cluster_id": identity.cluster_id,
        "era": identity.era,
        "format_version": FORMAT_VERSION,
        "life": f"{rng.getrandbits(4 * LIFE_HEX_DIGITS):0{LIFE_HEX_DIGITS}x}",
    }
    try:
        written = await log.identify(json.dumps(ours, sort_keys=True).encode())
    except LogRefusedError as error:
        raise ClusterMismatchError.of(error) from error
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
    if (cluster_id, era) != (identity.cluster_id, identity.era):
        raise ClusterMismatchError(
            f"the metadata log belongs to cluster {cluster_id!r}, era {era}, but this agent to"
            f" {identity.describe()}: point it to another log, or set the right cluster.id",
            fault=FaultCode.OTHER_CLUSTER,
        )
    return life


async def _claim_life(store: ObjectStore, life: str) -> None:
    """Tie the store to the log's life, or find that it is tied to it."""
    ours = json.dumps({"life": life}).encode() + b"\n"
    try:
        present = bytes(await store.get(LIFE_KEY))
    except ObjectNotFoundError:
        try:
            await store.put_new(LIFE_KEY, [ours])
        except ObjectExistsError:
            present = bytes(await store.get(LIFE_KEY))
        else:
            return
    if present != ours:
        raise ClusterMismatchError(
            f"the object store belongs to another metadata log ({LIFE_KEY} there says"
            f" {present[:64].decode(errors='replace').strip()}, the log says {life}): the log was"
            " replaced or lost; restore it, or begin with an empty store",
            fault=FaultCode.OTHER_CLUSTER,
        )
