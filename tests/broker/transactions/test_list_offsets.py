"""ListOffsets where transactions are: what is open bounds some readers, and markers have times."""

import pytest

from broker.handlers.list_offsets import find_record
from protocol import apis
from protocol.slices import finish
from protocol.types import Incarnation
from storage.formats.batches import Batches
from storage.formats.spans import ObjectId, Span
from tests.broker.fetch import jobs_by_hand
from tests.broker.groups.world import agents
from tests.broker.handlers.test_offsets import GZIP, at, place, stamped
from tests.broker.transactions.world import Producer, partition, producing
from tests.kit.agents import NOW_MS
from tests.storage.lies import saying

COMMITTED = 1
NOWHERE = (-1, -1)
FOREVER = 3_000_000


async def with_open(one) -> Producer:
    """0: plain, at 0 ms; 1: in an open transaction, at 0 ms; 2 and 3: plain, at 50 and 40 ms."""
    await one.produce("logs", stamped(0))
    producer = await Producer.begin(one)
    assert await producer.add() == {("logs", 0): 0}
    assert await producer.produce() == 0
    await one.produce("logs", stamped(50, 40))
    return producer


def marker_time(agent, offset: int) -> int:
    """When the end was written, in ms after NOW_MS."""
    row = partition(agent)
    return row.row(row.find(offset)).timestamp - NOW_MS


@pytest.mark.parametrize("version", range(2, 12))
async def test_the_latest_offset_is_the_last_stable_one_for_who_reads_committed_records(version):
    async with producing(begin=with_open) as (producer, one):
        assert await place(one, at(-1), version) == (4, -1)
        assert await place(one, at(-1, isolation=COMMITTED), version) == (1, -1)
        assert await place(one, at(-2, isolation=COMMITTED), version) == (0, -1)
        assert await producer.end() == 0
        for isolation in (0, COMMITTED):
            assert await place(one, at(-1, isolation=isolation), version) == (5, -1)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_search_by_time_ends_at_the_last_stable_offset(commit):
    async with producing(begin=with_open) as (producer, one):
        assert await place(one, at(NOW_MS, isolation=COMMITTED)) == (0, 0)
        assert await place(one, at(NOW_MS + 1)) == (2, 50)
        assert await place(one, at(NOW_MS + 1, isolation=COMMITTED)) == NOWHERE
        assert await producer.end(commit=commit) == 0
        assert await place(one, at(NOW_MS + 1, isolation=COMMITTED)) == (2, 50)


def test_what_lies_behind_the_bound_in_a_span_is_not_found():
    data = stamped(0) + stamped(10, 20)
    batches = Batches.of(Span(ObjectId(Incarnation(1), 0), 0, len(data), 100, 3, NOW_MS), data)
    for bound, expected in ((101, NOWHERE), (102, (101, NOW_MS + 10))):
        found = finish(find_record(batches, NOW_MS + 1, log_start=100, bound=bound))
        assert found == expected
    assert finish(find_record(batches, NOW_MS, log_start=100, bound=101)) == (100, NOW_MS)


async def test_the_end_of_a_transaction_is_found_by_its_time_as_in_kafka():
    async with producing(begin=with_open) as (producer, one):
        assert await producer.end() == 0
        time = marker_time(one, 4)
        assert time > 50
        for isolation in (0, COMMITTED):
            assert await place(one, at(NOW_MS + 51, isolation=isolation)) == (4, time)
            assert await place(one, at(NOW_MS + time, isolation=isolation)) == (4, time)
            assert await place(one, at(NOW_MS + time + 1, isolation=isolation)) == NOWHERE


async def test_a_marker_that_is_too_old_is_passed_over():
    async with agents() as (one,):
        await one.produce("logs", saying(stamped(0, codec=GZIP), NOW_MS + FOREVER))
        producer = await Producer.begin(one)
        assert await producer.add() == {("logs", 0): 0}
        assert await producer.produce() == 0
        assert await producer.end() == 0
        time = marker_time(one, 2)
        await one.produce("logs", stamped(time + 5, time + 9))
        # The search begins at the first span, which says that it has such a record.
        assert await place(one, at(NOW_MS + time)) == (2, time)
        assert await place(one, at(NOW_MS + time + 1)) == (3, time + 5)
        assert await place(one, at(NOW_MS + time + 6)) == (4, time + 9)


async def test_the_newest_timestamp_may_be_a_markers_or_lie_beyond_the_bound():
    """Kafka's log counts control records; what is not stable is answered with nothing."""
    async with producing(begin=with_open) as (producer, one):
        assert await place(one, at(-3)) == (2, 50)
        assert await place(one, at(-3, isolation=COMMITTED)) == NOWHERE
        assert await producer.end() == 0
        expected = (4, marker_time(one, 4))
        assert await place(one, at(-3)) == expected
        assert await place(one, at(-3, isolation=COMMITTED)) == expected
        await one.produce("logs", stamped(FOREVER))
        assert await place(one, at(-3)) == (5, FOREVER)


@pytest.mark.promise("P8")
async def test_another_agent_says_the_same_behind_a_barrier():
    """P8."""
    async with producing("one", "lagging", begin=with_open) as (producer, _one, lagging):
        await lagging.log_client.barrier()
        for timestamp, expected in ((-1, 5), (-3, 4)):
            lagging.lag()
            if timestamp == -1:
                assert await producer.end() == 0
            peer = lagging.connect()
            peer.send(apis.LIST_OFFSETS, 11, at(timestamp, isolation=COMMITTED))
            lagging.catch_up()
            (row,) = (await peer.answer()).topics[0].partitions
            assert row.offset == expected


async def test_an_end_that_was_deleted_is_not_found_though_its_page_is_there():
    async with producing(begin=with_open) as (producer, one):
        assert await producer.end() == 0
        newest = marker_time(one, 4)
        assert newest > 50
        await one.produce("logs", stamped(newest + 1_000))
        row = partition(one)
        await jobs_by_hand.claim(one)
        await jobs_by_hand.spill(one, row)
        assert await place(one, at(NOW_MS + newest)) == (4, newest)
        await jobs_by_hand.trim(one, row, 5)
        assert await place(one, at(NOW_MS + newest)) == (5, newest + 1_000)
