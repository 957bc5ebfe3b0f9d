"""A chunk whose append got no answer, of a session that the log has forgotten meanwhile."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from protocol.errors import ErrorCode
from tests.broker.agents import World
from tests.broker.produce.world import Agent, Answer
from tests.coordinator.support import Writer
from tests.kit.batches import batch
from tests.kit.faults import lost


@asynccontextmanager
async def in_doubt(world: World, *, timeout_ms: int) -> AsyncGenerator[tuple[Agent, Answer], None]:
    """An agent that sent a chunk which is not in the log, and hears that nobody knows."""
    world.cluster._sessions_kept = 0
    async with world.with_topic("a") as (agent,):
        first = agent.log_client.incarnation()
        agent.log.before["append"] = lost()
        answer = agent.produce("t", batch(b"1"), timeout_ms=timeout_ms)
        await asyncio.sleep(1)
        cutter = Writer(world.cluster)
        await cutter.open()
        for lease in [each for each in world.cluster._leases if each != cutter.session.id]:
            world.cluster.expire(lease)
        await asyncio.sleep(0.1)
        end = cutter.session.incarnation
        await cutter.log.publish(cutter.session, b"", older=end)
        await cutter.log.cut(cutter.session, end)
        agent.log.before.clear()
        async with asyncio.timeout(60):
            while agent.log_client.incarnation() in {None, first}:
                await asyncio.sleep(0.1)
        yield agent, answer


@pytest.mark.promise("P4")
async def test_it_is_called_failed_when_the_logs_end_was_reached_without_it(world: World) -> None:
    async with in_doubt(world, timeout_ms=3_600_000) as (agent, answer):
        assert await answer.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert agent.row("t").end_offset == 0


@pytest.mark.promise("P15")
async def test_its_bytes_are_free_and_leaving_does_not_wait_for_it(world: World) -> None:
    async with in_doubt(world, timeout_ms=500) as (agent, answer):
        assert await answer.code() == ErrorCode.REQUEST_TIMED_OUT
        assert agent.producing.stats.waiting_bytes == 0
        async with asyncio.timeout(60):
            await agent.producing.drain()


async def test_what_its_sender_sends_again_is_taken(world: World) -> None:
    async with in_doubt(world, timeout_ms=500) as (agent, _):
        assert await agent.produce("t", batch(b"1")).written() == (ErrorCode.NONE, 0)
