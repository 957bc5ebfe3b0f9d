"""A machine whose log was lost goes on in the next era, with what is left of it."""

import pytest

from coordinator.commands.entries import AllocateProducerIds, ProducerIdsAllocated
from coordinator.commands.job_commands import ClaimJobs, JobKind
from coordinator.commands.transaction_commands import InitProducer, ProducerInitialized
from coordinator.machine.machine import Machine
from coordinator.machine.plan_view import topic_plan
from coordinator.snapshot.snapshot import dump, is_dump_of, restore
from coordinator.tables.eras import UNKNOWN_EPOCH, EpochEnd
from protocol.errors import ErrorCode
from protocol.types import Position, first_producer_id, leader_epoch_of_producer, position
from tests.coordinator.histories import history
from tests.coordinator.machine.story import batch, begun, plain, span
from txn.transactions import OF_EPOCH, State

SECOND = position(2, 1)
KEY = "snapshots/of-the-second-era/manifest"


def in_second_era(machine: Machine) -> Machine:
    machine.begin_era(SECOND, snapshot_key=KEY)
    return machine


def test_records_keep_their_offsets_in_the_next_era() -> None:
    story, agent, topic_id = begun()
    story.commit(agent, span(topic_id, plain(records=10)))
    before = story.partition(topic_id).rows_from(0, 10)
    in_second_era(story.machine)
    partition = story.partition(topic_id)
    assert (partition.end_offset, partition.last_stable) == (10, 10)
    assert partition.rows_from(0, 10) == before


def test_nobody_of_the_era_before_lives_in_the_next_one() -> None:
    story, agent, _ = begun()
    story.do(agent, ClaimJobs((JobKind.SNAPSHOT,)))
    in_second_era(story.machine)
    assert len(story.machine.incarnations) == 0
    assert story.machine.jobs.get(JobKind.SNAPSHOT).holder == 0


def test_an_open_transaction_is_aborted_with_the_era_in_which_it_was_opened() -> None:
    story, agent, topic_id = begun()
    producer_id, epoch = story.producer(agent, "pay")
    story.commit(agent, span(topic_id, batch(producer_id, 0, epoch=epoch, instance=OF_EPOCH)))
    assert story.partition(topic_id).last_stable == 0
    in_second_era(story.machine)
    partition = story.partition(topic_id)
    assert partition.last_stable == partition.end_offset == 11
    (aborted,) = partition.aborted(0, 11)
    assert (aborted.producer_id, aborted.first_offset) == (producer_id, 0)
    row = story.machine.transactions.get("pay")
    assert row is not None
    assert row.txn_metadata.state is State.COMPLETE_ABORT
    assert not story.machine.transactions.ongoing


def test_a_producer_of_the_era_before_is_nobody_in_the_next_one() -> None:
    story, agent, _ = begun()
    producer_id, epoch = story.producer(agent, "pay")
    in_second_era(story.machine)
    second = story.open_in_era(2)
    refused = story.do(second, InitProducer("pay", 60_000, producer_id, epoch))
    assert refused.error is ErrorCode.PRODUCER_FENCED
    begun_anew = story.do(second, InitProducer("pay", 60_000, -1, -1))
    assert isinstance(begun_anew, ProducerInitialized)
    assert leader_epoch_of_producer(begun_anew.producer_id) == 1


def test_producer_ids_that_the_lost_log_may_have_given_are_not_given_again() -> None:
    story, agent, _ = begun()
    story.do(agent, AllocateProducerIds(1000))
    in_second_era(story.machine)
    second = story.open_in_era(2)
    given = story.do(second, AllocateProducerIds(1000))
    assert given == ProducerIdsAllocated(first_producer_id(2), 1000)


def test_an_epoch_ends_where_its_era_did_and_before_the_markers_that_ended_its_transactions() -> (
    None
):
    story, agent, topic_id = begun(partitions=2)
    producer_id, epoch = story.producer(agent, "pay")
    story.commit(agent, span(topic_id, batch(producer_id, 0, epoch=epoch, instance=OF_EPOCH)))
    machine = in_second_era(story.machine)
    end = story.partition(topic_id).end_offset

    def end_of(epoch: int, partition: int = 0) -> EpochEnd:
        return machine.eras.end_of(machine.topics, (topic_id, partition), epoch, end)

    assert machine.eras.leader_epoch == 1
    assert end_of(0) == EpochEnd(0, 10)
    assert end_of(1) == EpochEnd(1, 11)
    assert end_of(2) == end_of(-1) == EpochEnd(UNKNOWN_EPOCH, -1)
    assert end_of(0, partition=1) == EpochEnd(0, 0), "it was there, and had no records"


def test_a_partition_had_no_epoch_before_the_era_in_which_it_was_made() -> None:
    story, _, _ = begun()
    machine = in_second_era(story.machine)
    second = story.open_in_era(2)
    topic_id = story.topic(second, "later")
    assert machine.eras.end_of(machine.topics, (topic_id, 0), 0, 5) == EpochEnd(UNKNOWN_EPOCH, -1)


def test_an_epoch_between_two_eras_ends_where_the_next_one_began() -> None:
    story, agent, topic_id = begun()
    story.commit(agent, span(topic_id, plain(records=10)))
    machine = in_second_era(story.machine)
    second = story.open_in_era(2)
    story.commit(second, span(topic_id, plain(records=5)))
    machine.begin_era(position(4, 1), snapshot_key=KEY)
    ends = [machine.eras.end_of(machine.topics, (topic_id, 0), epoch, 99) for epoch in range(4)]
    assert ends == [EpochEnd(0, 10), EpochEnd(1, 15), EpochEnd(2, 15), EpochEnd(3, 99)]


@pytest.mark.parametrize("seed", range(6))
def test_a_machine_of_a_later_era_is_restored_from_its_snapshot(seed: int) -> None:
    machine = in_second_era(history(seed, steps=400).machine)
    parts = dump(machine)
    restored = Machine()
    restore(restored, [*parts])
    assert is_dump_of(restored, parts)
    assert restored.eras.leader_epoch == 1
    (published,) = restored.snapshots.published
    assert (published.position, published.key, published.digest) == (SECOND, KEY, machine.digest())


def test_an_era_begins_behind_all_that_was_applied() -> None:
    machine = history(1, steps=50).machine
    with pytest.raises(AssertionError):
        machine.begin_era(Position(machine.position + 1), snapshot_key=KEY)


def test_what_was_stable_ends_in_an_era_where_a_transaction_was_open() -> None:
    story, agent, topic_id = begun(partitions=3)
    producer_id, epoch = story.producer(agent, "pay")
    story.commit(agent, span(topic_id, plain(records=4)))
    story.commit(agent, span(topic_id, batch(producer_id, 0, epoch=epoch, instance=OF_EPOCH)))
    story.commit(agent, span(topic_id, plain(records=3)))
    story.commit(agent, span(topic_id, plain(records=5), partition=1))
    machine = Machine()
    restore(machine, dump(in_second_era(story.machine)))
    (era,) = machine.eras.rows
    assert [era.stable_end_of((topic_id, number)) for number in range(3)] == [4, 5, 0]
    views = topic_plan(machine, topic_id).view["partitions"]
    assert [view["eras"] for view in views] == [[[SECOND, end]] for end in (4, 5, 0)]
