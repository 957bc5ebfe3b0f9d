"""Limits of a fetch stop before a batch, and nothing behind that batch is given (P7)."""

import asyncio

import pytest

from broker.calls.untaken import GIVEN_BYTES_MIN
from broker.fetch.fetch_path import PLACES_AT_ONCE
from tests.broker.agents import World
from tests.kit.batches import batch, records_of

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


@pytest.mark.promise("P15")
@pytest.mark.parametrize("partitions", [1, PLACES_AT_ONCE + 1])
async def test_while_answers_are_not_taken_a_fetch_gets_less_and_at_least_a_batch(
    partitions: int, world: World
) -> None:
    """From memory, read from the store, and of many partitions."""
    async with world.with_topic("a", "b", partitions=partitions) as (a, b):
        for _ in range(8):
            await a.produce("t", batch(bytes(20_000))).wait()
        await b.log_client.barrier()
        for agent in (a, b):
            offsets = [0] * partitions
            untaken = agent.fetching.untaken
            untaken.made(99, untaken.bytes_max)
            answer = agent.fetch("t", *offsets)
            assert len(await answer.values()) == GIVEN_BYTES_MIN // 20_000
            untaken.left(99)
            assert len(await agent.fetch("t", *offsets).values()) == 8


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


async def test_every_partition_is_given_something_when_there_is_more_than_an_answer_holds(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.setattr("broker.fetch.fetches.ANSWER_BYTES", 8 * SMALL)
    monkeypatch.setattr("broker.fetch.answers.PORTION_BYTES_MIN", 1)
    async with world.with_topic("a", partitions=4) as (agent,):
        for _ in range(5):
            await agent.produce("t", *[batch(bytes(10)) for _ in range(4)]).wait()
        rows = await agent.fetch("t", 0, 0, 0, 0).partitions()
        assert [len(row.records) // SMALL for row in rows] == [2, 2, 2, 2]


async def test_what_some_partitions_do_not_need_the_others_are_given(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.setattr("broker.fetch.fetches.ANSWER_BYTES", 8 * SMALL)
    monkeypatch.setattr("broker.fetch.answers.PORTION_BYTES_MIN", 1)
    async with world.with_topic("a", partitions=3) as (agent,):
        await agent.produce("t", *[batch(bytes(10)) for _ in range(3)]).wait()
        for _ in range(9):
            await agent.produce("t", batch(bytes(10))).wait()
        rows = await agent.fetch("t", 0, 0, 0).partitions()
        assert [len(row.records) // SMALL for row in rows] == [6, 1, 1]


async def test_who_waits_for_more_than_an_answer_holds_as_a_rule_is_given_that_much(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.setattr("broker.fetch.fetches.ANSWER_BYTES", 2 * SMALL)
    async with world.with_topic("a") as (agent,):
        for _ in range(6):
            await agent.produce("t", batch(bytes(10))).wait()
        assert len(await agent.fetch("t", 0).values()) == 2
        assert len(await agent.fetch("t", 0, min_bytes=5 * SMALL).values()) == 5


async def test_one_fetch_of_many_partitions_reads_each_old_chunk_once(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """Of each partition a little is read, rather than much of the first one."""
    large = batch(bytes(100_000))  # Four of them are more than what is read whole.
    monkeypatch.setattr("broker.fetch.fetches.ANSWER_BYTES", 8 * len(large))
    async with world.with_topic("a", "b", partitions=4, cache_bytes="1MiB") as (a, b):
        for _ in range(4):
            await a.produce("t", *[large] * 4).wait()
        await b.log_client.barrier()
        for offset in (0, 2):
            rows = await b.fetch("t", *[offset] * 4).partitions()
            assert [len(row.records) // len(large) for row in rows] == [2, 2, 2, 2]
        assert len(world.store.reads) == 4


async def test_partitions_of_one_reader_stay_in_step_so_each_chunk_is_read_once(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """Whatever the sizes of their batches: what lies in the oldest chunks is read first."""
    monkeypatch.setattr("broker.fetch.fetches.ANSWER_BYTES", 400_000)
    monkeypatch.setattr("broker.fetch.answers.LOAD_BYTES_MAX", 400_000)
    sizes = [1_000, 2_000, 10_000, 20_000]
    async with world.with_topic("a", "b", partitions=4, cache_bytes="1MiB") as (a, b):
        for _ in range(60):
            await a.produce("t", *[batch(bytes(size)) for size in sizes]).wait()
        await b.log_client.barrier()
        monkeypatch.setattr(b.node.reader, "_whole_bytes_max", 0)
        offsets = [0] * 4
        while min(offsets) < 60:
            rows = await b.fetch("t", *offsets).partitions()
            for row in rows:
                offsets[row.partition_index] += len(records_of(row.records))
        assert len(world.store.reads) <= 60 * 1.5
