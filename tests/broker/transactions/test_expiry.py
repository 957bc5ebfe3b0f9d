"""Transactional ids and producers that nobody uses any more are forgotten, in slices."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.transactions import expiry
from broker.transactions.expiry import (
    ID_BYTES_PER_COMMAND_MAX,
    IDS_PER_COMMAND_MAX,
    PRODUCERS_PER_COMMAND_MAX,
    Slices,
)
from broker.upkeep import transaction_expiration
from coordinator.commands.entries import ChunkSpan, CommitChunk, Rejected
from coordinator.commands.transaction_commands import (
    ExpireProducers,
    ExpireTransactionalIds,
    InitProducer,
    PartitionProducers,
)
from coordinator.tables import transactions
from protocol.types import TopicId
from storage.formats.spans import Item
from tests.broker.transactions.by_log import add, end, init, write

MINUTE = {"transactional_id_expiration_ms": "60000", "producer_id_expiration_ms": "60000"}
PAST_S = 200.0
"""Over the minute, however seldom an idle agent writes its clock."""
TOPIC = TopicId(bytes(15) + b"\x01")


def noted(*agents) -> list:
    """Expirations that are applied at the first agent from now on."""
    seen: list = []

    def note(applied) -> None:
        seen.extend(
            each
            for each in applied.entry.commands
            if isinstance(each, ExpireTransactionalIds | ExpireProducers)
        )

    agents[0].log_client.on_applied(note)
    return seen


def ids_of(agent) -> list[str]:
    return [row.transactional_id for row in agent.machine.transactions]


def producers_of(agent, topic: str, partition: int = 0) -> list[int]:
    topic_id = agent.machine.topics.by_name(topic).topic_id
    return list(agent.machine.partitions.get(topic_id, partition).windows or ())


async def sweep(agent) -> None:
    await transaction_expiration.sweep_ids(agent.node)
    await transaction_expiration.sweep_producers(agent.node)


async def test_an_id_is_forgotten_when_nobody_has_used_it_for_long(world):
    async with world.agents("one", **MINUTE) as (one,):
        await init(one, "old")
        await transaction_expiration.sweep_ids(one.node)
        assert ids_of(one) == ["old"]
        await asyncio.sleep(PAST_S)
        await init(one, "new")
        await transaction_expiration.sweep_ids(one.node)
        assert ids_of(one) == ["new"]


async def test_an_id_with_an_open_transaction_is_never_forgotten(world):
    async with world.agents("one", **MINUTE) as (one,):
        producer = await init(one, "open", timeout_ms=900_000)
        await add(one, "open", producer)
        await asyncio.sleep(PAST_S)
        seen = noted(one)
        await transaction_expiration.sweep_ids(one.node)
        assert (ids_of(one), seen) == (["open"], [])
        await end(one, "open", producer, commit=True)
        await transaction_expiration.sweep_ids(one.node)
        assert ids_of(one) == ["open"], "its end was a use of it"
        await asyncio.sleep(PAST_S)
        await transaction_expiration.sweep_ids(one.node)
        assert ids_of(one) == []


async def test_producers_are_forgotten_per_partition_and_never_within_a_transaction(world):
    async with world.agents("one", **MINUTE) as (one,):
        logs = await one.create_topic("logs", 2)
        producer_id, epoch = producer = await init(one, "open", timeout_ms=900_000)
        instance = await add(one, "open", producer, partitions=[(logs.topic_id, 0)])
        named = {"producer_id": producer_id, "epoch": epoch, "instance": instance}
        await write(one, "logs", **named)
        for partition in (0, 1):
            await write(one, "logs", producer_id=900, partition=partition)
        await asyncio.sleep(PAST_S)
        await write(one, "logs", producer_id=900, partition=1, sequence=1)
        seen = noted(one)
        await transaction_expiration.sweep_producers(one.node)
        (command,) = seen
        assert command.producers == (PartitionProducers(logs.topic_id, 0, (900,)),)
        assert producers_of(one, "logs", 0) == [producer_id]
        assert producers_of(one, "logs", 1) == [900]
        assert one.machine.partitions.window_count == 2
        # What is remembered still tells a repetition.
        await write(one, "logs", **named)
        assert one.machine.partitions.get(logs.topic_id, 0).end_offset == 2


async def test_several_agents_share_the_work_and_nothing_is_left_over(world):
    async with world.agents("one", "two", "three", **MINUTE) as agents:
        one = agents[0]
        await one.create_topic("logs", 30)
        for number in range(30):
            await init(one, f"id-{number}")
            await write(one, "logs", producer_id=900, partition=number)
        await asyncio.sleep(PAST_S)
        for agent in agents:
            await agent.log_client.barrier()
        seen = noted(*agents)
        # All look before anything has been proposed.
        await asyncio.gather(
            *[transaction_expiration.sweep_ids(agent.node) for agent in agents],
            *[transaction_expiration.sweep_producers(agent.node) for agent in agents],
        )
        await one.log_client.barrier()
        assert ids_of(one) == []
        assert one.machine.partitions.window_count == 0
        ids = [each.transactional_ids for each in seen if hasattr(each, "transactional_ids")]
        assert (len(ids), sum(map(len, ids))) == (3, 30)
        rows = [each.producers for each in seen if isinstance(each, ExpireProducers)]
        assert (len(rows), sum(map(len, rows))) == (3, 30)


async def test_more_than_a_command_may_name_is_several(world):
    async with world.agents("one", **MINUTE) as (one,):
        topic = await one.create_topic("logs")
        ids = [f"id-{number}" for number in range(IDS_PER_COMMAND_MAX + 1)]
        await asyncio.gather(*[init(one, each) for each in ids])
        items = [Item(0, 100, 1, 0, 10_000 + number, 0, 0) for number in range(300)]
        incarnation = one.log_client.incarnation()
        count = 0
        while count <= 2 * PRODUCERS_PER_COMMAND_MAX:
            chunk = one.machine.incarnations.get(incarnation).chunk_last + 1
            some = tuple(item._replace(producer_id=item.producer_id + count) for item in items)
            span = ChunkSpan(topic.topic_id, 0, 0, some)
            await one.log_client.propose(CommitChunk(chunk, 30_000, (span,)), incarnation)
            count += len(items)
        await asyncio.sleep(PAST_S)
        seen = noted(one)
        await sweep(one)
        assert ids_of(one) == []
        assert producers_of(one, "logs") == []
        assert [len(each.transactional_ids) for each in seen[:2]] == [IDS_PER_COMMAND_MAX, 1]
        assert [size(each.producers) for each in seen[2:]] == [1000, 1000, 100]


@pytest.mark.promise("P6")
async def test_the_machines_time_decides_and_not_the_clock_of_one_agent(world):
    """P6: an agent whose clock is far ahead forgets nothing."""
    async with world.agents("one", "two", **MINUTE) as (one, two):
        topic = await one.create_topic("logs")
        await init(one, "old")
        await write(one, "logs", producer_id=900)
        one.node.now_ms = lambda: world.now_ms() + 10**12
        one.log_client._proposer._now_ms = one.node.now_ms
        await one.create_topic("written-by-a-wild-clock")
        seen = noted(one)
        for agent in (one, two):
            await sweep(agent)
        assert seen == []
        # Also when a sweep believed it: apply looks at its own time.
        await one.log_client.propose(ExpireTransactionalIds(60_000, ("old",)))
        rows = (PartitionProducers(topic.topic_id, 0, (900,)),)
        await one.log_client.propose(ExpireProducers(60_000, rows))
        assert (ids_of(one), producers_of(one, "logs")) == (["old"], [900])


async def test_a_sweep_without_a_session_proposes_nothing_and_the_next_one_goes_on(world):
    async with world.agents("one", **MINUTE) as (one,):
        await one.create_topic("logs")
        await init(one, "old")
        await write(one, "logs", producer_id=900)
        await asyncio.sleep(PAST_S)
        seen = noted(one)
        await one.lose_session()
        await sweep(one)
        one.log.down = False
        await one.ready()
        assert seen == []
        await sweep(one)
        assert (ids_of(one), producers_of(one, "logs")) == ([], [])


async def test_the_jobs_run_by_themselves(world):
    intervals = {
        "transaction_remove_expired_transaction_cleanup_interval_ms": "5000",
        "producer_id_expiration_check_interval_ms": "7000",
    }

    async with world.agents("one", **MINUTE, **intervals) as (one,):
        await one.create_topic("logs")
        await init(one, "old")
        await write(one, "logs", producer_id=900)
        job = asyncio.create_task(transaction_expiration.run(one.node))
        await asyncio.sleep(PAST_S)
        assert (ids_of(one), producers_of(one, "logs")) == ([], [])
        job.cancel()


@given(st.lists(st.text(min_size=1, max_size=50) | st.just("x" * 20_000), max_size=1_200))
def test_slices_of_ids_leave_nothing_out_and_keep_to_their_bounds(ids: list[str]) -> None:
    slices = list(expiry.id_slices(ids))
    assert [each for some in slices for each in some] == ids
    for some in slices:
        assert 0 < len(some) <= IDS_PER_COMMAND_MAX
        assert len(some) == 1 or len("".join(some).encode()) <= ID_BYTES_PER_COMMAND_MAX


@given(st.lists(st.integers(0, 2_500), max_size=10))
def test_slices_of_producers_leave_nothing_out_and_keep_to_their_bounds(counts: list[int]) -> None:
    slices, taken = Slices(), []
    for partition, count in enumerate(counts):
        slices.add(TOPIC, partition, range(count))
        while some := slices.take():
            taken.append(some)
    assert all(size(some) == PRODUCERS_PER_COMMAND_MAX for some in taken)
    if some := slices.take(least=1):
        taken.append(some)
    assert slices.take(least=1) == ()
    found = [(row.partition, each) for some in taken for row in some for each in row.producer_ids]
    assert sorted(found) == [(part, each) for part, n in enumerate(counts) for each in range(n)]


def size(some: tuple[PartitionProducers, ...]) -> int:
    return sum(len(row.producer_ids) for row in some)


@pytest.mark.parametrize("node_ids", [[1], [3, 1, 2], [5, 4]])
def test_every_partition_is_looked_after_by_one_agent(node_ids: list[int]) -> None:
    for partition in range(50):
        having = [
            node_id
            for node_id in node_ids
            if expiry.has_share(TOPIC, partition, node_id=node_id, node_ids=node_ids)
        ]
        assert len(having) == 1
    assert not expiry.has_share(TOPIC, 0, node_id=None, node_ids=node_ids)


def test_of_too_many_producers_the_fifth_goes_that_was_idle_longest() -> None:
    hour = 3_600_000
    idle_ms = [at * hour for at in range(10)]
    pressed = expiry.pressed_expiration_ms(idle_ms, expiration_ms=24 * hour)
    assert [each for each in idle_ms if each >= pressed] == [8 * hour, 9 * hour]


@pytest.mark.parametrize(
    ("idle_ms", "expected"),
    [
        ([1_000] * 50, expiry.PRESSED_MS_MIN),
        ([90_000_000] * 50, 86_400_000),
        ([], 86_400_000),
    ],
)
def test_no_producer_goes_that_wrote_lately_and_none_stays_longer_than_ever(
    idle_ms, expected
) -> None:
    assert expiry.pressed_expiration_ms(idle_ms, expiration_ms=86_400_000) == expected


@pytest.mark.promise("P15")
async def test_when_too_many_producers_are_known_the_oldest_go_but_for_open_transactions(
    world, monkeypatch
):
    monkeypatch.setattr(expiry, "WINDOWS_MAX", 10)
    monkeypatch.setattr(transaction_expiration, "SAMPLED_OF", 1)
    async with world.agents("one") as (one,):
        logs = await one.create_topic("logs")
        producer_id, epoch = producer = await init(one, "open", timeout_ms=900_000)
        instance = await add(one, "open", producer, partitions=[(logs.topic_id, 0)])
        await write(one, "logs", producer_id=producer_id, epoch=epoch, instance=instance)
        await write(one, "logs", producer_id=1000)
        await asyncio.sleep(3_600)
        for number in range(2000, 2007):
            await write(one, "logs", producer_id=number)
        job = asyncio.create_task(transaction_expiration.run(one.node))
        await asyncio.sleep(2 * transaction_expiration.CROWDED_CHECK_S)
        job.cancel()
        assert producers_of(one, "logs") == [producer_id, *range(2000, 2007)]


def crowded_at(monkeypatch, most: int) -> None:
    """There may be so many transactional ids only."""
    for module in (transactions, expiry, transaction_expiration):
        monkeypatch.setattr(module, "TRANSACTIONAL_IDS_MAX", most)


async def run_for(agent, seconds: float) -> None:
    job = asyncio.create_task(transaction_expiration.run(agent.node))
    await asyncio.sleep(seconds)
    job.cancel()


@pytest.mark.promise("P15")
async def test_of_too_many_ids_the_oldest_go_but_for_open_transactions_and_those_used_lately(
    world, monkeypatch, caplog
):
    crowded_at(monkeypatch, 12)
    # The hourly sweep has no part in it.
    interval = {"transaction_remove_expired_transaction_cleanup_interval_ms": "86400000"}
    async with world.agents("one", **interval) as (one,):
        producer = await init(one, "open", timeout_ms=900_000)
        await add(one, "open", producer)
        first = await init(one, "oldest")
        await asyncio.sleep(600)
        for number in range(4):
            await init(one, f"old-{number}")
        await asyncio.sleep(4_000)
        for number in range(2):
            await init(one, f"young-{number}")
        seen = noted(one)
        await run_for(one, 5 * transaction_expiration.CROWDED_CHECK_S)
        assert (len(ids_of(one)), seen) == (8, []), "there is room"
        with caplog.at_level(logging.WARNING):
            await init(one, "young-2")
            await run_for(one, 1.5 * transaction_expiration.CROWDED_CHECK_S)
        assert ids_of(one) == [
            "open",
            *[f"old-{number}" for number in range(4)],
            *[f"young-{n}" for n in range(3)],
        ]
        assert one.node.transactions.stats.ids_expired_early == 1
        (told,) = [each.message for each in caplog.records if "transactional ids" in each.message]
        assert "there are 9 transactional ids of at most 12: 1 that nobody used for" in told
        # Its producer is told what Kafka tells of an id that has expired, and whoever comes again is new.
        await asyncio.sleep(4_000)
        assert (await init(one, "oldest"))[0] > first[0]


async def test_ids_that_are_taken_anew_for_ever_never_fill_the_table_up(world, monkeypatch, caplog):
    """As Flink's sink does with its naming strategy INCREMENTING; ten minutes stand for the hour."""
    crowded_at(monkeypatch, 40)
    monkeypatch.setattr(expiry, "IDS_PRESSED_MS_MIN", 600_000)
    async with world.agents("one", "two", transaction_max_timeout_ms="600000") as agents:
        one = agents[0]
        jobs = [asyncio.create_task(transaction_expiration.run(each.node)) for each in agents]
        with caplog.at_level(logging.WARNING):
            for number in range(100):
                producer = await init(one, f"sink-{number}")
                await add(one, f"sink-{number}", producer)
                await end(one, f"sink-{number}", producer, commit=True)
                await asyncio.sleep(30)
        for job in jobs:
            job.cancel()
        assert 20 <= len(ids_of(one)) <= 31, "twenty in ten minutes, which are left alone"
        assert ids_of(one)[-20:] == [f"sink-{number}" for number in range(80, 100)]
        early = [each.node.transactions.stats.ids_expired_early for each in agents]
        assert sum(early) == 100 - len(ids_of(one))
        told = [each for each in caplog.records if "transactional ids" in each.message]
        assert len(told) == sum(count > 0 for count in early), "each agent says it once"


async def test_ids_used_within_the_hour_stay_though_no_new_one_can_be_had(world, monkeypatch):
    crowded_at(monkeypatch, 12)
    async with world.agents("one") as (one,):
        for number in range(12):
            await init(one, f"id-{number}")
        await asyncio.sleep(3_000)
        seen = noted(one)
        await run_for(one, 5 * transaction_expiration.CROWDED_CHECK_S)
        assert (len(ids_of(one)), seen) == (12, [])
        told = await one.log_client.propose(InitProducer("late", 60_000, -1, -1))
        assert isinstance(told, Rejected)


async def test_the_oldest_ids_go_first_and_one_that_was_used_after_the_sweep_saw_it_stays(world):
    async with world.agents("one") as (one,):
        await init(one, "first")
        producer = await init(one, "second")
        await asyncio.sleep(600)
        await init(one, "first")
        await asyncio.sleep(4_000)
        old = await transaction_expiration._old_ids(one.node, 3_600_000)
        assert [row.transactional_id for row in old] == ["second", "first"]
        await add(one, "second", producer)
        await end(one, "second", producer, commit=True)
        await transaction_expiration._expire_ids(one.node, old, 3_600_000)
        assert ids_of(one) == ["second"]


@pytest.mark.parametrize(("timeout_ms_max", "expected"), [(900_000, 3_600_000), (10**7, 10**7)])
def test_an_id_stays_for_as_long_as_a_transaction_may_be_open_and_an_hour(
    timeout_ms_max, expected
) -> None:
    floor_ms = expiry.ids_floor_ms(timeout_ms_max=timeout_ms_max)
    assert floor_ms == expected
    pressed = expiry.pressed_expiration_ms([1_000] * 50, expiration_ms=10**9, floor_ms=floor_ms)
    assert pressed == expected


def test_long_ids_are_too_many_before_there_are_many_of_them(monkeypatch) -> None:
    table = transactions.Transactions()
    assert not expiry.has_many_ids(table)
    table.size = transactions.ID_SIZE_MAX * 3 // 4
    assert expiry.has_many_ids(table)


async def test_a_sample_of_ids_has_about_a_thousand_from_the_oldest_on(world):
    async with world.agents("one") as (one,):
        producer = await init(one, "open", timeout_ms=900_000)
        await init(one, "old")
        await add(one, "open", producer)
        rows = list(one.machine.transactions)
        time_ms = rows[1].changed_ms + 500
        assert expiry.sampled_idle_ms(rows, time_ms=time_ms) == [500]
        assert len(expiry.sampled_idle_ms(rows[1:] * 5_500, time_ms=time_ms)) == 1_100
