"""WriteTxnMarkers from an admin: a transaction that hangs is given up whole (KIP-664)."""

import pytest

from broker.transactions.stats import Ending
from broker.transactions.views import offsets_partition
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.broker.groups.world import agents
from tests.broker.transactions.world import (
    ABORTED,
    OPEN,
    Producer,
    partition,
    producing,
    records,
    txn_metadata,
)
from tests.kit.client import caught_up


async def write(agent, producer, topics, *, commit=False, epoch=None, version=2) -> list:
    """[(topic, partition, code)] of one marker."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        transaction_result=commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=list(indexes))
            for name, indexes in topics.items()
        ],
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = await agent.call(apis.WRITE_TXN_MARKERS, request, version=version)
    (row,) = answer.markers
    assert row.producer_id == producer.producer_id
    return [
        (topic.name, each.partition_index, each.error_code)
        for topic in row.topics
        for each in topic.partitions
    ]


async def hanging(agent) -> Producer:
    producer = await Producer.begin(agent)
    await producer.add({"logs": [0, 1, 2]})
    assert await producer.produce(0) == 0
    assert await producer.produce(1) == 0
    return producer


@pytest.mark.parametrize("version", [1, 2])
async def test_an_abort_in_one_partition_gives_up_the_whole_transaction(version):
    async with producing("one", "two", begin=hanging) as (producer, one, two):
        assert await write(two, producer, {"logs": [1]}, version=version) == [("logs", 1, 0)]
        await one.log_client.barrier()
        assert (txn_metadata(one).state, txn_metadata(one).given_up) == (ABORTED, True)
        assert [partition(one, index).last_stable for index in (0, 1)] == [2, 2]
        assert await records(one, 0) == await records(one, 1) == []
        assert two.node.transactions.stats.ended[Ending.GIVEN_UP] == 1
        assert await producer.end() == ErrorCode.PRODUCER_FENCED


async def test_where_nothing_is_open_there_is_nothing_to_do():
    async with producing(begin=hanging) as (producer, one):
        assert await write(one, producer, {"logs": [3]}) == [("logs", 3, 0)]
        assert txn_metadata(one).state is OPEN
        stranger = producer.copy()
        stranger.producer_id += 1_000
        assert await write(one, stranger, {"logs": [0]}) == [("logs", 0, 0)]
        assert txn_metadata(one).state is OPEN
        assert await write(one, producer, {"logs": [0, 1]}) == [("logs", 0, 0), ("logs", 1, 0)]
        assert txn_metadata(one).state is ABORTED


async def test_a_partition_that_takes_part_without_records_is_reason_enough():
    async with producing(begin=hanging) as (producer, one):
        assert await write(one, producer, {"logs": [2]}) == [("logs", 2, 0)]
        assert txn_metadata(one).state is ABORTED


async def test_a_marker_for_offsets_gives_the_transaction_up_where_its_group_would_have_them():
    async with producing("one", "two", begin=hanging) as (producer, _one, two):
        assert await producer.add_offsets("readers") == 0
        name, own = "__consumer_offsets", offsets_partition("readers")
        other = (own + 1) % 50
        told = await write(two, producer, {name: [other, 50]})
        assert told == [(name, other, 0), (name, 50, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert txn_metadata(two).state is OPEN
        for _ in range(2):  # The second one finds nothing to do.
            assert await write(two, producer, {name: [own]}) == [(name, own, 0)]
            assert (txn_metadata(two).state, txn_metadata(two).epoch) == (ABORTED, 1)


async def test_partitions_that_are_not_there_are_unknown():
    async with producing(begin=hanging) as (producer, one):
        assert await write(one, producer, {"gone": [0], "logs": [4, -1]}) == [
            ("gone", 0, 3),
            ("logs", 4, 3),
            ("logs", -1, 3),
        ]
        assert txn_metadata(one).state is OPEN


async def test_a_commit_is_refused_and_changes_nothing():
    async with producing(begin=hanging) as (producer, one):
        codes = await write(one, producer, {"logs": [0, 3]}, commit=True)
        assert [code for *_, code in codes] == [ErrorCode.INVALID_REQUEST] * 2
        assert txn_metadata(one).state is OPEN


@pytest.mark.parametrize(("epoch", "code"), [(0, 47), (1, 0), (2, 0)])
async def test_an_abort_of_an_older_epoch_than_the_transactions_is_refused(epoch, code):
    async with agents() as (one,):
        await Producer.begin(one)
        producer = await hanging(one)
        assert producer.epoch == 1
        assert await write(one, producer, {"logs": [0]}, epoch=epoch) == [("logs", 0, code)]
        assert (txn_metadata(one).state is OPEN) == (code != 0)


async def test_an_agent_that_lags_finds_what_is_open_behind_a_barrier():
    async with agents("one", "two") as (one, two):
        two.lag()
        producer = await hanging(one)
        assert await caught_up(two, write(two, producer, {"logs": [0]})) == [("logs", 0, 0)]
        assert txn_metadata(two).state is ABORTED
