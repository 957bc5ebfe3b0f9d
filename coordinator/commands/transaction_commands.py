"""What the metadata log says about transactions, expiry of producers, and feature levels.

Every command about a transaction names which one it saw: by its number (`instance`), or, of TV2
clients, by the epoch. One that comes late, however often it is written, changes nothing else
(docs/design/transactions.md §2). What is judged is in `txn.transactions`; batches are in
`CommitChunk`.

Transactions belong to no agent: any may write these commands, and the position decides. Only
offsets need the group's coordinator, as in `group_commands`.
"""

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from coordinator.commands.declaration import command, outcome
from coordinator.commands.encoding import CodecError
from coordinator.commands.group_commands import CommittedOffsets
from coordinator.commands.layout import Int16, Int32, Int64, Layout, UInt63, layout_of
from coordinator.commands.runs import Places, producers_of
from protocol.types import Position, TopicId
from txn.transactions import State


@command(20)
@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId of a transactional id. Outcome: `ProducerInitialized`."""

    transactional_id: str
    timeout_ms: Int64
    producer_id: Int64
    """-1 and -1: a new producer takes over."""
    producer_epoch: Int16


@command(21)
@dataclass(frozen=True, slots=True)
class AddToTransaction:
    """Partitions and groups take part from now on, all or none. Outcome: Done, or refused.

    UNKNOWN_TOPIC_OR_PARTITION: a topic is gone. By TV1 clients.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    instance: UInt63
    """The transaction to join, or to start: that was so for the agent that proposed it."""
    connection: UInt63
    """Number of the client's connection at the writer."""
    partitions: Places
    group_ids: tuple[str, ...]


@command(22)
@dataclass(frozen=True, slots=True)
class CommitTransactionOffsets:
    """Offsets that become visible when the transaction is committed. Outcome: `OffsetsCommitted`.

    Fenced by shard, member and epoch as `CommitOffsets`; by no member at any time (KIP-447: an
    old client says nothing about members). TRANSACTION_ABORTABLE: the group takes no part (TV1).
    """

    group_id: str
    member_id: str
    epoch: Int32
    producer_id: Int64
    producer_epoch: Int16
    instance: Int64
    """Or OF_EPOCH, which adds the group."""
    offsets: CommittedOffsets


class ClientProof(NamedTuple):
    """`txn.transactions.Proof`, but for the writer's incarnation, which the entry names."""

    instance: UInt63
    connection: UInt63
    clock: Position
    challenged: bool


_COMMIT, _PROOF, _CHALLENGED = 1, 2, 4
"""Flags of EndTransaction: they come first, since there may be no proof."""
_ENDED: Final = layout_of(tuple[str, Int64, Int16])
_PROOF_FIELDS: Final = layout_of(tuple[UInt63, UInt63, Position])


def _put_end(out: bytearray, end: "EndTransaction") -> None:
    flags = _COMMIT if end.commit else 0
    if end.proof is not None:
        flags |= _PROOF | (_CHALLENGED if end.proof.challenged else 0)
    out.append(flags)
    _ENDED.put(out, (end.transactional_id, end.producer_id, end.producer_epoch))
    if end.proof is not None:
        _PROOF_FIELDS.put(out, end.proof[:3])


def _read_end(data: bytes, at: int) -> tuple["EndTransaction", int]:
    flags = data[at]
    if flags >= _CHALLENGED << 1 or (flags & _CHALLENGED and not flags & _PROOF):
        raise CodecError(f"an end with flags {flags:#x}")
    (transactional_id, producer_id, epoch), at = _ENDED.read(data, at + 1)
    proof = None
    if flags & _PROOF:
        (instance, connection, clock), at = _PROOF_FIELDS.read(data, at)
        proof = ClientProof(instance, connection, clock, bool(flags & _CHALLENGED))
    commit = bool(flags & _COMMIT)
    return EndTransaction(transactional_id, producer_id, epoch, commit, proof), at


@command(23, layout=Layout(_put_end, _read_end))
@dataclass(frozen=True, slots=True)
class EndTransaction:
    """EndTxn. Outcome: `TransactionEnded`, also when it was ended so before; or refused."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    commit: bool
    proof: ClientProof | None
    """None: of a TV2 client (EndTxn v5), which is told the next epoch."""


@command(
    24,
    order=("timed_out", "transactional_id", "producer_id", "producer_epoch", "instance"),
)
@dataclass(frozen=True, slots=True)
class GiveUpTransaction:
    """Abort exactly this transaction: an agent saw it open for too long, or an admin wants it.

    Outcome: `TransactionEnded`, or refused because it is not open any more.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    instance: UInt63
    timed_out: bool
    """Else an admin's wish. For what is counted."""


@command(25)
@dataclass(frozen=True, slots=True)
class ExpireTransactionalIds:
    """Forget those of the ids, none with an open transaction, unused for so long.

    By the machine's time, since the newest change of each.
    """

    expiration_ms: UInt63
    transactional_ids: tuple[str, ...]


class PartitionProducers(NamedTuple):
    topic_id: TopicId
    partition: int
    producer_ids: tuple[int, ...]


@command(26)
@dataclass(frozen=True, slots=True)
class ExpireProducers:
    """Forget what partitions know of those producers that wrote nothing for so long.

    By the machine's time; never of one with an open transaction there.
    """

    expiration_ms: UInt63
    producers: Annotated[tuple[PartitionProducers, ...], producers_of(PartitionProducers._make)]


@command(27)
@dataclass(frozen=True, slots=True)
class SetFeatureLevel:
    """Finalize `transaction.version` at a level that every live incarnation can (KIP-584)."""

    feature: str
    level: Int64


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


@outcome(10, "qh", rows="16sIq")
@dataclass(frozen=True, slots=True)
class ProducerInitialized:
    producer_id: int
    producer_epoch: int
    marked: tuple[Marked, ...] = ()
    """Of the transaction that was aborted by it."""


@outcome(11, "qhB", rows="16sIq")
@dataclass(frozen=True, slots=True)
class TransactionEnded:
    producer_id: int
    """With which the client goes on; TV2 clients are told."""
    producer_epoch: int
    state: State
    marked: tuple[Marked, ...] = ()
    """Empty as well when it had been ended before."""
