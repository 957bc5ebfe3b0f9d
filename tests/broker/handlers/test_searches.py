"""ListOffsets by time looks into spans away from the loop, and for nobody who has left."""

import asyncio

import pytest

from broker.calls.off_loop import MANY_RECORDS
from protocol import apis
from protocol.compression import Codec
from protocol.record_scan import HEADS_MAX
from protocol.records import Record, build_batch
from tests.broker.handlers.test_offsets import at, place, stamped
from tests.kit.agents import NOW_MS
from tests.kit.faults import slow
from tests.kit.threads import Threads
from tests.storage.lies import saying

MANY = 5 * HEADS_MAX


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


def rising(count: int, *, codec: int = Codec.ZSTD) -> bytes:
    """A record each ms."""
    return build_batch([Record(timestamp=NOW_MS + ms) for ms in range(count)], codec=codec)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("wanted", [0, 1, HEADS_MAX, MANY - 1])
async def test_a_record_is_found_by_its_time_away_from_the_loop(world, threads, wanted, codec):
    async with world.with_topic("one") as (one,):
        await one.produce("logs", rising(MANY, codec=codec))
        assert await place(one, at(NOW_MS + wanted)) == (wanted, wanted)
        assert threads.scanned
        assert all(threads.scanned)
        assert threads.slices > wanted // HEADS_MAX


async def test_the_newest_record_is_found_away_from_the_loop(world, threads):
    async with world.with_topic("one") as (one,):
        await one.produce("logs", saying(rising(MANY), NOW_MS + 2 * MANY))
        assert await place(one, at(-3)) == (MANY - 1, MANY - 1)
        assert threads.scanned
        assert all(threads.scanned)


async def test_batches_whose_headers_say_that_they_are_older_are_not_opened(world, threads):
    async with world.with_topic("one", chunk_linger_ms="100") as (one,):
        await asyncio.gather(*(one.produce("logs", stamped(ms)) for ms in (0, 0, 0, 10, 0)))
        assert one.row("logs").row_count == 1
        assert (await place(one, at(NOW_MS + 10)))[1] == 10
        assert len(threads.scanned) <= 2  # A slice, and that there is no other.


async def test_a_search_in_few_records_is_not_kept_waiting_by_one_in_many(world, threads):
    async with world.with_topic("one") as (one,):
        await one.create_topic("large")
        await one.produce("logs", stamped(0, 10))
        await one.produce("large", rising(MANY_RECORDS + 1))
        slow = one.connect()
        slow.send(apis.LIST_OFFSETS, 7, at(NOW_MS + MANY_RECORDS, topic="large"))
        while not threads.slices:
            await asyncio.sleep(0.001)
        assert await place(one, at(NOW_MS + 10)) == (1, 10)
        assert slow.awaits
        assert (await slow.answer()).topics[0].partitions[0].offset == MANY_RECORDS


async def test_a_search_ends_when_its_client_hangs_up(world, threads):
    async with world.with_topic("one") as (one,):
        await one.produce("logs", rising(MANY))
        threads.gate.clear()
        client = one.connect()
        client.send(apis.LIST_OFFSETS, 7, at(NOW_MS + MANY - 1))
        while not threads.slices:
            await asyncio.sleep(0.01)
        client.hang_up()
        before = threads.slices
        threads.gate.set()
        await asyncio.sleep(5)
        assert threads.slices == before
        assert await place(one, at(NOW_MS + MANY - 1)) == (MANY - 1, MANY - 1)


@pytest.mark.parametrize("wanted", [NOW_MS + 10, -3])
async def test_a_search_in_few_records_is_one_slice_behind_which_nothing_rests(
    world, threads, wanted
):
    """Of ten thousand partitions, one after the other, rests were half a minute."""
    async with world.with_topic("one") as (one,):
        await one.produce("logs", stamped(0, 10))
        assert await place(one, at(wanted)) == (1, 10)
        assert threads.slices == 1


async def test_requests_that_came_together_share_a_barrier(world):
    """librdkafka asks for each partition by itself, and each barrier is a round trip to the log."""
    async with world.with_topic("one") as (one,):
        await one.produce("logs", stamped(0))
        one.log.before["head"] = slow(0.005)
        client = one.connect()
        before = one.node.log_client.stats.head_reads
        for _ in range(50):
            client.send(apis.LIST_OFFSETS, 7, at(-2))
        for _ in range(50):
            assert (await client.answer()).topics[0].partitions[0].offset == 0
        assert one.node.log_client.stats.head_reads - before <= 5
