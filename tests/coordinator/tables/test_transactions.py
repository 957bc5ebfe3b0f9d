"""Transactional ids in the machine: bounds, exhausted epochs, the order of checks, small steps."""

from copy import deepcopy

import pytest

from coordinator.commands.entries import (
    AllocateProducerIds,
    Command,
    DeleteTopic,
    Done,
    Outcome,
    ProducerIdsAllocated,
    Rejected,
)
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_SHARDS,
    ClaimShards,
    CommittedOffset,
    DeleteGroup,
    ExpireOffsets,
    OffsetsCommitted,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    ClientProof,
    CommitTransactionOffsets,
    EndTransaction,
    ExpireProducers,
    ExpireTransactionalIds,
    GiveUpTransaction,
    InitProducer,
    PartitionProducers,
    ProducerInitialized,
    TransactionEnded,
)
from coordinator.machine.transaction_applier import COMMAND_ROWS_MAX
from coordinator.tables import groups, transactions
from coordinator.tables.transactions import TransactionRow, Transactions
from protocol.errors import ErrorCode
from protocol.types import Incarnation, TopicId
from storage.formats.spans import Marker
from tests.coordinator.machine.story import Story, batch, span
from txn.producers import describe
from txn.transactions import EPOCH_EXHAUSTED, EPOCH_LAST, OF_EPOCH, State, TransactionMetadata


class Begun(Story):
    """A topic of three partitions, all shards, and a transactional id."""

    def __init__(self) -> None:
        super().__init__()
        self.agent: Incarnation = self.open()
        self.topic_id: TopicId = self.topic(self.agent, partitions=3)
        self.do(self.agent, ClaimShards(tuple(range(GROUP_SHARDS))))
        self.producer_id, self.epoch = self.init("orders")

    def init(self, transactional_id: str) -> tuple[int, int]:
        return self.producer(self.agent, transactional_id)

    def row(self) -> TransactionRow:
        row = self.machine.transactions.get("orders")
        assert row is not None
        return row

    def write(self, partition: int = 0, sequence: int = 0, instance: int = OF_EPOCH) -> ErrorCode:
        item = batch(self.producer_id, sequence, 2, epoch=self.epoch, instance=instance)
        (result,) = self.commit(self.agent, span(self.topic_id, item, partition=partition))
        return result.error

    def add(self, *partitions: int, groups: tuple[str, ...] = ()) -> Outcome:
        row = self.row()
        instance = row.txn_metadata.instance + (not row.is_ongoing)
        places = tuple((self.topic_id, partition) for partition in partitions)
        return self.do(
            self.agent,
            AddToTransaction("orders", self.producer_id, self.epoch, instance, 1, places, groups),
        )

    def send_offsets(
        self, *partitions: int, group_id: str = "billing", metadata: str = ""
    ) -> Outcome:
        offsets = tuple(
            CommittedOffset(self.topic_id, partition, 5, -1, metadata) for partition in partitions
        )
        return self.do(
            self.agent,
            CommitTransactionOffsets(
                group_id, "", EPOCH_NONE, self.producer_id, self.epoch, OF_EPOCH, offsets
            ),
        )

    def end(self, *, commit: bool) -> TransactionEnded:
        command = EndTransaction("orders", self.producer_id, self.epoch, commit, None)
        outcome = self.do(self.agent, command)
        assert isinstance(outcome, TransactionEnded)
        self.producer_id, self.epoch = outcome.producer_id, outcome.producer_epoch
        return outcome


def refused(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, Rejected)
    return outcome.error


# Epochs that are exhausted.


@pytest.fixture(scope="module")
def worn_out() -> Begun:
    """The epochs of `orders` are exhausted by aborts of nothing."""
    story = Begun()
    while story.epoch < EPOCH_EXHAUSTED:
        story.end(commit=False)
    story.log.clear()
    return story


@pytest.fixture
def worn(worn_out: Begun) -> Begun:
    return deepcopy(worn_out)


def test_the_end_of_an_exhausted_epoch_gives_a_new_producer_id(worn: Begun):
    old_id = worn.producer_id
    assert worn.write() == ErrorCode.NONE
    ended = worn.end(commit=True)
    assert (ended.producer_id, ended.producer_epoch) == (old_id + 1, 0)
    assert worn.partition(worn.topic_id).row(1) == Marker(
        base_offset=2,
        producer_id=old_id,
        producer_epoch=EPOCH_LAST,
        commit=True,
        timestamp=worn.clock_ms,
    )
    assert worn.write() == ErrorCode.NONE
    windows = worn.partition(worn.topic_id).windows or {}
    assert {known: describe(window).epoch for known, window in windows.items()} == {
        old_id: EPOCH_LAST,
        old_id + 1: 0,
    }


def test_a_repeated_end_of_an_exhausted_epoch_takes_no_second_id(worn: Begun):
    worn.write()
    command = EndTransaction("orders", worn.producer_id, worn.epoch, commit=True, proof=None)
    first, again = (worn.do(worn.agent, command) for _ in range(2))
    assert isinstance(first, TransactionEnded)
    assert isinstance(again, TransactionEnded)
    assert (first.producer_id, again.producer_id) == (1, 1)
    assert worn.do(worn.agent, AllocateProducerIds(1)) == ProducerIdsAllocated(2, 1)


def test_a_client_that_was_given_up_with_an_exhausted_epoch_is_told_so(worn: Begun):
    worn.write()
    give_up = GiveUpTransaction(
        "orders", worn.producer_id, worn.epoch, worn.row().txn_metadata.instance, timed_out=True
    )
    assert isinstance(worn.do(worn.agent, give_up), TransactionEnded)
    assert worn.machine.transactions.by_producer(worn.producer_id) is worn.row()
    assert worn.write(partition=1) == ErrorCode.TRANSACTION_ABORTABLE
    recovered = worn.do(worn.agent, InitProducer("orders", 1000, worn.producer_id, worn.epoch))
    assert recovered == ProducerInitialized(1, 0)


def test_only_the_newest_two_producer_ids_find_the_row(worn: Begun):
    worn.end(commit=False)
    table = worn.machine.transactions
    assert [table.by_producer(producer_id) for producer_id in (0, 1)] == [worn.row()] * 2
    worn.do(worn.agent, ExpireTransactionalIds(0, ("orders",)))
    assert [table.by_producer(producer_id) for producer_id in (0, 1)] == [None, None]
    assert (len(table), table.size) == (0, 0)


def test_the_producer_id_before_the_last_one_finds_no_row():
    table = Transactions()
    row = table.create("orders", TransactionMetadata(5, 0))
    for producer_id in (6, 7):
        table.transition_to(
            row,
            TransactionMetadata(producer_id, 0, previous_id=producer_id - 1),
            clock_ms=0,
            time_ms=0,
        )
    assert [table.by_producer(producer_id) for producer_id in (5, 6, 7)] == [None, row, row]


def test_ids_of_transactional_producers_are_in_no_block_of_an_agent():
    story = Begun()
    blocks = [story.do(story.agent, AllocateProducerIds(10)) for _ in range(2)]
    assert blocks == [ProducerIdsAllocated(1, 10), ProducerIdsAllocated(11, 10)]
    assert story.init("payments") == (21, 0)
    assert story.init("payments") == (21, 1)
    assert story.do(story.agent, AllocateProducerIds(1)) == ProducerIdsAllocated(22, 1)


# Bounds.


def test_no_more_transactional_ids_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "TRANSACTIONAL_IDS_MAX", 2)
    story = Begun()
    story.init("payments")
    refusal = story.do(story.agent, InitProducer("one more", 1000, -1, -1))
    assert refused(refusal) == ErrorCode.POLICY_VIOLATION
    assert story.machine.producer_ids.next == 2
    story.init("orders")
    story.do(story.agent, ExpireTransactionalIds(0, ("payments",)))
    story.init("one more")


def test_a_transactional_id_is_not_empty():
    story = Begun()
    outcome = story.do(story.agent, InitProducer("", 1000, -1, -1))
    assert refused(outcome) == ErrorCode.INVALID_REQUEST


def test_ids_have_no_more_characters_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "ID_SIZE_MAX", 20)
    story = Begun()
    outcome = story.do(story.agent, InitProducer("x" * 15, 1000, -1, -1))
    assert refused(outcome) == ErrorCode.POLICY_VIOLATION
    assert refused(story.add(groups=("y" * 15,))) == ErrorCode.POLICY_VIOLATION
    assert story.add(groups=("y" * 14,)) == Done()
    assert story.add(groups=("y" * 14,)) == Done()
    assert refused(story.add(groups=("z",))) == ErrorCode.POLICY_VIOLATION
    story.end(commit=True)
    assert story.add(groups=("z" * 14,)) == Done()


def test_a_transaction_has_no_more_participants_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "PARTICIPANTS_MAX", 2)
    story = Begun()
    assert refused(story.add(0, 1, 2)) == ErrorCode.POLICY_VIOLATION
    assert not story.row().is_ongoing
    assert story.add(0, groups=("billing",)) == Done()
    assert story.add(0, 0, groups=("billing", "billing")) == Done()
    assert refused(story.add(1)) == ErrorCode.POLICY_VIOLATION
    assert story.write(partition=0) == ErrorCode.NONE
    assert story.write(partition=1) == ErrorCode.POLICY_VIOLATION
    assert refused(story.send_offsets(0, group_id="audit")) == ErrorCode.POLICY_VIOLATION
    assert story.partition(story.topic_id, 1).end_offset == 0


def test_all_transactions_have_no_more_participants_than_the_bound(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(transactions, "ALL_PARTICIPANTS_MAX", 3)
    story = Begun()
    assert story.add(0, 1) == Done()
    producer_id, epoch = story.init("payments")
    places = ((story.topic_id, 0), (story.topic_id, 1))
    add = AddToTransaction("payments", producer_id, epoch, 1, 1, places, ())
    assert refused(story.do(story.agent, add)) == ErrorCode.POLICY_VIOLATION
    story.end(commit=False)
    assert story.do(story.agent, add) == Done()


def test_no_more_offsets_wait_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(groups, "PENDING_OFFSETS_MAX", 2)
    story = Begun()
    assert refused(story.send_offsets(0, 1, 2)) == ErrorCode.POLICY_VIOLATION
    assert not story.row().is_ongoing
    assert story.machine.groups.get("billing") is None
    assert isinstance(story.send_offsets(0, 1), OffsetsCommitted)
    story.end(commit=True)
    assert isinstance(story.send_offsets(1, 2), OffsetsCommitted)


def test_what_waits_counts_as_what_groups_take(monkeypatch: pytest.MonkeyPatch):
    story = Begun()
    size = len("billing") + 3 * 4
    monkeypatch.setattr(groups, "GROUPS_SIZE_MAX", size)
    assert isinstance(story.send_offsets(0, 1, 2, metadata="four"), OffsetsCommitted)
    assert story.machine.groups.size == size
    assert refused(story.send_offsets(0, metadata="x")) == ErrorCode.POLICY_VIOLATION
    story.end(commit=False)
    assert story.machine.groups.size == len("billing")


MANY = COMMAND_ROWS_MAX + 1


@pytest.mark.parametrize(
    "make",
    [
        lambda story: AddToTransaction(
            "orders", story.producer_id, 0, 1, 1, ((story.topic_id, 0),) * MANY, ()
        ),
        lambda story: AddToTransaction("orders", story.producer_id, 0, 1, 1, (), ("g",) * MANY),
        lambda story: ExpireTransactionalIds(0, ("orders",) * MANY),
        lambda story: ExpireProducers(
            0, (PartitionProducers(story.topic_id, 0, tuple(range(MANY))),)
        ),
        lambda story: CommitTransactionOffsets(
            "g",
            "",
            EPOCH_NONE,
            story.producer_id,
            0,
            OF_EPOCH,
            (CommittedOffset(story.topic_id, 0, 0, -1, ""),) * MANY,
        ),
    ],
    ids=["partitions", "groups", "ids", "producers", "offsets"],
)
def test_a_command_has_no_more_rows_than_the_bound(make: object):
    story = Begun()
    command: Command = make(story)  # type: ignore[operator]
    assert refused(story.do(story.agent, command)) == ErrorCode.INVALID_REQUEST
    assert not story.row().is_ongoing


# What is refused changes nothing.


def test_a_refused_batch_begins_no_transaction():
    story = Begun()
    assert story.write(sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert story.row().txn_metadata.state is State.EMPTY
    assert story.row().started_ms == -1


def test_refused_offsets_begin_no_transaction_and_make_no_group():
    story = Begun()
    offsets = (CommittedOffset(story.topic_id, 0, 5, -1, ""),)
    command = CommitTransactionOffsets(
        "billing", "m1", 3, story.producer_id, story.epoch, OF_EPOCH, offsets
    )
    assert refused(story.do(story.agent, command)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert not story.row().is_ongoing
    assert story.machine.groups.get("billing") is None


def test_offsets_of_topics_that_are_gone_begin_the_transaction_all_the_same():
    """Its client has been heard: an EndTxn that follows must not find nothing."""
    story = Begun()
    gone = CommittedOffset(TopicId(bytes(16)), 0, 5, -1, "")
    command = CommitTransactionOffsets(
        "billing", "", EPOCH_NONE, story.producer_id, story.epoch, OF_EPOCH, (gone,)
    )
    outcome = story.do(story.agent, command)
    assert outcome == OffsetsCommitted((ErrorCode.UNKNOWN_TOPIC_ID,))
    assert list(story.row().group_ids) == ["billing"]
    assert story.machine.groups.get("billing") is None
    assert story.end(commit=True).state is State.COMPLETE_COMMIT


def test_two_chunks_of_one_entry_begin_one_transaction():
    story = Begun()
    first, second = (
        story.chunk(
            span(story.topic_id, batch(story.producer_id, 0, instance=OF_EPOCH), partition=index)
        )
        for index in (0, 1)
    )
    story.do_all(story.agent, first, second)
    assert story.row().txn_metadata.instance == 1
    assert [partition for _, partition in story.row().partitions] == [0, 1]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_batch_of_tv2_takes_the_right_to_end_from_the_connection_of_the_adds(partition: int):
    """Also where the transaction has records already, and takes part."""
    story = Begun()
    story.add(0, 1)
    assert story.write(partition=0, instance=1) == ErrorCode.NONE
    proof = ClientProof(1, 1, story.machine.position, challenged=False)
    sequence = 2 if partition == 0 else 0
    assert story.write(partition=partition, sequence=sequence) == ErrorCode.NONE
    end = EndTransaction("orders", story.producer_id, story.epoch, commit=True, proof=proof)
    assert refused(story.do(story.agent, end)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert story.end(commit=True).state is State.COMPLETE_COMMIT


def test_ongoing_transactions_are_in_the_order_of_their_start():
    story = Begun()
    producer_id, epoch = story.init("payments")
    places = ((story.topic_id, 0),)
    story.do(story.agent, AddToTransaction("payments", producer_id, epoch, 1, 1, places, ()))
    story.write()
    assert list(story.machine.transactions.ongoing) == ["payments", "orders"]
    story.do(story.agent, EndTransaction("payments", producer_id, epoch, True, None))
    story.do(story.agent, AddToTransaction("payments", producer_id, epoch + 1, 2, 1, places, ()))
    assert list(story.machine.transactions.ongoing) == ["orders", "payments"]
    rows = [row.transactional_id for row in story.machine.transactions]
    assert rows == ["orders", "payments"]


# What is forgotten.


def test_windows_that_expire_are_counted_no_more():
    story = Begun()
    for producer_id in (100, 101):
        story.commit(story.agent, span(story.topic_id, batch(producer_id, 0)))
    rows = (PartitionProducers(story.topic_id, 0, (100, 100, 5)),)
    story.do(story.agent, ExpireProducers(0, rows))
    assert story.machine.partitions.window_count == 1
    assert list(story.partition(story.topic_id).windows or ()) == [101]


def test_an_offset_that_a_transaction_may_change_does_not_expire():
    story = Begun()
    story.send_offsets(0)
    story.end(commit=True)
    story.send_offsets(0)
    expire = ExpireOffsets("billing", 0, ((story.topic_id, 0),))
    story.do(story.agent, expire)
    group = story.machine.groups.get("billing")
    assert group is not None
    assert (len(group.offsets), group.offsets.pending_count) == (1, 1)
    story.end(commit=False)
    story.do(story.agent, expire)
    assert (len(group.offsets), group.offsets.pending_count) == (0, 0)


def test_what_waits_in_a_group_that_is_deleted_is_counted_no_more():
    story = Begun()
    story.send_offsets(0, 1)
    groups = story.machine.groups
    assert (groups.offset_rows, groups.pending_rows) == (2, 2)
    story.do(story.agent, DeleteGroup("billing", only_without_offsets=False))
    assert (groups.offset_rows, groups.pending_rows, groups.size) == (0, 0, 0)


def test_of_two_offsets_for_a_place_in_one_entry_the_later_one_stays():
    story = Begun()
    other_id, other_epoch = story.init("others")

    def offset(producer_id: int, epoch: int, value: int) -> Command:
        return CommitTransactionOffsets(
            "billing",
            "",
            EPOCH_NONE,
            producer_id,
            epoch,
            OF_EPOCH,
            (CommittedOffset(story.topic_id, 0, value, -1, ""),),
        )

    story.do_all(
        story.agent,
        offset(story.producer_id, story.epoch, 10),
        offset(other_id, other_epoch, 20),
    )
    story.do(story.agent, EndTransaction("others", other_id, other_epoch, True, None))
    story.end(commit=True)
    group = story.machine.groups.get("billing")
    assert group is not None
    row = group.offsets.get(story.topic_id, 0)
    assert row is not None
    assert row.offset == 20


def test_a_deleted_topic_that_waits_for_its_purge_gets_no_marker():
    story = Begun()
    story.write()
    partition = story.partition(story.topic_id)
    story.do(story.agent, DeleteTopic(story.topic_id))
    assert story.end(commit=True).marked == ()
    assert (partition.end_offset, partition.row_count) == (2, 1)
    assert story.machine.partitions.row_count == 1
