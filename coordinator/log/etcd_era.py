"""Another era on etcd (`MetadataLog.begin_era`): one transaction, that of a recovery.

It compares that nobody has written another identity, and that no session is open in the era that ends nor in the one that
begins. The keys of the era that ends stay, and nobody reads them any more.
"""

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd_client import EtcdClient
from coordinator.log.etcd_cut import CutState
from coordinator.log.etcd_keys import Keys, created_at, equals, get, none_in, only, put
from coordinator.log.etcd_void import all_sessions, session_of
from coordinator.log.metadata_log import LiveSessionsError, other_identity


async def read_identity(client: EtcdClient, keys: Keys) -> bytes:
    """Empty when nobody has written one."""
    response = await client.range(pb.RangeRequest(key=keys.identity))
    return response.kvs[0].value if response.kvs else b""


async def write_era(
    client: EtcdClient,
    keys: tuple[Keys, Keys],
    eras: tuple[int, int],
    identity: bytes,
    *,
    snapshots: bytes,
    instead_of: bytes,
    first: int,
) -> None:
    """`keys`, `eras`: of the one that ends and the one that begins, at revision `first`. Raises as the port says."""
    ending, beginning = keys
    whose = equals(ending.identity, instead_of) if instead_of else created_at(ending.identity, 0)
    response = await client.txn(
        pb.TxnRequest(
            compare=[whose, none_in(ending.session_prefix), none_in(beginning.session_prefix)],
            success=[
                put(beginning.identity, identity),
                put(beginning.snapshot, b"0\n" + snapshots),
                put(beginning.cut, CutState(through=first, done=first).encoded()),
            ],
            failure=[
                get(ending.identity),
                *[pb.RequestOp(request_range=all_sessions(each)) for each in keys],
            ],
        )
    )
    if response.succeeded:
        return
    found, *open_now = response.responses
    live = [
        session_of(each, era, pair)
        for each, era, answer in zip(keys, eras, open_now, strict=True)
        for pair in answer.response_range.kvs
    ]
    if live:
        raise LiveSessionsError(live)
    written = only(found)
    if written is None or written.value != identity:
        raise other_identity()
