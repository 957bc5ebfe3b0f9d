"""What the metadata log says about transactions, expiry of producers, and feature levels.

Every command about a transaction names which one it saw: by its number (`instance`), or, of TV2
clients, by the epoch. One that comes late, however often it is written, changes nothing else
(docs/design/transactions.md §2). What is judged is in `txn.transactions`; batches are in
`CommitChunk`.

Transactions belong to no agent: any may write these commands, and the position decides. Only
offsets need the group's coordinator, as in `group_commands`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from coordinator.commands.group_commands import CommittedOffset
from protocol.types import Position, TopicId
from txn.transactions import State


@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId of a transactional id. Outcome: `ProducerInitialized`."""

    transactional_id: str
    timeout_ms: int
    producer_id: int
    """-1 and -1: a new producer takes over."""
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class AddToTransaction:
    """Partitions and groups take part from now on, all or none. Outcome: Done, or refused.

    UNKNOWN_TOPIC_OR_PARTITION: a topic is gone. By TV1 clients.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    instance: int
    """The transaction to join, or to start: that was so for the agent that proposed it."""
    connection: int
    """Number of the client's connection at the writer."""
    partitions: tuple[tuple[TopicId, int], ...]
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitTransactionOffsets:
    """Offsets that become visible when the transaction is committed. Outcome: `OffsetsCommitted`.

    Fenced by shard, member and epoch as `CommitOffsets`; by no member at any time (KIP-447: an
    old client says nothing about members). TRANSACTION_ABORTABLE: the group takes no part (TV1).
    """

    group_id: str
    member_id: str
    epoch: int
    producer_id: int
    producer_epoch: int
    instance: int
    """Or OF_EPOCH, which adds the group."""
    offsets: tuple[CommittedOffset, ...]


class ClientProof(NamedTuple):
    """`txn.transactions.Proof`, but for the writer's incarnation, which the entry names."""

    instance: int
    connection: int
    clock: Position
    challenged: bool


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """EndTxn. Outcome: `TransactionEnded`, also when it was ended so before; or refused."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    proof: ClientProof | None
    """None: of a TV2 client (EndTxn v5), which is told the next epoch."""


@dataclass(frozen=True, slots=True)
class GiveUpTransaction:
    """Abort exactly this transaction: an agent saw it open for too long, or an admin wants it.

    Outcome: `TransactionEnded`, or refused because it is not open any more.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    instance: int
    timed_out: bool
    """Else an admin's wish. For what is counted."""


@dataclass(frozen=True, slots=True)
class ExpireTransactionalIds:
    """Forget those of the ids, none with an open transaction, unused for so long.

    By the machine's time, since the newest change of each.
    """

    expiration_ms: int
    transactional_ids: tuple[str, ...]


class PartitionProducers(NamedTuple):
    topic_id: TopicId
    partition: int
    producer_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExpireProducers:
    """Forget what partitions know of those producers that wrote nothing for so long.

    By the machine's time; never of one with an open transaction there.
    """

    expiration_ms: int
    producers: tuple[PartitionProducers, ...]


@dataclass(frozen=True, slots=True)
class SetFeatureLevel:
    """Finalize `transaction.version` at a level that every live incarnation can (KIP-584)."""

    feature: str
    level: int


TransactionCommand = (
    InitProducer
    | AddToTransaction
    | CommitTransactionOffsets
    | EndTransaction
    | GiveUpTransaction
    | ExpireTransactionalIds
    | ExpireProducers
    | SetFeatureLevel
)


class Marked(NamedTuple):
    """A partition that got a marker: records before it may have become stable."""

    topic_id: TopicId
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProducerInitialized:
    producer_id: int
    producer_epoch: int
    marked: tuple[Marked, ...] = ()
    """Of the transaction that was aborted by it."""


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    producer_id: int
    """With which the client goes on; TV2 clients are told."""
    producer_epoch: int
    state: State
    marked: tuple[Marked, ...] = ()
    """Empty as well when it had been ended before."""
