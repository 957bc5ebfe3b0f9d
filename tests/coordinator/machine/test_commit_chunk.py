"""Objects: offsets, duplicates, refusals, how items become spans, and the counts of chunks."""

import pytest

from coordinator.commands.entries import (
    AllocateProducerIds,
    ChunkCommitted,
    Close,
    CommitChunk,
    ItemResult,
    ProducerIdsAllocated,
    Rejected,
)
from coordinator.tables.producer_ids import PRODUCER_IDS_MAX
from protocol.errors import ErrorCode
from storage.formats.spans import ObjectId, Span
from tests.coordinator.machine.story import Story, batch, begun, plain, span, with_agents

NONE = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def errors(results: list[ItemResult]) -> list[ErrorCode]:
    return [result.error for result in results]


def offsets(results: list[ItemResult]) -> list[int]:
    return [result.base_offset for result in results]


def test_offsets_are_assigned_in_order_of_the_items():
    story, agent, topic_id = begun()
    results = story.commit(agent, span(topic_id, plain(records=10), plain(records=5)))
    assert results == [ItemResult(NONE, 0, 0), ItemResult(NONE, 10, 0)]
    assert offsets(story.commit(agent, span(topic_id, plain(records=1)))) == [15]
    assert story.partition(topic_id).end_offset == 16
    assert story.partition(topic_id).last_stable == 16


def test_partitions_have_offsets_of_their_own():
    story, agent, topic_id = begun(partitions=2)
    results = story.commit(
        agent, span(topic_id, plain(), partition=0), span(topic_id, plain(), partition=1, start=100)
    )
    assert offsets(results) == [0, 0]


def test_neighbouring_items_make_one_span():
    story, agent, topic_id = begun()
    story.commit(
        agent,
        span(topic_id, plain(100, 10, 7), plain(50, 5, 9), batch(1, 0, 3, timestamp=8), start=40),
    )
    partition = story.partition(topic_id)
    assert partition.row_count == 1
    assert partition.row(0) == Span(ObjectId(agent, 0), 40, 250, 0, 18, 9)


def test_skipped_bytes_divide_the_span():
    story, agent, topic_id = begun()
    story.commit(agent, span(topic_id, plain(skip=8), plain(), plain(skip=7)))
    partition = story.partition(topic_id)
    assert [(each.start, each.length) for each in partition.rows_from(0, 9)] == [
        (8, 200),
        (215, 100),
    ]


def test_an_idempotent_batch_is_appended_once():
    story, agent, topic_id = begun()
    first = story.commit(agent, span(topic_id, batch(7, 0, 10, timestamp=123)))
    again = story.commit(agent, span(topic_id, batch(7, 0, 10, timestamp=123)))
    assert first == [ItemResult(NONE, 0, 0)]
    assert again == [ItemResult(NONE, 0, 0, duplicate=True, timestamp_max=123)]
    assert story.partition(topic_id).end_offset == 10


def test_a_duplicate_in_the_middle_divides_the_span():
    story, agent, topic_id = begun()
    story.commit(agent, span(topic_id, batch(7, 0, 10)))
    results = story.commit(agent, span(topic_id, plain(), batch(7, 0, 10), batch(7, 10, 10)))
    assert offsets(results) == [10, 0, 20]
    assert story.partition(topic_id).rows_from(10, 9) == [
        Span(ObjectId(agent, 1), 0, 100, 10, 10, 500),
        Span(ObjectId(agent, 1), 200, 100, 20, 10, 500),
    ]


def test_a_refused_batch_gets_no_offset_and_refuses_those_that_follow_it():
    story, agent, topic_id = begun()
    story.commit(agent, span(topic_id, batch(7, 0, 10)))
    results = story.commit(agent, span(topic_id, batch(7, 11, 1), batch(7, 12, 1), plain()))
    assert errors(results) == [OUT_OF_ORDER, OUT_OF_ORDER, NONE]
    assert offsets(results) == [-1, -1, 10]
    assert [result.log_start for result in results] == [0, 0, 0]


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_a_producer_id_with_a_negative_epoch_or_sequence_is_refused(epoch: int, sequence: int):
    story, agent, topic_id = begun()
    results = story.commit(agent, span(topic_id, batch(7, sequence, epoch=epoch), plain()))
    assert errors(results) == [ErrorCode.INVALID_RECORD, NONE]
    assert story.partition(topic_id).windows is None


def test_batches_that_claim_the_most_records_are_counted():
    story, agent, topic_id = begun()
    most = 2**31 - 1
    story.commit(agent, span(topic_id, batch(7, 0, most), plain(records=20 * most)))
    assert story.partition(topic_id).end_offset == 21 * most


def test_the_same_batch_twice_in_one_chunk_is_appended_once():
    story, agent, topic_id = begun()
    results = story.commit(agent, span(topic_id, batch(7, 0), batch(7, 0)))
    assert [result.duplicate for result in results] == [False, True]


def test_producers_have_a_window_for_each_partition():
    story, agent, topic_id = begun(partitions=2)
    results = story.commit(
        agent,
        span(topic_id, batch(7, 0), batch(8, 500), partition=0),
        span(topic_id, batch(7, 300), partition=1, start=200),
    )
    assert errors(results) == [NONE, NONE, NONE]
    assert list(story.partition(topic_id, 0).windows or ()) == [7, 8]


def test_a_retry_through_another_agent_is_known_again():
    story, first, second = with_agents("a", "b")
    topic_id = story.topic(first)
    story.commit(first, span(topic_id, batch(7, 0)))
    (result,) = story.commit(second, span(topic_id, batch(7, 0)))
    assert result.duplicate


@pytest.mark.parametrize("partition", [-1, 2, 99])
def test_a_partition_that_does_not_exist_is_refused_and_the_others_are_not(partition: int):
    story, agent, topic_id = begun(partitions=2)
    results = story.commit(
        agent,
        span(topic_id, plain(), batch(1, 0), partition=partition),
        span(topic_id, plain(), partition=1, start=200),
    )
    unknown = ItemResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert results == [unknown, unknown, ItemResult(NONE, 0, 0)]


def test_a_chunk_number_that_is_not_above_the_highest_is_refused():
    story, agent, topic_id = begun()
    story.do(agent, CommitChunk(5, 100, (span(topic_id, plain()),)))
    for number in (0, 5):
        outcome = story.do(agent, CommitChunk(number, 100, (span(topic_id, plain()),)))
        assert isinstance(outcome, Rejected)
    assert story.partition(topic_id).end_offset == 10


def test_a_chunk_number_far_ahead_is_refused():
    story, agent = with_agents()
    outcome = story.do(agent, CommitChunk(2**32 - 1, 0, ()))
    assert isinstance(outcome, Rejected)


def test_chunk_numbers_may_leave_gaps():
    story, agent, topic_id = begun()
    for number in (3, 10, 11):
        outcome = story.do(agent, CommitChunk(number, 100 + number, (span(topic_id, plain()),)))
        assert isinstance(outcome, ChunkCommitted)
    assert [story.machine.object_length(ObjectId(agent, number)) for number in (3, 10, 11)] == [
        103,
        110,
        111,
    ]
    with pytest.raises(KeyError):
        story.machine.object_length(ObjectId(agent, 4))


def test_a_span_over_the_end_of_the_chunk_refuses_all_of_it():
    story, agent, topic_id = begun()
    spans = (span(topic_id, plain(100)), span(topic_id, plain(100), start=100))
    outcome = story.do(agent, CommitChunk(0, 199, spans))
    assert isinstance(outcome, Rejected)
    assert story.partition(topic_id).end_offset == 0


def test_chunks_of_two_incarnations_have_their_own_numbers():
    story, first, second = with_agents("a", "b")
    topic_id = story.topic(first)
    story.do(first, CommitChunk(0, 100, (span(topic_id, plain(100)),)))
    story.do(second, CommitChunk(0, 200, (span(topic_id, plain(200)),)))
    assert [each.object_id for each in story.partition(topic_id).rows_from(0, 9)] == [
        ObjectId(first, 0),
        ObjectId(second, 0),
    ]
    assert story.machine.object_length(ObjectId(first, 0)) == 100
    assert story.machine.object_length(ObjectId(second, 0)) == 200


def test_records_of_a_closed_incarnation_stay():
    story, first, second = with_agents("a", "b")
    topic_id = story.topic(first)
    story.commit(first, span(topic_id, plain()))
    story.do(second, Close(first, 2))
    assert story.partition(topic_id).row(0).object_id == ObjectId(first, 0)
    assert story.machine.object_length(ObjectId(first, 0)) == 100


def test_a_chunk_of_duplicates_only_is_unreferenced_from_the_start():
    story, agent, topic_id = begun()
    story.commit(agent, span(topic_id, batch(7, 0)))
    story.commit(agent, span(topic_id, batch(7, 0)))
    assert [number for (_, number, _), _, _ in story.machine.objects.unreferenced()] == [1]
    with pytest.raises(KeyError):
        story.machine.object_length(ObjectId(agent, 1))


def test_producer_ids_come_in_blocks_that_never_overlap():
    story, first, second = with_agents("a", "b")
    assert story.do(first, AllocateProducerIds(1000)) == ProducerIdsAllocated(0, 1000)
    assert story.do(second, AllocateProducerIds(10)) == ProducerIdsAllocated(1000, 10)
    assert story.do(first, AllocateProducerIds(1)) == ProducerIdsAllocated(1010, 1)


@pytest.mark.parametrize("count", [-1, 0, PRODUCER_IDS_MAX + 1])
def test_a_block_of_producer_ids_is_bounded(count: int):
    story = Story()
    assert isinstance(story.do(story.open(), AllocateProducerIds(count)), Rejected)
