"""Produce on a running agent: acknowledgement, offsets, errors that tell the truth."""

import asyncio
from types import SimpleNamespace

import pytest

from broker.fetch.fetch_path import FetchPath
from broker.produce.produce_path import CHUNKS_PER_PUT, ProducePath
from coordinator.commands.entries import DeleteTopic
from protocol import apis
from protocol.errors import ErrorCode
from protocol.records import read_header
from tests.broker.agents import World
from tests.broker.produce.world import Agent, expire_session, hold_puts, stall_put
from tests.kit.batches import batch, produce_request
from tests.kit.faults import lost


async def test_records_are_acknowledged_with_the_offsets_of_the_log(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        first = await agent.produce("t", batch(b"1", b"2")).partition()
        second = await agent.produce("t", batch(b"3")).partition()
        assert (first.error_code, first.base_offset) == (0, 0)
        assert (second.error_code, second.base_offset) == (0, 2)
        assert (second.log_append_time_ms, second.log_start_offset) == (-1, 0)


@pytest.mark.promise("P1")
async def test_no_record_is_acknowledged_before_its_chunk_is_durable(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        gate = hold_puts(world)
        answer = agent.produce("t", batch())
        await answer.waits(5)
        assert agent.row("t").end_offset == 0
        gate.set()
        assert await answer.code() == 0


@pytest.mark.promise("P1")
async def test_no_record_is_acknowledged_before_its_entry_is_applied(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        agent.lag()
        answer = agent.produce("t", batch())
        await answer.waits(5)
        assert world.cluster.head() > agent.log_client.machine.position
        agent.catch_up()
        assert (await answer.partition()).base_offset == 0


async def test_batches_of_one_turn_share_a_chunk_and_get_offsets_in_order(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        answers = [agent.produce("t", batch(b"x", b"y")) for _ in range(20)]
        offsets = [(await answer.partition()).base_offset for answer in answers]
        assert offsets == list(range(0, 40, 2))
        assert agent.producing.stats.chunks == 1
        assert agent.row("t").row_count == 1


@pytest.mark.promise("P2")
async def test_a_repeated_batch_is_answered_with_its_first_offset(world: World) -> None:
    async with world.with_topic("a", "b") as (a, b):
        sent = batch(b"1", producer_id=7, epoch=0, sequence=0)
        await a.produce("t", batch(b"0")).wait()
        first = await a.produce("t", sent).partition()
        await b.log_client.barrier()
        again = await b.produce("t", sent).partition()
        assert (first.base_offset, again.base_offset) == (1, 1)
        assert again.error_code == 0
        assert a.row("t").end_offset == 2


@pytest.mark.promise("P1")
async def test_a_chunk_that_the_store_never_takes_fails_for_certain_and_is_never_appended(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        world.store.down = True
        # What Kafka's clients wait (request.timeout.ms); after that they know nothing for certain.
        answer = await agent.produce("t", batch(), timeout_ms=30_000).written()
        assert answer == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        world.store.down = False
        await asyncio.sleep(60)
        assert agent.row("t").end_offset == 0


@pytest.mark.promise("P4")
async def test_a_request_whose_time_is_up_hears_that_its_fate_is_open(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        gate = hold_puts(world)
        answer = await agent.produce("t", batch(), timeout_ms=1_000).written()
        assert answer == (ErrorCode.REQUEST_TIMED_OUT, -1)
        gate.set()
        await asyncio.sleep(5)
        # It did happen, and nobody had been told that it would not.
        assert agent.row("t").end_offset == 1


async def test_an_append_of_unknown_outcome_is_not_called_failed(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        agent.log.after["append"] = lost()
        agent.lag()
        answer = agent.produce("t", batch(), timeout_ms=2_000)
        assert await answer.code() == ErrorCode.REQUEST_TIMED_OUT
        agent.log.after.clear()
        agent.catch_up()
        await asyncio.sleep(5)
        assert agent.row("t").end_offset == 1


@pytest.mark.promise("P16")
async def test_without_a_session_nothing_is_taken(world: World) -> None:
    async with world.with_topic("a") as (agent,):
        await agent.lose_session()
        refused = await agent.produce("t", batch()).written()
        assert refused == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert world.store.puts == []


@pytest.mark.promise("P3")
async def test_what_was_not_proposed_when_the_session_ended_fails_and_never_comes(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        gate = hold_puts(world)
        answer = agent.produce("t", batch(), timeout_ms=60_000)
        await asyncio.sleep(0.1)
        await expire_session(agent)
        assert answer.there, "told at once, whatever becomes of the PUT"
        assert await answer.written() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        gate.set()
        await asyncio.sleep(30)
        assert agent.row("t").end_offset == 0
        assert agent.producing.stats.waiting_bytes == 0
        assert await agent.produce("t", batch()).written() == (0, 0)


@pytest.mark.promise("P11")
async def test_a_later_batch_of_a_producer_does_not_overtake_one_that_was_lost(
    world: World,
) -> None:
    async with world.with_topic("a", partitions=2, chunk_linger_ms="1") as (agent,):
        await agent.produce("t", batch(producer_id=7, epoch=0, sequence=0)).wait()
        lost = stall_put(world, 1)
        first = agent.produce("t", batch(producer_id=7, epoch=0, sequence=1), timeout_ms=60_000)
        await lost.wait()
        # The second chunk is durable long before the first one is given up.
        second = agent.produce(
            "t",
            batch(producer_id=7, epoch=0, sequence=2),
            batch(producer_id=7, epoch=0, sequence=0),
            timeout_ms=60_000,
        )
        await first.waits(5)
        assert not second.there
        assert await first.code() == ErrorCode.KAFKA_STORAGE_ERROR
        assert await second.code(0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await second.code(1) == 0
        assert agent.row("t", 0).end_offset == 1


@pytest.mark.promise("P11")
async def test_a_later_batch_of_a_connection_does_not_overtake_one_that_was_lost(
    world: World,
) -> None:
    async with world.with_topic("a", chunk_linger_ms="1") as (agent,):
        lost = stall_put(world, 0)
        first = agent.produce("t", batch(b"1"), timeout_ms=60_000)
        await lost.wait()
        same = agent.produce("t", batch(b"2"), timeout_ms=60_000)
        other = agent.produce(
            "t", batch(b"3"), timeout_ms=60_000, connection=agent.another_connection()
        )
        assert await first.code() == ErrorCode.KAFKA_STORAGE_ERROR
        assert await same.code() == ErrorCode.KAFKA_STORAGE_ERROR
        assert await other.written() == (0, 0)


@pytest.mark.promise("P11")
async def test_a_batch_in_the_open_chunk_does_not_overtake_one_that_was_lost(world: World) -> None:
    async with world.with_topic("a", puts_in_flight="1") as (agent,):
        world.store.down = True
        first = agent.produce("t", batch(b"1"), timeout_ms=60_000)
        await asyncio.sleep(1)
        same = agent.produce("t", batch(b"2"), timeout_ms=60_000)
        other = agent.produce(
            "t", batch(b"3"), timeout_ms=60_000, connection=agent.another_connection()
        )
        await asyncio.sleep(1)
        assert agent.producing.stats.chunks == 1
        while not first.there:
            await asyncio.sleep(0.001)
        world.store.down = False
        assert await same.code() == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await other.partition()).base_offset == 0
        await asyncio.sleep(5)
        assert agent.row("t").end_offset == 1
        assert agent.producing.stats.waiting_bytes == 0


async def _store_away(agent) -> None:
    agent.world.store.down = True


@pytest.mark.promise("P11")
@pytest.mark.parametrize("fail", [_store_away, Agent.lose_session])
async def test_batches_behind_the_lost_first_one_of_a_producer_wait_for_it_to_come_again(
    fail, world: World
) -> None:
    async with world.with_topic("a") as (agent,):
        first = batch(producer_id=7, epoch=0, sequence=0)
        second = batch(producer_id=7, epoch=0, sequence=1)
        await fail(agent)
        assert await agent.produce("t", first, timeout_ms=60_000).code() in {
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        world.store.down = agent.log.down = False
        await agent.ready()
        assert await agent.produce("t", second).code() == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await agent.produce("t", first).written() == (0, 0)
        assert await agent.produce("t", second).written() == (0, 1)


@pytest.mark.promise("P11")
async def test_chunks_are_committed_in_the_order_of_closing(world: World) -> None:
    async with world.with_topic("a", chunk_linger_ms="1") as (agent,):
        first_put = stall_put(world, 0, 3)
        first = agent.produce("t", batch(b"1"))
        await first_put.wait()
        second = agent.produce("t", batch(b"2"), connection=agent.another_connection())
        await second.waits()
        assert (await first.partition()).base_offset == 0
        assert (await second.partition()).base_offset == 1


@pytest.mark.promise("P15")
async def test_reading_stops_when_too_many_bytes_wait_and_goes_on_when_there_is_room(
    world: World,
) -> None:
    settings = {"produce_buffer_bytes": "1MiB", "chunk_bytes": "64KiB", "puts_in_flight": "100"}
    async with world.with_topic("a", **settings) as (agent,):
        gate = hold_puts(world)
        rooms: list[bool] = []
        agent.producing.on_room(lambda: rooms.append(agent.producing.full))
        answers = []
        while not agent.producing.full and len(answers) < 100:
            answers.append(agent.produce("t", batch(bytes(60_000))))
            await asyncio.sleep(0.01)
        assert agent.producing.full
        assert (1 << 20) <= agent.producing.stats.waiting_bytes < (1 << 20) + 100_000
        gate.set()
        for answer in answers:
            assert await answer.code() == 0
        assert rooms == [False]
        assert agent.producing.stats.waiting_bytes == 0


@pytest.mark.promise("P15")
async def test_reading_stops_while_a_whole_chunk_waits_for_the_store(world: World) -> None:
    async with world.with_topic("a", puts_in_flight="2", chunk_bytes="64KiB") as (agent,):
        gate = hold_puts(world)
        answers = []
        while not agent.producing.full and len(answers) < 100:
            answers.append(agent.produce("t", batch(bytes(70_000))))
            await asyncio.sleep(0.01)
        assert len(answers) == 3, "two are put, and one waits"
        gate.set()
        for answer in answers:
            assert await answer.code() == 0
        assert not agent.producing.full


@pytest.mark.promise("P15")
async def test_reading_stops_while_a_whole_chunk_waits_for_the_log(world: World) -> None:
    async with world.with_topic("a", puts_in_flight="2", chunk_bytes="64KiB") as (agent,):
        agent.lag()
        answers = []
        while not agent.producing.full and len(answers) < 100:
            answers.append(agent.produce("t", batch(bytes(70_000))))
            await asyncio.sleep(0.01)
        assert len(answers) == 2 * CHUNKS_PER_PUT + 1
        agent.catch_up()
        for answer in answers:
            assert await answer.code() == 0
        assert not agent.producing.full


async def test_acks_0_is_not_answered_and_its_connection_lives_when_all_went_well(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        answer = agent.produce("t", batch(), acks=0)
        while not answer.there:
            await asyncio.sleep(0.01)
        assert answer.call.parts is None
        assert not agent.connection.closed
        assert agent.row("t").end_offset == 1


async def test_acks_0_closes_the_connection_when_a_partition_failed(world: World) -> None:
    async with world.agents("a") as (agent,):
        agent.produce("unknown", batch(), acks=0)
        await asyncio.sleep(1)
        assert agent.connection.closed
        assert "UNKNOWN_TOPIC" in agent.connection.close_reason


async def test_a_topic_that_a_lagging_agent_does_not_know_yet_is_found_by_a_barrier(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        b.lag()
        await a.create_topic("t")
        first = b.produce("t", batch(b"1"))
        second = b.produce("t", batch(b"2"))
        await first.waits()
        b.catch_up()
        assert (await first.partition()).base_offset == 0
        assert (await second.partition()).base_offset == 1


@pytest.mark.promise("P10")
async def test_a_request_behind_one_that_waits_for_a_barrier_does_not_overtake_it(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        await a.create_topic("known")
        await b.log_client.barrier()
        b.lag()
        await a.create_topic("new")
        both = produce_request("known", batch())
        both.topic_data += produce_request("new", batch()).topic_data
        first = b.send(apis.PRODUCE, 9, both)
        second = b.produce("known", batch())
        b.catch_up()
        assert (await first.partition(0)).base_offset == 0
        assert (await second.partition()).base_offset == 1


async def test_without_the_log_an_unknown_topic_is_not_called_unknown(world: World) -> None:
    async with world.agents("a") as (agent,):
        agent.log.down = True
        assert await agent.produce("unknown", batch()).code() == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_batches_for_a_topic_deleted_meanwhile_are_refused(world: World) -> None:
    async with world.agents("a") as (agent,):
        topic = await agent.create_topic("t")
        gate = hold_puts(world)
        answer = agent.produce("t", batch())
        await asyncio.sleep(0.1)
        await agent.log_client.propose(DeleteTopic(topic.topic_id))
        gate.set()
        assert await answer.written() == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def test_what_was_written_is_served_from_memory_with_its_offsets_patched(
    world: World,
) -> None:
    async with world.with_topic("a") as (agent,):
        await agent.produce("t", batch(b"1", b"2")).wait()
        await agent.produce("t", batch(b"3")).wait()
        answer = agent.fetch("t", 0)
        assert answer.there
        records = (await answer.partition()).records
        first = read_header(records)
        second = read_header(records, first.size)
        assert (first.base_offset, second.base_offset) == (0, 2)
        assert world.store.reads == []


@pytest.mark.parametrize("seed", range(10))
async def test_every_seed_keeps_the_order_of_a_connection(seed: int, world: World) -> None:
    async with world.with_topic("a", chunk_linger_ms="1") as (agent,):
        delays = iter([0.3, 0.1, 0.2, 0.0] * 100)

        async def gate(_key: str, *_parts: object) -> None:
            await asyncio.sleep(next(delays))

        world.store.before["put_new"] = gate
        answers = []
        for number in range(30):
            answers.append(agent.produce("t", batch(b"%d" % number)))
            await asyncio.sleep(0.02)
        offsets = [(await answer.partition()).base_offset for answer in answers]
        assert offsets == list(range(30))


@pytest.mark.parametrize("path", [ProducePath, FetchPath])
def test_a_timer_finds_the_millisecond_that_it_was_set_for(path) -> None:
    # Else it would be set anew for the same instant, for ever in virtual time.
    clock = object.__new__(path)
    for ms in range(0, 3_000_000_000, 99_991):
        clock._loop = SimpleNamespace(time=lambda seconds=ms / 1000: seconds)
        assert clock._now_ms() == ms
