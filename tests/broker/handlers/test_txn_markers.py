"""WriteTxnMarkers as the tools of admins use it (KIP-664): the transaction is given up."""

import pytest

from broker.transactions.views import offsets_partition
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.handlers.txn_steps import add, init


async def mark(agent, producer, topic: str, partition: int, *, commit: bool = False) -> int:
    """The error of one marker."""
    producer_id, epoch = producer
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
    )
    answer = await agent.call(apis.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]))
    (told,) = answer.markers
    (row,) = told.topics[0].partitions
    return row.error_code


def state(agent, transactional_id: str) -> str:
    return agent.machine.transactions.get(transactional_id).txn_metadata.state.name


@pytest.mark.parametrize("where", ["without records", "offsets"])
async def test_an_abort_anywhere_gives_up_the_whole_transaction(where, world):
    async with world.agents("one", "two") as (one, two):
        orders = await one.create_topic("orders", 2)
        producer = await init(one, "pay")
        places = [(orders.topic_id, 0), (orders.topic_id, 1)]
        group_ids = ["readers"] if where == "offsets" else []
        await add(one, "pay", producer, partitions=[] if group_ids else places, group_ids=group_ids)
        place = ("__consumer_offsets", offsets_partition("readers"))
        place = place if where == "offsets" else ("orders", 1)
        assert await mark(two, producer, *place) == ErrorCode.NONE
        assert state(two, "pay") == "COMPLETE_ABORT"
        assert two.machine.transactions.get("pay").txn_metadata.epoch == producer[1] + 1
        # A second one finds nothing to do.
        assert await mark(two, producer, *place) == ErrorCode.NONE


async def test_a_marker_where_the_transaction_takes_no_part_ends_nothing(world):
    async with world.agents("one") as (one,):
        orders = await one.create_topic("orders", 2)
        producer = await init(one, "pay")
        await add(one, "pay", producer, partitions=[(orders.topic_id, 0)], group_ids=["readers"])
        other = (offsets_partition("readers") + 1) % 50
        assert await mark(one, producer, "orders", 1) == ErrorCode.NONE
        assert await mark(one, producer, "__consumer_offsets", other) == ErrorCode.NONE
        assert await mark(one, (producer[0] + 1, 0), "orders", 0) == ErrorCode.NONE
        for topic, partition in (("gone", 0), ("orders", 2), ("__consumer_offsets", 50)):
            code = await mark(one, producer, topic, partition)
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = await mark(one, producer, "orders", 0, commit=True)
        assert code == ErrorCode.INVALID_REQUEST
        assert state(one, "pay") == "ONGOING"
