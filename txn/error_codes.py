"""Translates errors of transactions into the codes of each API and version.

`apply` and `txn.transactions` speak one language, the newest one; clients that are older than a
code are told an older one. Kafka does this in many places (`KafkaApis`, `ReplicaManager`,
`AddPartitionsToTxnManager`, `CoordinatorOperationExceptionHelper`); here it is one table. A row
holds for versions up to its own; rows are looked at in order; a code in none of them is told as
it is.

    PRODUCER_FENCED(90)         is younger than the APIs: 47 in old versions (KIP-360, KIP-588).
                                Never told to Produce and TxnOffsetCommit: there 47 in all versions.
    TRANSACTION_ABORTABLE(120)  of KIP-890 (and KIP-1050): 48 before.
    CONCURRENT_TRANSACTIONS(51) is retried by clients everywhere but in Produce before v12 and in
                                TxnOffsetCommit.
    NOT_ENOUGH_REPLICAS(19)     "another transaction is open now, send it again": as it is in
                                Produce; 15 in TxnOffsetCommit, which all clients send again after
                                having looked for the group's coordinator.

Two of Kafka's mappings are left out. TxnOffsetCommit there tells 15 for 3 and 7, which are about
the internal topic; here 3 says that the topic of an offset is gone, and 7 that the offsets may
still be committed (P4), and clients send both again. REQUEST_TIMED_OUT is never made milder.
"""

from typing import Final, NamedTuple

from protocol.errors import ErrorCode as E


class Row(NamedTuple):
    """Versions up to `last` are sent `told` in place of `code`."""

    last: int
    code: E
    told: E


_ALL: Final = 32_767
"""As the last version of a row: it holds in all of them."""

ADD: Final = (
    Row(1, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
    Row(3, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
)
"""AddPartitionsToTxn and AddOffsetsToTxn."""

INIT: Final = (
    Row(3, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
    Row(4, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
)
"""InitProducerId."""

END: Final = (
    Row(1, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
    Row(3, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
)
"""EndTxn."""

PRODUCE: Final = (
    Row(_ALL, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
    Row(10, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
    Row(11, E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS),
    Row(_ALL, E.NETWORK_EXCEPTION, E.NOT_ENOUGH_REPLICAS),
    Row(_ALL, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS),
    Row(_ALL, E.COORDINATOR_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS),
    Row(_ALL, E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS),
)
"""Produce, of a transaction's batches. Producers retry 19; 13 to 16 are not for them."""

TXN_OFFSET_COMMIT: Final = (
    Row(_ALL, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
    Row(3, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
    Row(_ALL, E.STALE_MEMBER_EPOCH, E.ILLEGAL_GENERATION),
    Row(_ALL, E.GROUP_ID_NOT_FOUND, E.ILLEGAL_GENERATION),
    Row(_ALL, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION),
    Row(1, E.NETWORK_EXCEPTION, E.COORDINATOR_NOT_AVAILABLE),
    Row(1, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE),
    Row(1, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_NOT_AVAILABLE),
    Row(_ALL, E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS),
    Row(_ALL, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS),
    Row(_ALL, E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
    Row(_ALL, E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
    Row(_ALL, E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
    Row(_ALL, E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    Row(_ALL, E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
)
"""TxnOffsetCommit; the versions served carry topics by name, and members as OffsetCommit did."""


def for_add(code: E, version: int) -> E:
    """Translates for AddPartitionsToTxn and AddOffsetsToTxn of a version."""
    return _told(ADD, code, version)


def for_init(code: E, version: int) -> E:
    """Translates for InitProducerId of a version."""
    return _told(INIT, code, version)


def for_end(code: E, version: int) -> E:
    """Translates for EndTxn of a version."""
    return _told(END, code, version)


def for_produce(code: E, version: int) -> E:
    """Translates for a transactional batch in Produce of a version."""
    return _told(PRODUCE, code, version)


def for_txn_offset_commit(code: E, version: int) -> E:
    """Translates for TxnOffsetCommit of a version."""
    return _told(TXN_OFFSET_COMMIT, code, version)


def _told(rows: tuple[Row, ...], code: E, version: int) -> E:
    for row in rows:
        if code is row.code and version <= row.last:
            return row.told
    return code
