"""One transactional id: what InitProducerId, adds, batches and EndTxn do to it, as pure functions.

    EMPTY ──add──▶ ONGOING ──end──▶ COMPLETE_COMMIT or COMPLETE_ABORT ──add──▶ ONGOING …

A `TransactionMetadata` is all that these decisions look at; every function takes the one before and gives the
one after, or an error of Kafka's. There are no Prepare states: one entry of the log ends a
transaction everywhere (docs/design/transactions.md §5), so no request ever meets one half ended.

Two generations of clients are served, told apart by the versions of their requests (KIP-890):

* TV1 (EndTxn v0-4): partitions and groups are added by requests; the epoch stays the same from
  transaction to transaction, so nothing in an EndTxn says which one it means. Therefore every
  transaction has a number, its *instance*, and an EndTxn counts only with a `Proof` that it is
  not a late one: it came on the connection that made every add of the instance, or on one that
  has answered a challenge (KAFKA-17754).
* TV2 (EndTxn v5): batches and offsets add themselves; every end bumps the epoch, so pid and epoch
  name the transaction and a late request can only be a repetition.

Invariants: the instance grows by one with each start and is never reset; what names another
instance or epoch than the metadata changes nothing. Specification: KIP-98, KIP-360, KIP-588,
KIP-890 and Kafka's `TransactionMetadata`.

Left out: which partitions and groups take part (the machine's rows), time, expiry, what errors are
called in which version (`txn.error_codes`).
"""

from enum import IntEnum
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Incarnation, Position

EPOCH_EXHAUSTED: Final = 32_766
"""From this epoch on a producer gets a new id instead of the next epoch."""
EPOCH_LAST: Final = 32_767
"""Only ever that of the markers that end the last transaction of an exhausted producer id."""

NO_TRANSACTION: Final = -1
"""As a batch's instance: it is not transactional."""
OF_EPOCH: Final = -2
"""As the instance of a TV2 client's batch or offsets: that of the epoch, begun if need be."""


class State(IntEnum):
    """Kafka's ids and, capitalised as there, names (`TransactionState`)."""

    EMPTY = 0
    ONGOING = 1
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


class Connection(NamedTuple):
    """A client's connection: the agent's incarnation when it was used, and its number there."""

    incarnation: Incarnation
    number: int


class Adds(NamedTuple):
    """The connections that made the adds of the current instance. Implicit adds (TV2) count for none."""

    owner: Connection | None = None
    """The connection that made every one of them; None: there is no such one."""
    newest_by: Connection | None = None
    newest_at: Position = POSITION_ZERO
    others_at: Position = POSITION_ZERO
    """The newest add by another connection than `newest_by`."""

    def begun(self, by: Connection, at: Position) -> "Adds":
        """The adds of an instance that `by` starts."""
        return Adds(by, by, at)

    def joined(self, by: Connection, at: Position) -> "Adds":
        """One more add, also one that adds nothing. A newcomer never becomes the owner."""
        owner = self.owner if by == self.owner else None
        others_at = self.others_at if by == self.newest_by else self.newest_at
        return Adds(owner, by, at, others_at)

    def newest_but_by(self, connection: Connection) -> Position:
        """The newest add that any other connection made."""
        return self.others_at if connection == self.newest_by else self.newest_at


class TransactionMetadata(NamedTuple):
    """The state of a transactional id that decisions need."""

    producer_id: int
    epoch: int
    last_epoch: int = -1
    """The epoch before, whose holder may learn the current one by repeating its request; -1: none.

    A new producer taking over clears it: then the old one is fenced for good (KIP-360). So does
    the start of a transaction: whoever starts it has learned its epoch."""
    previous_id: int = -1
    """The producer id before, if its epochs were exhausted; -1: none."""
    state: State = State.EMPTY
    instance: int = 0
    """Number of the newest transaction; 0: there was none yet."""
    adds: Adds = Adds()
    given_up: bool = False
    """The newest transaction was aborted by the cluster: it timed out, or an admin aborted it."""


class Proof(NamedTuple):
    """Why an EndTxn of a TV1 client is not a late one."""

    instance: int
    """The newest when it was read, as its agent knew behind a barrier."""
    connection: Connection
    clock: Position
    """The position applied at its agent when the first byte of its frame was read."""
    challenged: bool
    """It was read after a CONCURRENT_TRANSACTIONS for this instance was written there."""


class Markers(NamedTuple):
    """Producer id and epoch of the markers that end a transaction."""

    producer_id: int
    epoch: int


class Transition(NamedTuple):
    """A request was carried out."""

    after: TransactionMetadata
    markers: Markers | None = None
    """Given when a transaction ended by it: committed if `after` says so, else aborted."""


def exhausted(txn_metadata: TransactionMetadata) -> bool:
    """The next epoch must be one of a new producer id."""
    return txn_metadata.epoch >= EPOCH_EXHAUSTED


def init(
    before: TransactionMetadata | None, *, producer_id: int, epoch: int, fresh_id: int
) -> Transition | ErrorCode:
    """InitProducerId with a transactional id; id and epoch of the caller, or -1 and -1 (KIP-360).

    An open transaction is aborted in the same step, so nobody is sent away with
    CONCURRENT_TRANSACTIONS and a takeover costs one epoch. `fresh_id` is used if an id is needed.
    Refusal: PRODUCER_FENCED; it also spares the transaction, other than Kafka's.
    """
    if before is None:
        return Transition(TransactionMetadata(fresh_id, 0))
    given = producer_id != -1
    if given:
        is_current = producer_id == before.producer_id
        if not is_current and not (producer_id == before.previous_id and epoch >= EPOCH_EXHAUSTED):
            return ErrorCode.PRODUCER_FENCED
        if not (is_current and epoch == before.epoch):
            # A repetition of the request (or EndTxn) that brought the current epoch, or a zombie.
            if epoch == -1 or epoch != before.last_epoch:
                return ErrorCode.PRODUCER_FENCED
            return Transition(before._replace(state=State.EMPTY, given_up=False))
    after, markers = _bumped(before, last_epoch=epoch, fresh_id=fresh_id)
    if before.state is not State.ONGOING:
        return Transition(after)
    return Transition(after, markers)


def _bumped(
    before: TransactionMetadata, *, last_epoch: int, fresh_id: int, state: State = State.EMPTY
) -> tuple[TransactionMetadata, Markers]:
    """The next epoch, of a new producer id when they are exhausted; and the markers that fence."""
    markers = Markers(before.producer_id, before.epoch + 1)
    if exhausted(before):
        markers = Markers(before.producer_id, EPOCH_LAST)
        after = TransactionMetadata(fresh_id, 0, previous_id=before.producer_id)
    else:
        after = TransactionMetadata(
            before.producer_id, before.epoch + 1, previous_id=before.previous_id
        )
    return after._replace(last_epoch=last_epoch, state=state, instance=before.instance), markers


def add(
    before: TransactionMetadata | None,
    *,
    producer_id: int,
    epoch: int,
    instance: int,
    by: Connection,
    at: Position,
) -> TransactionMetadata | ErrorCode:
    """AddPartitionsToTxn or AddOffsetsToTxn; starts the transaction `instance` or joins it.

    Refusals: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; CONCURRENT_TRANSACTIONS when the
    instance that the agent saw is not the one to start or to join any more.
    """
    if (refused := _validate_producer(before, producer_id, epoch)) is not None:
        return refused
    assert before is not None
    if before.state is State.ONGOING:
        if instance != before.instance:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return before._replace(adds=before.adds.joined(by, at))
    if instance != before.instance + 1:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _started(before, before.adds.begun(by, at))


def begin(
    before: TransactionMetadata | None, *, producer_id: int, epoch: int
) -> TransactionMetadata | ErrorCode:
    """A batch or offsets of a TV2 client: the transaction of the epoch, begun if it is not.

    Refusals as of `add` but the last; TRANSACTION_ABORTABLE when the cluster gave up the
    transaction of this epoch, so that the client learns that and not "fenced" (KIP-588, KIP-890).
    """
    if (refused := _validate_producer(before, producer_id, epoch)) is not None:
        if before is not None and _gave_up(before, producer_id, epoch):
            return ErrorCode.TRANSACTION_ABORTABLE
        return refused
    assert before is not None
    if before.state is not State.ONGOING:
        return _started(before, Adds())
    if before.adds.owner is None:
        return before
    # Adds came by requests, of a client that was TV1: it is updated, or they came late. In either
    # case an EndTxn of their connection has no right any more to what is written here.
    return before._replace(adds=before.adds._replace(owner=None))


def check(
    before: TransactionMetadata | None, *, producer_id: int, epoch: int, instance: int
) -> ErrorCode:
    """Whether a batch or offsets of a TV1 client belong to the open transaction, `instance`.

    Refusals as of `add`; TRANSACTION_ABORTABLE when none is open (as when the partition takes no
    part in it); NOT_ENOUGH_REPLICAS (retriable) when another one is, into which a late batch must
    not slide.
    """
    if (refused := _validate_producer(before, producer_id, epoch)) is not None:
        return refused
    assert before is not None
    if before.state is not State.ONGOING:
        return ErrorCode.TRANSACTION_ABORTABLE
    return ErrorCode.NONE if instance == before.instance else ErrorCode.NOT_ENOUGH_REPLICAS


def end(
    before: TransactionMetadata | None, *, producer_id: int, epoch: int, commit: bool, proof: Proof
) -> Transition | ErrorCode:
    """EndTxn v0-4. The epoch stays.

    Refusals: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE;
    CONCURRENT_TRANSACTIONS when the proof does not hold: nothing was changed, ask again.
    """
    if (refused := _validate_producer(before, producer_id, epoch)) is not None:
        return refused
    assert before is not None
    state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    if before.state is State.ONGOING:
        if not proof_holds(proof, before):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        after = before._replace(state=state, adds=Adds(), given_up=False)
        return Transition(after, Markers(producer_id, epoch))
    # A repetition; or a late one, which does no harm here.
    return Transition(before) if before.state is state else ErrorCode.INVALID_TXN_STATE


def proof_holds(proof: Proof, txn_metadata: TransactionMetadata) -> bool:
    """The EndTxn is meant for the open transaction (docs/design/transactions.md §7)."""
    adds = txn_metadata.adds
    return (
        proof.instance == txn_metadata.instance
        and adds.newest_but_by(proof.connection) <= proof.clock
        and (proof.challenged or proof.connection == adds.owner)
    )


def end_bumping(
    before: TransactionMetadata | None, *, producer_id: int, epoch: int, commit: bool, fresh_id: int
) -> Transition | ErrorCode:
    """EndTxn v5 (KIP-890): `after` has the id and epoch of the next transaction.

    An abort with nothing open bumps as well: the client wants to be rid of whatever it sent.
    A repetition is told how it ended, unless the epoch was bumped by someone else: Kafka may tell
    a producer "committed" whose transaction was aborted by the next one's InitProducerId.
    Refusals: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE;
    TRANSACTION_ABORTABLE for a commit of what the cluster gave up.
    """
    if before is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    repeated = _is_repeated(before, producer_id, epoch)
    if producer_id != before.producer_id and not repeated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    complete = before.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    if repeated and complete and epoch == before.last_epoch:
        if commit == (before.state is State.COMPLETE_COMMIT):
            return Transition(before)
        gave_up = commit and before.given_up
        return ErrorCode.TRANSACTION_ABORTABLE if gave_up else ErrorCode.INVALID_TXN_STATE
    if repeated or epoch != before.epoch:
        return ErrorCode.PRODUCER_FENCED
    if before.state is not State.ONGOING and commit:
        return ErrorCode.INVALID_TXN_STATE
    state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    after, markers = _bumped(before, last_epoch=epoch, fresh_id=fresh_id, state=state)
    return Transition(after, markers if before.state is State.ONGOING else None)


def _is_repeated(before: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """The id and epoch are those before the newest bump (Kafka's retryOnEpochBump, -OnOverflow)."""
    if producer_id == before.producer_id:
        return before.epoch == epoch + 1 > 0
    return producer_id == before.previous_id and epoch == EPOCH_EXHAUSTED and before.epoch == 0


def give_up(
    before: TransactionMetadata | None,
    *,
    producer_id: int,
    epoch: int,
    instance: int,
    fresh_id: int,
) -> Transition | ErrorCode:
    """The cluster aborts a transaction: it has timed out, or an admin wants it.

    The epoch is bumped, so its producer is fenced; if nobody takes over, it may go on by
    InitProducerId with the epoch it had. Refusals as of `end`; INVALID_TXN_STATE unless exactly
    this transaction is open.
    """
    if (refused := _validate_producer(before, producer_id, epoch)) is not None:
        return refused
    assert before is not None
    if before.state is not State.ONGOING or before.instance != instance:
        return ErrorCode.INVALID_TXN_STATE
    after, markers = _bumped(
        before, last_epoch=epoch, fresh_id=fresh_id, state=State.COMPLETE_ABORT
    )
    return Transition(after._replace(given_up=True), markers)


def renew(before: TransactionMetadata, *, fresh_id: int) -> Transition:
    """The log has lost its end, and with it maybe what the id did last: nobody goes on with what he had.

    An open transaction is aborted: its end, and some of its records, may be among what was lost. Bumped
    epochs may be, too, so only a new producer id is one that nobody has. The old one is never taken for it.
    """
    after = TransactionMetadata(fresh_id, 0, previous_id=before.producer_id)
    if before.state is not State.ONGOING:
        return Transition(after._replace(instance=before.instance))
    markers = Markers(before.producer_id, min(before.epoch + 1, EPOCH_LAST))
    return Transition(after._replace(instance=before.instance, state=State.COMPLETE_ABORT), markers)


def _validate_producer(
    before: TransactionMetadata | None, producer_id: int, epoch: int
) -> ErrorCode | None:
    if before is None or producer_id != before.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if epoch == before.epoch else ErrorCode.PRODUCER_FENCED


def _gave_up(before: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """It was the transaction of this id and epoch that the cluster aborted, and nobody took over."""
    return (
        before.given_up and epoch == before.last_epoch and _is_repeated(before, producer_id, epoch)
    )


def _started(before: TransactionMetadata, adds: Adds) -> TransactionMetadata:
    return before._replace(
        state=State.ONGOING,
        instance=before.instance + 1,
        adds=adds,
        last_epoch=-1,
        given_up=False,
    )
