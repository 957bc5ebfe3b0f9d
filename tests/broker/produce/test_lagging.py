"""Produce and fetch on an agent that lags: nothing is refused that a newer entry undoes (P8, P9)."""

import asyncio

import pytest

from coordinator.commands.entries import DeleteTopic
from protocol.errors import ErrorCode
from tests.broker.agents import World
from tests.kit.batches import batch
from tests.kit.client import caught_up


@pytest.mark.promise("P8")
async def test_a_client_beyond_the_end_of_a_lagging_agent_is_told_of_no_truncation(
    world: World,
) -> None:
    async with world.with_topic("a", "b") as (a, b):
        b.lag()
        await a.produce("t", batch(b"1")).wait()
        # Its client has read a record of epoch 0 from the other agent, and goes on here.
        answer = b.fetch("t", 1, version=12, last_fetched_epoch=0)
        row = await caught_up(b, answer.partition())
        assert (row.error_code, row.high_watermark) == (0, 1)
        assert row.diverging_epoch.end_offset == -1


async def test_a_topic_id_that_a_lagging_agent_does_not_know_yet_is_waited_for(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        b.lag()
        topic_id = (await a.create_topic("t")).topic_id
        await a.produce("t", batch(b"1")).wait()
        row = await caught_up(b, b.fetch(topic_id, 0, version=13).partition())
        assert row.error_code == 0
        assert row.records


async def test_a_partition_that_a_lagging_agent_does_not_know_yet_is_waited_for(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        old = await a.create_topic("t", partitions=1)
        await b.log_client.barrier()
        b.lag()
        await a.log_client.propose(DeleteTopic(old.topic_id))
        await a.create_topic("t", partitions=3)
        answer = b.produce("t", batch(b"1"), partition=2)
        assert await caught_up(b, answer.written()) == (0, 0)


@pytest.mark.promise("P9")
async def test_a_request_held_behind_another_gets_a_barrier_of_its_own(world: World) -> None:
    async with world.agents("a", "b") as (a, b):
        await b.log_client.barrier()
        b.lag()
        read = asyncio.Event()

        async def slow_head(*_arguments):
            read.set()
            await asyncio.sleep(1)

        b.log.after["head"] = slow_head
        first = b.produce("never", batch(b"1"))
        await read.wait()
        # Too late for the barrier of the first request, early enough for one's own.
        await a.create_topic("t")
        second = b.produce("t", batch(b"2"))
        assert await first.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await second.waits(3)
        b.catch_up()
        assert (await second.partition()).base_offset == 0
