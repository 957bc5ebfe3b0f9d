"""Limits of a fetch stop before a batch, and nothing behind that batch is given (P7)."""

import asyncio

import pytest

from tests.broker.agents import World
from tests.kit.batches import batch

SMALL = len(batch(bytes(10)))


@pytest.mark.promise("P7")
@pytest.mark.parametrize("same_span", [True, False])
async def test_a_small_batch_behind_one_that_did_not_fit_is_not_given_in_its_place(
    same_span: bool, world: World
) -> None:
    async with world.with_topic("a", "b") as (a, b):
        first = a.produce("t", batch(bytes(10)))
        if not same_span:
            await first.wait()
        await a.produce("t", batch(bytes(5_000))).wait()
        await a.produce("t", batch(bytes(11))).wait()
        assert a.row("t").row_count == (2 if same_span else 3)
        await b.log_client.barrier()
        # Room for both small ones, and by far not for the one between them.
        for agent in (a, b):
            assert await agent.fetch("t", 0, partition_max_bytes=1_000).values() == [bytes(10)]
            assert await agent.fetch("t", 0, max_bytes=1_000).values() == [bytes(10)]
            assert await agent.fetch("t", 1).values() == [bytes(5_000), bytes(11)]


@pytest.mark.promise("P7")
@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"partition_max_bytes": 0}])
async def test_without_any_room_the_first_batch_of_a_fetch_is_still_given_whole(
    limits: dict[str, int], world: World
) -> None:
    async with world.with_topic("a", partitions=2) as (agent,):
        await agent.produce("t", batch(bytes(10)), batch(bytes(10))).wait()
        rows = await agent.fetch("t", 0, 0, **limits).partitions()
        assert [len(row.records) for row in rows] == [SMALL, 0]


async def test_a_fetch_gets_no_more_than_the_agent_gives_whatever_it_asks_for(world: World) -> None:
    async with world.with_topic("a", kafka_fetch_max_bytes="1024") as (agent,):
        for _ in range(3):
            await agent.produce("t", batch(bytes(600))).wait()
        assert await agent.fetch("t", 0).values() == [bytes(600)]


async def test_one_fetch_reads_a_bounded_number_of_bytes_from_the_store(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """P15: all that it reads is in memory at once."""
    monkeypatch.setattr("broker.fetch.answers.LOAD_BYTES_MAX", 1_000)

    async with world.with_topic("a", "b") as (a, b):
        for _ in range(5):
            await a.produce("t", batch(bytes(600))).wait()
        await b.log_client.barrier()
        assert await b.fetch("t", 0).values() == [bytes(600), bytes(600)]


async def test_few_fetches_read_from_the_store_at_a_time(world: World) -> None:
    """P15: the bound follows from the memory that there is for them."""
    async with world.agents("a", "b", cache_bytes="1MiB") as (a, b):
        for name in "tuvwx":
            await a.create_topic(name)
            await a.produce(name, batch()).wait()
        await b.log_client.barrier()
        answers = [b.fetch(name, 0) for name in "tuvwx"]
        await asyncio.sleep(0.005)  # A read takes 0.01.
        assert len(world.store.reads) == 2
        for answer in answers:
            assert (await answer.partition()).records


@pytest.mark.promise("P15")
async def test_one_fetch_looks_at_a_bounded_number_of_rows(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """Each takes microseconds, however few bytes it has; who has more to read asks again."""
    monkeypatch.setattr("broker.fetch.answers.ROWS_MAX", 3)
    async with world.with_topic("a", partitions=2) as (agent,):
        for number in range(5):
            await agent.produce("t", batch(b"%d" % number), batch(b"%d" % number)).wait()
        assert agent.row("t").row_count == 5
        rows = await agent.fetch("t", 0, 0).partitions()
        assert [len(row.records) // len(batch(b"0")) for row in rows] == [3, 0]
        assert await agent.fetch("t", 3).values() == [b"3", b"4"]
