"""An agent whose log is on its machine: a small chunk is put by the log, on its way."""

import asyncio

import pytest

from broker.produce.produce_path import SENT_BYTES_MAX
from protocol.errors import ErrorCode
from storage.stores.object_store import StoreRefusedError
from tests.broker.agents import World
from tests.broker.produce.world import Agent, hold_puts
from tests.kit.batches import batch
from tests.kit.faults import NoAnswerError, held, lost


@pytest.fixture
def world() -> World:
    return World(Agent, "t", embedded=True)


def failing(times: int):
    """A gate of `put_now` that lets nothing pass, so many times."""
    left = times

    def gate() -> None:
        nonlocal left
        if left:
            left -= 1
            raise NoAnswerError("the disk did not take it")

    return gate


async def test_a_small_chunk_is_put_and_committed_in_one_hop_and_is_read(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        assert await agent.produce("t", batch(b"x")).written() == (0, 0)
        assert len(world.store.called("put_now")) == 1
        assert world.store.called("put_new") == []
        assert agent.producing._writer.stats.puts == 1
        assert await agent.fetch("t", 0).values() == [b"x"]


async def test_a_large_chunk_goes_the_ordinary_way(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        assert await agent.produce("t", batch(bytes(SENT_BYTES_MAX))).written() == (0, 0)
        assert world.store.called("put_now") == []


@pytest.mark.promise("P1")
async def test_what_the_log_could_not_put_goes_the_ordinary_way_and_is_acknowledged_then(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        world.store.before_now = failing(1)
        puts = hold_puts(world)
        answer = agent.produce("t", batch())
        await answer.waits(1)
        puts.set()
        assert await answer.written() == (0, 0)
        assert len(world.store.called("put_new")) == 1


@pytest.mark.promise("P4")
async def test_what_the_store_refuses_either_way_is_not_in_the_log(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        world.store.before_now = failing(1)

        async def full(*_arguments: object) -> None:
            raise StoreRefusedError("the disk is full")

        world.store.before["put_new"] = full
        assert await agent.produce("t", batch()).code() == ErrorCode.KAFKA_STORAGE_ERROR
        del world.store.before["put_new"]
        assert await agent.produce("t", batch()).written() == (0, 0)


@pytest.mark.promise("P11")
async def test_a_later_chunk_does_not_overtake_one_that_has_to_be_put_again(world: World) -> None:
    async with world.with_topic("a", chunk_linger_ms="0") as (agent,):
        appends = asyncio.Event()
        agent.log.before["append"] = held(appends)
        world.store.before_now = failing(1)
        first = agent.produce("t", batch(b"first"))
        await asyncio.sleep(0.5)
        second = agent.produce("t", batch(b"second"))
        await second.waits(1)
        assert len(world.store.called("put_new")) == 1, "the second is durable, and waits"
        appends.set()
        assert await first.written() == (0, 0)
        assert await second.written() == (0, 1)


async def test_commands_of_the_same_entry_are_done_though_the_chunk_could_not_be_put(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        appends = asyncio.Event()
        agent.log.before["append"] = held(appends)
        blocking = asyncio.ensure_future(agent.create_topic("blocking"))
        await asyncio.sleep(0.1)
        world.store.before_now = failing(1)
        answer = agent.produce("t", batch())
        created = asyncio.ensure_future(agent.create_topic("beside"))
        await asyncio.sleep(0.1)
        appends.set()
        await asyncio.gather(blocking, created)
        assert await answer.written() == (0, 0)


@pytest.mark.promise("P3")
async def test_an_append_without_an_answer_is_repeated_and_the_chunk_put_once(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        agent.log.after["append"] = lost(2)
        agent.lag()  # Else the replica would tell, before the append is repeated, that it is in.
        answer = agent.produce("t", batch())
        await answer.waits(1)
        assert agent.log_client.stats.appends_repeated == 2
        agent.catch_up()
        assert await answer.written() == (0, 0)
        assert await agent.produce("t", batch()).written() == (0, 1)
        assert len(world.store.called("put_now")) == 2


async def test_after_a_session_was_lost_with_a_chunk_on_its_way_others_are_written(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        gone = agent.log_client.incarnation()
        agent.log.before["append"] = lost(1)
        answer = agent.produce("t", batch())
        world.cluster.expire(world.cluster.entries[-1].session)
        assert await answer.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        while agent.log_client.incarnation() in {None, gone}:
            await asyncio.sleep(0.1)
        assert await agent.produce("t", batch()).written() == (0, 0)
