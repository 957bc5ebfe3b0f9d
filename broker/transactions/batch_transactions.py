"""Which transaction the batches of a Produce request belong to. Pure.

Clients before KIP-890 (Produce until v11, "TV1") have added the partition by a request, and use the
same epoch in many transactions. So this agent says in the chunk which one it saw, by its number,
and the log refuses the batch in any other: one that is held up in an agent cannot slide into a
later transaction. Newer clients (v12 on, "TV2") have an epoch for every transaction, which the
log begins if need be.

Nothing is refused from here that the log might accept: the log alone knows whether a batch is a
repetition, and those are answered as successes, also when their transaction is long over. So a batch
of which this replica knows, behind a barrier, no open transaction names the newest one there was;
the log then says what it is: a repetition, fenced, or outside of a transaction. If a newer
transaction begins meanwhile it is sent back with NOT_ENOUGH_REPLICAS. Only that a producer id
belongs to another transactional id is said here: that never changes.

Invariant: a batch is never given the number of a transaction that began after another one had
ended while the batch was in this agent already (`clock`): it may have been meant for that one.

Left out: sequences and the verdict itself (`coordinator.machine.machine`), codes by version
(`txn.error_codes`).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from coordinator.tables.transactions import TransactionRow, Transactions
from protocol.errors import ErrorCode
from protocol.produce import ProduceTopic
from protocol.records import HEADER_BYTES, MAGIC, TRANSACTIONAL
from protocol.types import Position, TopicId
from txn.transactions import OF_EPOCH, State

IMPLICIT_FROM: Final = 12
"""From this version of Produce on batches add their partitions themselves (KIP-890)."""

NONE_SEEN: Final = 0
"""As an instance: there was no transaction yet. The first one is number 1."""

_MAGIC_AT: Final = 16
_ATTRIBUTES_LOW_AT: Final = 22
_PRODUCER_AT: Final = 43
_PRODUCER: Final = struct.Struct(">qh")


class Producer(NamedTuple):
    """The producer of all transactional batches of a request."""

    producer_id: int
    epoch: int


class Refusal(NamedTuple):
    """What the sender is told."""

    error: ErrorCode
    message: str


MISMATCH: Final = Refusal(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the producer id belongs to another transactional id"
)


def producer_of(
    transactional_id: str | None, topics: Sequence[ProduceTopic]
) -> Producer | Refusal | None:
    """Whose transactional batches a request holds; None: it has none.

    Batches are not checked yet: from one that is none something else is told later.
    """
    found: Producer | None = None
    for _, _, partitions in topics:
        for _, data in partitions:
            if data is None or len(data) < HEADER_BYTES:
                continue
            if not data[_ATTRIBUTES_LOW_AT] & TRANSACTIONAL or data[_MAGIC_AT] != MAGIC:
                continue
            if transactional_id is None:
                message = "transactional batches without a transactional id"
                return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
            producer = _PRODUCER.unpack_from(data, _PRODUCER_AT)
            if producer == found or producer[0] < 0:
                continue
            if found is not None:
                message = "transactional batches of several producers in one request"
                return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
            found = Producer._make(producer)
    return found


def is_seen(
    transactions: Transactions,
    transactional_id: str,
    producer: Producer,
    places: Iterable[tuple[TopicId, int]],
    *,
    version: int,
) -> bool:
    """What is not applied here yet cannot change what `instance_of` says; else: a barrier (P8)."""
    row = transactions.get(transactional_id)
    if row is None or row.txn_metadata.producer_id != producer.producer_id:
        return False
    txn_metadata = row.txn_metadata
    if version >= IMPLICIT_FROM or txn_metadata.epoch > producer.epoch:
        return True
    if txn_metadata.epoch < producer.epoch or txn_metadata.state is not State.ONGOING:
        return False
    partitions = row.partitions
    return all(place in partitions for place in places)


def instance_of(
    transactions: Transactions,
    transactional_id: str,
    producer: Producer,
    *,
    version: int,
    clock: Position,
) -> int | Refusal:
    """What the batches of a request say as their transaction (`storage.formats.spans.Item.instance`).

    `clock`: the position applied here when the first byte of the request was read.
    """
    row = transactions.by_producer(producer.producer_id)
    if row is not None and row.transactional_id != transactional_id:
        return MISMATCH
    if version >= IMPLICIT_FROM:
        return OF_EPOCH
    if row is None:
        return NONE_SEEN
    # One that ended after `clock` may be the one that the client meant: then never the next one.
    return row.txn_metadata.instance - (row.ended_at > clock)


def likely_instance(transactions: Transactions, producer_id: int, *, version: int) -> int:
    """The transaction as part of which a batch of the producer that was refused will come again."""
    if version >= IMPLICIT_FROM:
        return OF_EPOCH
    row = transactions.by_producer(producer_id)
    if row is None:
        return NONE_SEEN + 1
    txn_metadata = row.txn_metadata
    return txn_metadata.instance + (txn_metadata.state is not State.ONGOING)


def explain(code: ErrorCode, row: TransactionRow | None, producer: Producer) -> str | None:
    """What to say with an error about a transactional batch; None: nothing but its code.

    `row`: of the request's transactional id, as it stands when the error is told.
    """
    if (
        code in _FENCED
        and row is not None
        and row.txn_metadata.given_up
        and row.txn_metadata.last_epoch == producer.epoch
    ):
        return "the transaction timed out (or an administrator aborted it)"
    if code in _FENCED_EPOCH:
        return f"epoch {producer.epoch} of producer {producer.producer_id} is not the newest one"
    return _MESSAGES.get(code)


_FENCED_EPOCH: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_FENCED: Final = _FENCED_EPOCH | {
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
_MESSAGES: Final = {
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id is not that of the transactional id",
    ErrorCode.INVALID_TXN_STATE: "a transaction of the producer is open",
    ErrorCode.NOT_ENOUGH_REPLICAS: "another transaction of the producer has begun",
    ErrorCode.TRANSACTION_ABORTABLE: "the partition takes no part in an open transaction",
}
