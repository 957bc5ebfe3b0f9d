"""Batches that are too large to be opened at once: away from the loop, in order, and not for nobody."""

import asyncio

import pytest

from broker.produce.validation import SLICES_IN_PLACE
from protocol import record_scan
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.record_scan import HEADS_MAX
from protocol.records import Record, build_batch
from tests.broker.agents import World
from tests.kit.agents import NOW_MS
from tests.kit.batches import batch, records_of
from tests.kit.threads import Threads
from tests.storage.lies import FAR_MS, saying

SLICES = 5
LARGE = SLICES * HEADS_MAX


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


def large(
    *, codec: int = Codec.ZSTD, key: bytes | None = b"k", count: int = LARGE, **fields: int
) -> bytes:
    return build_batch([Record(timestamp=NOW_MS, key=key)] * count, codec=codec, **fields)


DEMANDING = {
    "compacted": ({"cleanup_policy": "compact"}, large()),
    "with timestamps that are bounded": (
        {"message_timestamp_before_max_ms": "1000000"},
        large(codec=Codec.NONE),
    ),
    "with a codec of its own": ({"compression_type": "gzip"}, large()),
    "with records that are validated": ({"frazil_records_validate": "full"}, large()),
    "plain, and the batch says it were late": ({}, saying(large(), NOW_MS + FAR_MS)),
}


@pytest.mark.parametrize("name", DEMANDING)
async def test_records_of_a_large_batch_are_looked_at_away_from_the_loop(
    name: str, world: World, threads: Threads
) -> None:
    configs, data = DEMANDING[name]
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **configs)
        assert await agent.produce("c", data).written() == (0, 0)
        assert threads.scanned
        assert all(threads.scanned)
        assert threads.slices >= SLICES
        fetched = await agent.fetch("c", 0).partition()
        assert len(records_of(fetched.records)) == LARGE


async def test_a_small_batch_is_opened_at_once(world: World, threads: Threads) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        data = batch(b"v" * 10_000, key=b"k", codec=Codec.LZ4)
        assert await agent.produce("c", data).written() == (0, 0)
        assert threads.scanned
        assert threads.slices == 0


async def test_a_batch_of_few_bytes_that_inflates_far_is_opened_away_from_the_loop(
    world: World, threads: Threads
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        data = batch(bytes(1 << 20), key=b"k", codec=Codec.ZSTD)
        assert len(data) < 1000
        assert await agent.produce("c", data).written() == (0, 0)
        assert threads.slices


@pytest.mark.promise("P10")
async def test_what_comes_behind_on_the_connection_waits_and_is_appended_in_order(
    world: World, threads: Threads
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        threads.gate.clear()
        first = agent.produce("c", large())
        second = agent.produce("c", batch(key=b"k"))
        third = agent.produce("c", large())
        other = agent.produce("c", batch(key=b"k"), connection=agent.another_connection())
        assert await other.written() == (0, 0)
        await second.waits()
        threads.gate.set()
        assert await third.written() == (0, LARGE + 2)
        assert await second.written() == (0, LARGE + 1)
        assert await first.written() == (0, 1)


@pytest.mark.promise("P10")
async def test_batches_of_an_idempotent_producer_stay_in_sequence_behind_one_that_is_opened(
    world: World, threads: Threads
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        producer = {"producer_id": 7, "producer_epoch": 0}
        answers = [agent.produce("c", large(base_sequence=0, **producer))]
        for number in range(3):
            data = build_batch(
                [Record(timestamp=NOW_MS, key=b"k")], base_sequence=LARGE + number, **producer
            )
            answers.append(agent.produce("c", data))
        assert [await answer.written() for answer in answers] == [
            (0, 0),
            (0, LARGE),
            (0, LARGE + 1),
            (0, LARGE + 2),
        ]


async def test_batches_of_the_request_before_the_large_one_do_not_wait(
    world: World, threads: Threads
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", partitions=3, cleanup_policy="compact")
        threads.gate.clear()
        answer = agent.produce("c", batch(key=b"k"), large(), batch(key=b"k"))
        await answer.waits()
        assert [agent.row("c", at).end_offset for at in range(3)] == [1, 0, 0]
        threads.gate.set()
        rows = await answer.partitions()
        assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0)] * 3
        assert [agent.row("c", at).end_offset for at in range(3)] == [1, LARGE, 1]


async def test_what_a_client_leaves_behind_is_neither_read_to_the_end_nor_appended(
    world: World, threads: Threads
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        gone = agent.another_connection()
        threads.gate.clear()
        agent.produce("c", large(), connection=gone)
        agent.produce("c", batch(key=b"k"), connection=gone)
        await asyncio.sleep(1)
        gone.closed = True
        threads.gate.set()
        assert await agent.produce("c", large()).written() == (0, 0)
        assert agent.row("c").end_offset == LARGE
        assert threads.slices < 2 * SLICES


async def test_a_request_whose_time_is_up_before_its_batch_is_read_did_not_happen(
    world: World, threads: Threads
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        threads.gate.clear()
        answer = agent.produce("c", large(), timeout_ms=3000)
        assert await answer.code() == ErrorCode.REQUEST_TIMED_OUT
        threads.gate.set()
        assert await agent.produce("c", batch(key=b"k")).written() == (0, 0)


async def test_many_headers_are_read_on_away_from_the_loop(world: World, threads: Threads) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        headers = (("", None),) * 2 * HEADS_MAX
        data = build_batch([Record(-1, NOW_MS, b"k", None, headers)], codec=Codec.ZSTD)
        assert await agent.produce("c", data).written() == (0, 0)
        assert threads.slices
        assert threads.scanned.count(False) < SLICES_IN_PLACE


async def test_an_error_that_nobody_foresaw_ends_the_connection_and_not_the_agent(
    world: World, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        unlucky = agent.another_connection()
        with monkeypatch.context() as broken:
            broken.setattr(record_scan, "heads", None)
            agent.produce("c", large(), connection=unlucky)
            agent.produce("c", batch(key=b"k"), connection=unlucky)
            await asyncio.sleep(1)
        assert unlucky.close_reason == "internal error"
        assert agent.node.stats.failed_handlers == 1
        agent.node.stats.failed_handlers = 0  # That one was wanted.
        assert await agent.produce("c", large()).written() == (0, 0)


async def test_a_large_batch_that_is_refused_says_which_records(
    world: World, threads: Threads
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", cleanup_policy="compact")
        row = await agent.produce("c", large(key=None)).partition()
        assert row.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in row.record_errors] == list(range(1000))
        assert f"{LARGE} record errors" in row.error_message
