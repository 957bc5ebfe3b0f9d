"""How long producers wait: for the linger, and one and a half of what store and log take."""

import asyncio

import pytest

from tests.broker.agents import World
from tests.broker.produce.world import Agent, Answer
from tests.kit.batches import batch
from tests.kit.faults import slow

PUT_S, COMMIT_S = 0.06, 0.02
WARM = 60
"""Requests until the agent knows what chunks take."""


async def waited_s(agent: Agent, *, count: int, every_s: float) -> list[float]:
    """How long each of so many requests waited, one sent every few ms whatever becomes of the others."""
    loop = asyncio.get_running_loop()

    async def one(answer: Answer) -> float:
        sent_s = loop.time()
        while not answer.there:
            await asyncio.sleep(0.001)
        assert await answer.code() == 0
        return loop.time() - sent_s

    waiting = []
    for _ in range(count):
        waiting.append(asyncio.ensure_future(one(agent.produce("t", batch()))))
        await asyncio.sleep(every_s)
    return list(await asyncio.gather(*waiting))


@pytest.mark.parametrize("linger_ms", [0, 20])
async def test_nobody_waits_longer_than_the_linger_and_one_and_a_half_of_put_and_commit(
    world: World, linger_ms: int
) -> None:
    async with world.with_topic("a", chunk_linger_ms=str(linger_ms)) as (agent,):
        world.store.before["put_new"] = slow(PUT_S)
        agent.log.before["append"] = slow(COMMIT_S)
        waits = await waited_s(agent, count=WARM + 200, every_s=0.007)
        rounds = 1.5 * (PUT_S + COMMIT_S)
        assert max(waits[WARM:]) <= linger_ms / 1000 + rounds + 0.01


async def test_records_that_come_while_a_chunk_is_on_its_way_share_the_next(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        agent.log.before["append"] = slow(0.004)
        before = agent.producing.stats.chunks
        await waited_s(agent, count=100, every_s=0.001)
        chunks = agent.producing.stats.chunks - before
        assert 100 / 6 <= chunks <= 100 / 3


async def test_beyond_its_budget_an_agent_writes_no_more_objects_a_second(world: World) -> None:
    async with world.with_topic("a", puts_per_second="10") as (agent,):
        await waited_s(agent, count=200, every_s=0.01)
        before = agent.producing.stats.chunks
        await waited_s(agent, count=300, every_s=0.01)
        assert 29 <= agent.producing.stats.chunks - before <= 32
