"""The entries on etcd that are voided (`MetadataLog.void`): one key for each, under its revision.

One transaction writes such a key together with the entry that tells of it. It compares that no key of a
session is there, that the entry lies where it was looked at, and that nothing else was published.
So no agent has a session on both sides of it.
"""

from collections.abc import Sequence
from typing import Final

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd_client import EtcdClient
from coordinator.log.etcd_cut import published_of
from coordinator.log.etcd_keys import (
    Keys,
    created_at,
    end_of,
    get,
    modified_at,
    none_in,
    only,
    put,
)
from coordinator.log.metadata_log import (
    VOIDS_MAX,
    LiveSessionsError,
    LogEntry,
    LogUnavailableError,
    Session,
    VoidedEntry,
)
from coordinator.log.voided import check, decode_void, encode_void, other_snapshots
from protocol.types import Incarnation, era_of, position, revision_of

NOTICE_TTL_MS: Final = 60_000
"""Of a lease that is there for its number only."""
LIVE_TOLD_MAX: Final = 100
TRIES: Final = 3


async def read_voids(client: EtcdClient, keys: Keys) -> list[VoidedEntry]:
    response = await client.range(_all_voids(keys))
    return [decode_void(pair.value) for pair in response.kvs]


async def write_void(
    client: EtcdClient,
    keys: Keys,
    entry: VoidedEntry,
    notice: Sequence[pb.RequestOp],
    *,
    snapshots: bytes,
) -> int:
    """The revision of the notice. Raises as `MetadataLog.void`."""
    revision = revision_of(entry.position)
    void_key, entry_key = keys.void(revision), keys.entry(entry.session, entry.n)
    reads = [
        get(void_key),
        pb.RequestOp(request_range=all_sessions(keys)),
        get(entry_key),
        get(keys.snapshot),
        pb.RequestOp(request_range=_all_voids(keys)),
    ]
    for _ in range(TRIES):
        read = (await client.txn(pb.TxnRequest(success=reads))).responses
        written, found, published = only(read[0]), only(read[2]), only(read[3])
        if written is not None:
            return written.create_revision
        era = era_of(entry.position)
        if live := read[1].response_range.kvs:
            raise LiveSessionsError([session_of(keys, era, pair) for pair in live])
        check(entry, _logged(entry, era, found), voids=len(read[4].response_range.kvs))
        if (b"" if published is None else published_of(published)[1]) != snapshots:
            raise other_snapshots()
        compare = [
            created_at(void_key, 0),
            none_in(keys.session_prefix),
            modified_at(entry_key, revision),
            modified_at(keys.snapshot, 0 if published is None else published.mod_revision),
        ]
        success = [put(void_key, encode_void(entry)), *notice]
        response = await client.txn(pb.TxnRequest(compare=compare, success=success))
        if response.succeeded:
            return response.header.revision
    raise LogUnavailableError("others write into the log meanwhile")


def _all_voids(keys: Keys) -> pb.RangeRequest:
    return pb.RangeRequest(
        key=keys.void_prefix, range_end=end_of(keys.void_prefix), limit=VOIDS_MAX
    )


def all_sessions(keys: Keys) -> pb.RangeRequest:
    """Those that are open, as many as are told of."""
    return pb.RangeRequest(
        key=keys.session_prefix,
        range_end=end_of(keys.session_prefix),
        limit=LIVE_TOLD_MAX,
        keys_only=True,
    )


def session_of(keys: Keys, era: int, pair: pb.KeyValue) -> Session:
    incarnation = Incarnation(position(era, pair.create_revision))
    return Session(int(pair.key[len(keys.session_prefix) :], 16), incarnation)


def _logged(entry: VoidedEntry, era: int, pair: pb.KeyValue | None) -> LogEntry | None:
    """What lies under the number of the entry."""
    if pair is None:
        return None
    return LogEntry(position(era, pair.mod_revision), entry.session, entry.n, pair.value)
