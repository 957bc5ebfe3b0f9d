"""Which transaction a Produce request's batches are said to belong to."""

import pytest

from broker.transactions.batch_transactions import (
    MISMATCH,
    NONE_SEEN,
    Producer,
    Refusal,
    explain,
    instance_of,
    is_seen,
    likely_instance,
    producer_of,
)
from coordinator.tables.objects import Objects
from coordinator.tables.partition import Partition
from coordinator.tables.transactions import Transactions
from protocol.errors import ErrorCode
from protocol.records import TRANSACTIONAL
from protocol.types import Position, TopicId
from tests.kit.batches import batch
from txn.transactions import OF_EPOCH, State, TransactionMetadata

T = TopicId(bytes(16))
PLACE = (T, 0)
P = Producer(7, 3)
TV1 = 11
TV2 = 12


def _topics(*batches: bytes | None):
    views = [None if data is None else memoryview(data) for data in batches]
    return [("t", None, list(enumerate(views)))]


def _transactional(producer_id: int = 7, epoch: int = 3) -> bytes:
    return batch(producer_id=producer_id, epoch=epoch, sequence=0, attributes=TRANSACTIONAL)


def _table(**changes) -> Transactions:
    """The id `x`, whose second transaction is open in PLACE; the first ended at position 10."""
    table = Transactions()
    row = table.create("x", TransactionMetadata(7, 3))
    for txn_metadata in (
        TransactionMetadata(7, 3, state=State.ONGOING, instance=1),
        TransactionMetadata(7, 3, state=State.COMPLETE_COMMIT, instance=1),
        TransactionMetadata(7, 3, state=State.ONGOING, instance=2)._replace(**changes),
    ):
        table.transition_to(row, txn_metadata, clock_ms=0, time_ms=0)
    row.ended_at = Position(10)
    if row.is_ongoing:
        table.join(row, [Partition(T, 0, Objects())], ())
    return table


def test_a_request_without_transactional_batches_has_no_producer_of_a_transaction() -> None:
    plain = batch(producer_id=7, epoch=3, sequence=0)
    assert producer_of(None, _topics(plain, batch(), None, b"", bytes(61))) is None
    assert producer_of("x", _topics(plain)) is None


def test_the_producer_of_a_request_is_that_of_its_transactional_batches() -> None:
    other = batch(producer_id=8, epoch=0, sequence=0)
    topics = _topics(other, _transactional()) + _topics(_transactional())
    assert producer_of("x", topics) == P


def test_transactional_batches_need_a_transactional_id() -> None:
    refusal = producer_of(None, _topics(batch(), _transactional()))
    assert isinstance(refusal, Refusal)
    assert refusal.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # The absence of an id comes first, as in Kafka.
    both = producer_of(None, _topics(_transactional(), _transactional(epoch=4)))
    assert isinstance(both, Refusal)
    assert both.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("other", [_transactional(epoch=4), _transactional(producer_id=8)])
def test_transactional_batches_of_two_producers_are_refused_as_a_whole(other: bytes) -> None:
    refusal = producer_of("x", _topics(_transactional(), other))
    assert isinstance(refusal, Refusal)
    assert refusal.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_batch_of_an_older_format_is_not_taken_for_a_transactional_one() -> None:
    old = bytearray(_transactional())
    old[16] = 1
    assert producer_of(None, _topics(bytes(old))) is None


def test_an_open_transaction_with_the_partition_needs_no_barrier_and_is_named() -> None:
    table = _table()
    assert is_seen(table, "x", P, [PLACE], version=TV1)
    assert instance_of(table, "x", P, version=TV1, clock=Position(10)) == 2


@pytest.mark.parametrize(
    ("transactional_id", "producer", "places", "changes"),
    [
        ("y", P, [PLACE], {}),
        ("x", Producer(8, 3), [PLACE], {}),
        ("x", Producer(7, 4), [PLACE], {}),
        ("x", P, [PLACE, (T, 1)], {}),
        ("x", P, [PLACE], {"state": State.COMPLETE_ABORT}),
        ("x", P, [PLACE], {"state": State.EMPTY}),
    ],
    ids=["id", "producer", "newer epoch", "partition", "ended", "never begun"],
)
def test_what_is_not_seen_is_looked_for_behind_a_barrier(
    transactional_id: str, producer: Producer, places, changes
) -> None:
    table = _table(**changes)
    assert not is_seen(table, transactional_id, producer, places, version=TV1)


def test_a_fenced_epoch_needs_no_barrier_for_it_stays_fenced() -> None:
    assert is_seen(_table(), "x", Producer(7, 2), [(T, 5)], version=TV1)


def test_newer_clients_need_a_barrier_only_for_an_unknown_producer() -> None:
    ended = _table(state=State.COMPLETE_COMMIT)
    assert is_seen(ended, "x", P, [(T, 5)], version=TV2)
    assert is_seen(ended, "x", Producer(7, 4), [PLACE], version=TV2)
    assert not is_seen(ended, "x", Producer(8, 3), [PLACE], version=TV2)
    assert not is_seen(ended, "y", P, [PLACE], version=TV2)


def test_newer_clients_mean_the_transaction_of_their_epoch() -> None:
    for table in (Transactions(), _table(), _table(state=State.COMPLETE_COMMIT)):
        assert instance_of(table, "x", P, version=TV2, clock=Position(0)) == OF_EPOCH


@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_producer_id_of_another_transactional_id_is_refused(version: int) -> None:
    assert instance_of(_table(), "y", P, version=version, clock=Position(99)) is MISMATCH


def test_without_an_open_transaction_the_newest_one_is_named_and_the_log_decides() -> None:
    ended = _table(state=State.COMPLETE_COMMIT)
    assert instance_of(ended, "x", P, version=TV1, clock=Position(99)) == 2
    assert instance_of(Transactions(), "x", P, version=TV1, clock=Position(99)) == NONE_SEEN


def test_a_request_read_before_a_transaction_ended_never_names_the_next_one() -> None:
    table = _table()
    assert instance_of(table, "x", P, version=TV1, clock=Position(9)) == 1
    assert instance_of(table, "x", P, version=TV1, clock=Position(10)) == 2


def test_a_refused_batch_is_awaited_in_the_transaction_that_is_open_or_comes_next() -> None:
    assert likely_instance(_table(), 7, version=TV1) == 2
    assert likely_instance(_table(state=State.COMPLETE_ABORT), 7, version=TV1) == 3
    assert likely_instance(Transactions(), 7, version=TV1) == 1
    assert likely_instance(_table(), 7, version=TV2) == OF_EPOCH


def test_a_transaction_that_was_given_up_is_said_to_have_timed_out() -> None:
    table = _table(state=State.COMPLETE_ABORT, epoch=4, last_epoch=3, given_up=True)
    row = table.get("x")
    for code in (ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTION_ABORTABLE):
        assert "timed out" in (explain(code, row, P) or "")
    assert "timed out" not in (explain(ErrorCode.PRODUCER_FENCED, row, Producer(7, 2)) or "")
    assert "epoch 3" in (explain(ErrorCode.PRODUCER_FENCED, _table().get("x"), P) or "")
    assert explain(ErrorCode.CORRUPT_MESSAGE, row, P) is None
