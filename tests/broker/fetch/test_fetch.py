"""Fetch on running agents: whole batches, long polls, barriers, the store and the log away."""

import asyncio
import logging

import pytest

from broker.fetch.store_reads import FAILURES_TOLD_MAX
from coordinator.commands.entries import DeleteTopic
from protocol.errors import ErrorCode
from tests.broker.agents import World
from tests.kit.batches import batch
from tests.kit.client import caught_up
from tests.kit.faults import lost


async def test_an_agent_serves_what_another_wrote(world: World) -> None:
    async with world.with_topic("a", "b") as (a, b):
        for number in range(5):
            await a.produce("t", batch(b"%d" % number)).wait()
        await b.log_client.barrier()
        fetched = b.fetch("t", 1)
        assert await fetched.values() == [b"1", b"2", b"3", b"4"]
        answer = await fetched.partition()
        assert (answer.high_watermark, answer.last_stable_offset) == (5, 5)


@pytest.mark.promise("P7")
async def test_limits_stop_before_a_batch_and_the_first_one_is_always_whole(world: World) -> None:
    async with world.with_topic("a", partitions=2) as (agent,):
        for _ in range(3):
            await agent.produce("t", batch(bytes(1000)), batch(bytes(1000))).wait()
        size = len(batch(bytes(1000)))
        for limits, batches in (
            ({"partition_max_bytes": 10}, [1, 0]),
            ({"partition_max_bytes": 2 * size + 5}, [2, 2]),
            ({"max_bytes": 3 * size + 5}, [3, 0]),
        ):
            rows = await agent.fetch("t", 0, 0, **limits).partitions()
            assert [len(row.records) for row in rows] == [size * count for count in batches]


async def test_a_fetch_from_within_a_batch_gets_that_batch(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        await agent.produce("t", batch(b"0", b"1", b"2")).wait()
        assert await agent.fetch("t", 2).values() == [b"0", b"1", b"2"]


async def test_cached_reads_and_waiting_at_the_end_create_no_task(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        await agent.produce("t", batch()).wait()
        tasks = len(asyncio.all_tasks())
        assert agent.fetch("t", 0).there
        waiting = agent.fetch("t", 1, max_wait_ms=1000)
        assert not waiting.there
        assert len(asyncio.all_tasks()) == tasks


async def test_a_waiting_fetch_wakes_as_soon_as_there_are_enough_bytes(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        size = len(batch())
        waiting = agent.fetch("t", 0, max_wait_ms=60_000, min_bytes=2 * size)
        await agent.produce("t", batch()).wait()
        await waiting.waits()
        await agent.produce("t", batch()).wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert len((await waiting.partition()).records) == 2 * size
        assert len(agent.fetching.parked) == 0


async def test_a_waiting_fetch_is_answered_with_what_there_is_when_its_time_is_up(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        begun = world.loop.time()
        waiting = agent.fetch("t", 0, max_wait_ms=500, min_bytes=1 << 20)
        await agent.produce("t", batch()).wait()
        assert (await waiting.partition()).records
        assert 0.5 <= world.loop.time() - begun < 0.6


async def test_a_fetch_waits_longer_than_the_check_on_its_client(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        waiting = agent.fetch("t", 0, max_wait_ms=35_000)
        await waiting.waits(34)
        await asyncio.sleep(2)
        assert waiting.there


async def test_a_waiting_fetch_whose_client_left_is_forgotten(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        agent.fetch("t", 0, max_wait_ms=2_000_000_000)
        agent.connection.closed = True
        await asyncio.sleep(11)
        assert len(agent.fetching.parked) == 0
        assert agent.connection.answered == []


@pytest.mark.promise("P8")
async def test_a_fetch_beyond_the_end_of_a_lagging_agent_waits_for_a_barrier(world: World) -> None:
    async with world.with_topic("a", "b") as (a, b):
        b.lag()
        for _ in range(3):
            await a.produce("t", batch(b"x")).wait()
        assert await caught_up(b, b.fetch("t", 2).values()) == [b"x"]


async def test_an_offset_beyond_the_end_after_a_barrier_is_out_of_range(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        answer = await agent.fetch("t", 1).partition()
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (answer.high_watermark, answer.log_start_offset) == (-1, -1)
        assert agent.fetching.stats.barriers == 1


async def test_an_offset_below_zero_is_out_of_range_without_a_barrier(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        answer = agent.fetch("t", -2)
        assert answer.there
        assert await answer.code() == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_without_the_log_a_fetch_beyond_the_end_is_sent_elsewhere_and_not_reset(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        agent.log.down = True
        assert await agent.fetch("t", 5).code() == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_unknown_topic_is_refused_after_a_barrier_by_name_and_by_id(world: World) -> None:
    async with world.agents("a", "b") as (a, b):
        b.lag()
        await a.create_topic("t")
        assert await caught_up(b, b.fetch("t", 0).code()) == 0
        by_name, by_id = b.fetch("other", 0), b.fetch("other", 0, version=13)
        assert await by_name.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await by_id.code() == ErrorCode.UNKNOWN_TOPIC_ID


async def test_topics_are_fetched_by_id_from_v13(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        topic_id = agent.row("t").topic_id
        await agent.produce("t", batch(b"x")).wait()
        fetched = agent.fetch(topic_id, 0, version=17)
        assert await fetched.values() == [b"x"]
        assert fetched.now().responses[0].topic_id == topic_id


async def test_a_leader_epoch_that_never_was_is_unknown(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        assert (
            await agent.fetch("t", 0, current_leader_epoch=1).code()
            == ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        assert await agent.fetch("t", 0, current_leader_epoch=0).code() == 0


async def test_read_committed_names_no_aborted_transactions_and_the_other_none_at_all(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        committed = await agent.fetch("t", 0, isolation=1).partition()
        uncommitted = await agent.fetch("t", 0, isolation=0).partition()
        assert committed.aborted_transactions == []
        assert uncommitted.aborted_transactions is None


@pytest.mark.promise("P16")
async def test_records_below_the_known_end_are_served_without_log(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        await agent.produce("t", batch(b"x")).wait()
        agent.log.down = True
        await asyncio.sleep(60)
        assert await agent.fetch("t", 0).values() == [b"x"]


@pytest.mark.promise("P16")
async def test_at_the_end_a_consumer_is_sent_elsewhere_after_ten_seconds_without_session(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        await agent.lose_session()
        await asyncio.sleep(5)
        assert await agent.fetch("t", 0, max_wait_ms=100).code() == 0
        await asyncio.sleep(6)
        assert await agent.fetch("t", 0, max_wait_ms=100).code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        agent.log.down = False
        await agent.ready()
        assert await agent.fetch("t", 0).code() == 0


@pytest.mark.promise("P12")
async def test_nothing_is_served_before_the_first_session(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        await agent.produce("t", batch()).wait()
        late = world.add("late")
        late.log.before["grant"] = lost()
        await asyncio.sleep(5)
        # It knows the records, but not that there are no others.
        assert late.row("t").end_offset == 1
        assert await late.fetch("t", 0).code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        late.log.before.clear()
        await late.ready()
        assert await late.fetch("t", 0).code() == 0


@pytest.mark.promise("P7")
async def test_an_object_that_cannot_be_read_is_an_error_and_never_a_gap(world: World) -> None:
    async with world.with_topic("a", "b", chunk_linger_ms="1") as (a, b):
        for number in range(3):
            await a.produce("t", batch(b"%d" % number)).wait()
        await b.log_client.barrier()
        middle = b.row("t").row(1)
        world.store.lose(middle.object_id.key)
        assert await b.fetch("t", 0).values() == [b"0"]
        gap = await b.fetch("t", 1).partition()
        assert gap.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not gap.records
        assert b.fetching.stats.objects_gone == 1


async def test_an_object_that_is_gone_is_looked_up_anew_after_a_barrier(world: World) -> None:
    async with world.with_topic("a", "b") as (a, b):
        await a.produce("t", batch(b"x")).wait()
        await b.log_client.barrier()
        world.store.lose(b.row("t").row(0).object_id.key, times=1)
        assert await b.fetch("t", 0).values() == [b"x"]
        assert b.fetching.stats.barriers == 1
        assert b.fetching.stats.objects_gone == 0


async def test_a_store_that_is_down_fails_only_what_is_not_in_memory(world: World) -> None:
    async with world.with_topic("a", "b", partitions=2) as (a, b):
        await a.produce("t", batch(b"old"), partition=0).wait()
        await b.log_client.barrier()
        await b.produce("t", batch(b"own"), partition=1).wait()
        world.store.down = True
        fetched = b.fetch("t", 0, 0)
        assert await fetched.code(0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await fetched.values(1) == [b"own"]


async def test_objects_that_cannot_be_read_are_told_once_each_and_no_more_than_a_few(
    world: World, caplog
) -> None:
    async with world.with_topic("a", "b", partitions=40, chunk_linger_ms="1") as (a, b):
        for _ in range(15):
            await a.produce("t", *[batch(b"x")] * 40).wait()
        await b.log_client.barrier()
        world.store.down = True
        with caplog.at_level(logging.WARNING):
            await b.fetch("t", *[0] * 40).partitions()
            assert len(caplog.records) == 1
            caplog.clear()
            await b.fetch("t", *[at % 15 for at in range(40)]).partitions()
            assert len(caplog.records) == FAILURES_TOLD_MAX + 1
        assert b.fetching.stats.storage_errors == 80


async def test_the_same_recent_chunk_is_read_once_whole_for_all_its_readers(world: World) -> None:
    async with world.with_topic("a", "b", partitions=4) as (a, b):
        await a.produce("t", *[batch(b"x")] * 4).wait()
        await b.log_client.barrier()
        answers = [b.fetch("t", 0, 0, 0, 0, connection=b.another_connection()) for _ in range(10)]
        for answer in answers:
            assert len(await answer.partitions()) == 4
        assert len(world.store.reads) == 1


async def test_a_topic_deleted_during_a_read_is_refused_and_harms_nobody(world: World) -> None:
    async with world.agents("a", "b") as (a, b):
        topic = await a.create_topic("t")
        for _ in range(3):
            await a.produce("t", batch(b"x")).wait()
        await b.log_client.barrier()
        answer = b.fetch("t", 0)
        await a.log_client.propose(DeleteTopic(topic.topic_id))
        await a.log_client.propose(a.log_client.machine.next_purge())
        assert await answer.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_deleted_while_a_fetch_waits_is_told_at_once(world: World) -> None:
    async with world.agents("a") as (agent,):
        topic = await agent.create_topic("t")
        waiting = agent.fetch("t", 0, max_wait_ms=60_000)
        await agent.log_client.propose(DeleteTopic(topic.topic_id))
        begun = world.loop.time()
        assert await waiting.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert world.loop.time() - begun < 1


async def test_an_incremental_fetch_answers_only_what_is_new(world: World) -> None:
    async with world.with_topic("a", partitions=3) as (agent,):
        full = await agent.fetch("t", 0, 0, 0, session_epoch=0).wait()
        session = full.session_id
        assert session > 0
        assert len(full.responses[0].partitions) == 3
        await agent.produce("t", batch(b"x"), partition=1).wait()
        news = agent.fetch("t", session_id=session, session_epoch=1)
        assert [row.partition_index for row in await news.partitions()] == [1]
        assert await news.values() == [b"x"]


async def test_a_session_that_this_agent_does_not_know_is_refused_as_a_whole(world: World) -> None:
    async with world.agents("a") as (agent,):
        answer = await agent.fetch("t", session_id=99, session_epoch=1).wait()
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert answer.session_id == 0


async def test_a_topic_kept_as_zstd_is_refused_to_clients_before_v10(world: World) -> None:
    async with world.with_topic("a", configs={"compression_type": "zstd"}) as (agent,):
        await agent.produce("t", batch(b"x")).wait()
        old, new = (agent.fetch("t", 0, version=version) for version in (9, 10))
        assert await old.code() == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert await new.values() == [b"x"]


async def test_a_catch_up_through_a_small_cache_reads_everything_in_order(world: World) -> None:
    async with world.with_topic("a", "b", partitions=2, cache_bytes="1MiB") as (a, b):
        for number in range(40):
            value = b"%04d" % number + bytes(50_000)
            await a.produce("t", batch(value), batch(value)).wait()
        await b.log_client.barrier()
        offset = 0
        seen: list[bytes] = []
        while offset < 40:
            values = await b.fetch("t", offset, partition_max_bytes=300_000).values()
            assert values
            seen += values
            offset += len(values)
        assert [value[:4] for value in seen] == [b"%04d" % number for number in range(40)]
        assert b.node.reader.cache.bytes_used <= 1 << 20


async def test_a_fetch_that_waits_when_the_session_is_lost_is_sent_elsewhere_long_before_its_time(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        begun = world.loop.time()
        waiting = agent.fetch("t", 0, max_wait_ms=300_000)
        agent.log.down = True
        assert await waiting.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert 10 < world.loop.time() - begun < 30
