"""DescribeTransactions, ListTransactions, DescribeProducers (KIP-664): what agents tell of them."""

import asyncio
from types import SimpleNamespace

import pytest

from broker.admin import metrics
from broker.transactions.views import offsets_partition
from coordinator.commands.entries import DeleteTopic
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TransactionTopic,
)
from tests.broker.transactions.by_log import TIMEOUT_MS, add, end, init, write
from tests.kit.agents import NOW_MS


def later(seconds: float, callback) -> None:
    asyncio.get_running_loop().call_later(seconds, callback)


async def describe(agent, *ids: str):
    asked = DescribeTransactionsRequest(transactional_ids=list(ids))
    return (await agent.call(apis.DESCRIBE_TRANSACTIONS, asked)).transaction_states


async def listing(*agents, version: int = 2, **filters) -> dict[str, tuple[int, str]]:
    """Producer and state by transactional id, of all agents together; no id comes twice."""
    found = {}
    for agent in agents:
        answer = await agent.call(
            apis.LIST_TRANSACTIONS, ListTransactionsRequest(**filters), version=version
        )
        assert answer.error_code == ErrorCode.NONE
        for row in answer.transaction_states:
            assert row.transactional_id not in found
            found[row.transactional_id] = (row.producer_id, row.transaction_state)
    return found


async def producers(agent, topic: str, *partitions: int):
    asked = DescribeProducersRequest(
        topics=[DescribeProducersTopic(name=topic, partition_indexes=list(partitions))]
    )
    (told,) = (await agent.call(apis.DESCRIBE_PRODUCERS, asked)).topics
    assert told.name == topic
    return told.partitions


async def test_a_transactional_id_is_described_in_each_state(world):
    async with world.agents("one") as (one,):
        orders = await one.create_topic("orders", 2)
        bills = await one.create_topic("bills", 1)
        producer = await init(one, "pay")
        (empty,) = await describe(one, "pay")
        assert (empty.error_code, empty.transactional_id) == (0, "pay")
        assert (empty.transaction_state, empty.transaction_start_time_ms) == ("Empty", -1)
        assert empty.transaction_timeout_ms == TIMEOUT_MS
        assert (empty.producer_id, empty.producer_epoch) == producer
        assert empty.topics == []

        places = [(orders.topic_id, 1), (bills.topic_id, 0), (orders.topic_id, 0)]
        await add(one, "pay", producer, partitions=places, group_ids=["readers"])
        (ongoing,) = await describe(one, "pay")
        assert ongoing.transaction_state == "Ongoing"
        assert NOW_MS <= ongoing.transaction_start_time_ms <= world.now_ms()
        assert ongoing.topics == [
            TransactionTopic(topic="orders", partitions=[0, 1]),
            TransactionTopic(topic="bills", partitions=[0]),
            TransactionTopic(topic="__consumer_offsets", partitions=[offsets_partition("readers")]),
        ]

        for commit, state in ((True, "CompleteCommit"), (False, "CompleteAbort")):
            await add(one, "pay", producer)
            await end(one, "pay", producer, commit=commit)
            (complete,) = await describe(one, "pay")
            assert (complete.transaction_state, complete.topics) == (state, [])


async def test_ids_that_are_not_there_are_told_one_by_one(world):
    async with world.agents("one") as (one,):
        await init(one, "pay")
        rows = await describe(one, "gone", "pay", "")
        assert [(row.transactional_id, row.error_code) for row in rows] == [
            ("gone", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
            ("pay", ErrorCode.NONE),
            ("", ErrorCode.INVALID_REQUEST),
        ]


async def test_a_topic_that_was_deleted_is_not_told_of(world):
    async with world.agents("one") as (one,):
        orders = await one.create_topic("orders")
        gone = await one.create_topic("gone")
        producer = await init(one, "pay")
        places = [(orders.topic_id, 0), (gone.topic_id, 0)]
        await add(one, "pay", producer, partitions=places)
        await one.log_client.propose(DeleteTopic(gone.topic_id))
        (row,) = await describe(one, "pay")
        assert [topic.topic for topic in row.topics] == ["orders"]


async def test_of_what_is_no_topics_name_no_producers_are_told(world):
    async with world.agents("one") as (one,):
        for name, code in (
            ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("no name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ):
            assert [row.error_code for row in await producers(one, name, 0, 1)] == [code] * 2


async def test_every_id_is_listed_by_one_agent_and_described_by_all(world):
    async with world.agents("one", "two", "three") as agents:
        ids = [f"pay-{number}" for number in range(30)]
        for transactional_id in ids:
            await init(agents[0], transactional_id)
        assert sorted(await listing(*agents)) == sorted(ids)
        for agent in agents:
            assert 0 < len(await listing(agent)) < 30
            rows = await describe(agent, *ids)
            assert {row.transaction_state for row in rows} == {"Empty"}


async def test_ids_are_listed_by_state_and_producer(world):
    async with world.agents("one") as (one,):
        pay = await init(one, "pay")
        ship = await init(one, "ship")
        await add(one, "ship", ship)
        both = {"pay": (pay[0], "Empty"), "ship": (ship[0], "Ongoing")}
        for version in range(3):
            assert await listing(one, version=version) == both
            states = ["Ongoing", "CompleteCommit"]
            assert list(await listing(one, version=version, state_filters=states)) == ["ship"]
            ids = [pay[0], 999]
            listed = await listing(one, version=version, producer_id_filters=ids)
            assert list(listed) == ["pay"]
        none = await listing(one, state_filters=["Ongoing"], producer_id_filters=[pay[0]])
        assert none == {}


async def test_states_that_nobody_knows_are_echoed_and_no_id_is_in_them(world):
    """Kafka's names, in Kafka's spelling; those of its states that do not occur here are known."""
    async with world.agents("one") as (one,):
        await init(one, "pay")
        names = ["Fine", "empty", "PrepareCommit", "Dead", "Fine", "PrepareEpochFence"]
        answer = await one.call(
            apis.LIST_TRANSACTIONS, ListTransactionsRequest(state_filters=names)
        )
        assert answer.unknown_state_filters == ["Fine", "empty"]
        assert answer.transaction_states == []
        assert answer.error_code == ErrorCode.NONE


async def test_ids_are_listed_by_how_long_ago_their_transaction_began(world):
    """KIP-994. As in Kafka, what never had one has one for ever."""
    async with world.agents("one") as (one,):
        await init(one, "never")
        await add(one, "old", await init(one, "old"))
        await asyncio.sleep(10.0)
        await add(one, "new", await init(one, "new"))
        assert list(await listing(one, duration_filter=-1)) == ["never", "old", "new"]
        assert list(await listing(one, duration_filter=9_000)) == ["never", "old"]
        assert list(await listing(one, duration_filter=11_000)) == ["never"]
        # The filter came with v1.
        assert len(await listing(one, version=0, duration_filter=-1)) == 3


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("pay-.*", ["pay-1", "pay-2"]),
        ("pay", []),
        (".*-1", ["pay-1", "ship-1"]),
        ("", ["pay-1", "pay-2", "ship-1"]),
        (None, ["pay-1", "pay-2", "ship-1"]),
    ],
)
async def test_ids_are_listed_by_a_pattern_of_the_whole_id(pattern, expected, world):
    """KIP-1152."""
    async with world.agents("one") as (one,):
        for transactional_id in ("pay-1", "pay-2", "ship-1"):
            await init(one, transactional_id)
        assert list(await listing(one, transactional_id_pattern=pattern)) == expected


@pytest.mark.parametrize("pattern", ["(", "a" * 10_001, "(?=a)"])
async def test_what_is_no_pattern_is_refused(pattern, world):
    async with world.agents("one") as (one,):
        asked = ListTransactionsRequest(transactional_id_pattern=pattern)
        answer = await one.call(apis.LIST_TRANSACTIONS, asked)
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert answer.transaction_states == []


@pytest.mark.promise("P8")
async def test_a_lagging_agent_tells_what_another_agent_has_told(world):
    """P8."""
    async with world.agents("one", "two") as (one, two):
        await one.create_topic("orders")
        await two.log_client.barrier()
        two.lag()
        ids = [f"pay-{number}" for number in range(10)]
        for transactional_id in ids:
            await init(one, transactional_id)
        await write(one, "orders", producer_id=77)
        later(1.0, two.catch_up)
        rows = await describe(two, *ids)
        assert {row.error_code for row in rows} == {0}

        two.lag()
        await init(one, "more")
        later(1.0, two.catch_up)
        assert len(await listing(two)) + len(await listing(one)) == 11

        two.lag()
        await write(one, "orders", producer_id=78)
        later(1.0, two.catch_up)
        (partition,) = await producers(two, "orders", 0)
        assert {row.producer_id for row in partition.active_producers} == {77, 78}


async def test_producers_of_a_partition_are_told_with_their_newest_batch(world):
    async with world.agents("one") as (one,):
        await one.create_topic("orders", 2)
        await write(one, "orders", producer_id=5, sequence=0, records=3, timestamp=111)
        await write(one, "orders", producer_id=5, sequence=3, records=2, timestamp=222)
        await write(one, "orders", producer_id=6, epoch=4, sequence=0, timestamp=333)
        first, second = await producers(one, "orders", 0, 1)
        assert (first.partition_index, first.error_code) == (0, ErrorCode.NONE)
        assert second.active_producers == []
        assert [
            (
                row.producer_id,
                row.producer_epoch,
                row.last_sequence,
                row.last_timestamp,
                row.coordinator_epoch,
                row.current_txn_start_offset,
            )
            for row in first.active_producers
        ] == [(5, 0, 4, 222, -1, -1), (6, 4, 0, 333, -1, -1)]


async def test_a_producer_with_an_open_transaction_is_told_where_it_began(world):
    async with world.agents("one") as (one,):
        orders = await one.create_topic("orders")
        await write(one, "orders", producer_id=999, records=3)
        producer_id, epoch = producer = await init(one, "pay")
        instance = await add(one, "pay", producer, partitions=[(orders.topic_id, 0)])
        for sequence in (0, 1):
            await write(
                one,
                "orders",
                producer_id=producer_id,
                epoch=epoch,
                sequence=sequence,
                instance=instance,
            )
        (partition,) = await producers(one, "orders", 0)
        started = {
            row.producer_id: row.current_txn_start_offset for row in partition.active_producers
        }
        assert started == {999: -1, producer_id: 3}
        await end(one, "pay", producer, commit=True)
        (partition,) = await producers(one, "orders", 0)
        assert {row.current_txn_start_offset for row in partition.active_producers} == {-1}


async def test_partitions_that_are_not_there_have_no_producers(world):
    async with world.agents("one") as (one,):
        await one.create_topic("orders")
        here, beyond = await producers(one, "orders", 0, 1)
        (gone,) = await producers(one, "gone", 0)
        assert here.error_code == ErrorCode.NONE
        assert beyond.error_code == gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metrics_tell_of_open_transactions_and_how_they_end(world):
    async with world.agents("one") as (one,):
        sources = SimpleNamespace(node=one.node, log_client=one.log_client, now_ms=world.now_ms)
        rows = {row.name: row for row in metrics.TABLE}

        def number(name: str):
            return rows[f"frazil_{name}"].read(sources)

        assert (number("transactions_open"), number("transaction_overdue_ms")) == (0, 0)
        await init(one, "idle")
        producer = await init(one, "old")
        begun_s = world.loop.time()
        await add(one, "old", producer)
        await asyncio.sleep(30)
        await add(one, "new", await init(one, "new"))
        assert (number("transactional_ids"), number("transactions_open")) == (3, 2)
        assert 29_000 <= number("transaction_oldest_ms") <= 30_000
        assert number("transaction_overdue_ms") == 0
        # Nobody ends it while the agent is cut off.
        one.log.down = True
        await asyncio.sleep(70)
        overdue_ms = (world.loop.time() - begun_s) * 1000 - TIMEOUT_MS
        assert abs(number("transaction_overdue_ms") - overdue_ms) < 1_000
        one.log.down = False
        await one.ready()
        await asyncio.sleep(120)
        assert (number("transactions_open"), number("transaction_overdue_ms")) == (0, 0)
        ended = number("transactions_ended")
        assert ended.pop("timed_out") == 2
        assert set(ended) == {"committed", "aborted", "fenced", "given_up"}
        assert set(ended.values()) == {0}
