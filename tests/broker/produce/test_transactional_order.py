"""Transactional batches that come late, in vain, or to an agent that lags (P8, P10, P11)."""

import asyncio
import contextlib

import pytest

from protocol.errors import ErrorCode
from tests.broker.agents import World
from tests.broker.produce.transactional import Client, transacting
from tests.broker.produce.world import hold_puts, stall_put
from tests.kit.batches import batch
from tests.kit.client import caught_up


@contextlib.asynccontextmanager
async def _held_up(world: World, **how):
    """A batch on its way to the store until the gate opens, its client, and both agents."""
    async with transacting(world, "a", "b") as (client, a, b):
        gate = hold_puts(world)
        late = client.produce(a, client.batch(), **how)
        await asyncio.sleep(1)
        world.store.before.clear()
        assert not late.there
        yield late, gate, client, a, b


@contextlib.asynccontextmanager
async def _read_before_the_end(world: World):
    """The position of agent a when the transaction was open that has ended since; another is open."""
    async with transacting(world, "a", "b") as (client, a, b):
        read_at = a.log_client.machine.position
        await client.end(b)
        await client.add(b, "t", 0)
        await a.log_client.barrier()
        yield read_at, client, a


async def _offsets(agent, client: Client, *sequences: int, **how) -> list[int]:
    """Of one batch for each of these sequences, sent at once."""
    answers = [client.produce(agent, client.batch(sequence), **how) for sequence in sequences]
    return [(await answer.partition()).base_offset for answer in answers]


@pytest.mark.promise("P8")
@pytest.mark.parametrize("version", [9, 13])
async def test_an_agent_that_lags_behind_the_add_waits_for_a_barrier(
    version: int, world: World
) -> None:
    async with world.with_topic("a", "b") as (a, b):
        b.lag()
        client = Client()
        await client.init(a)
        if version < 12:
            await client.add(a, "t", 0)
        answer = client.produce(b, client.batch(), version=version)
        await answer.waits(3)
        assert world.store.puts == []
        b.catch_up()
        assert await answer.written() == (0, 0)


async def test_what_an_agent_has_seen_needs_no_barrier(world: World) -> None:
    async with transacting(world, "a", "b") as (client, _a, b):
        await b.log_client.barrier()
        # No barrier could end now, and none is needed before the chunk is put.
        b.log.down = True
        client.produce(b, client.batch())
        await asyncio.sleep(0.5)
        assert len(world.store.puts) == 1


async def test_without_the_log_a_transaction_that_is_not_seen_is_looked_for_elsewhere(
    world: World,
) -> None:
    async with transacting(world, added=()) as (client, agent):
        agent.log.down = True
        refused = await client.produce(agent, client.batch()).partition()
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "out of reach" in refused.error_message


async def test_a_request_behind_one_that_waits_for_its_transaction_does_not_overtake_it(
    world: World,
) -> None:
    async with transacting(world, "a", "b", added=()) as (client, a, b):
        await b.log_client.barrier()
        b.lag()
        await client.add(a, "t", 0)
        assert await caught_up(b, _offsets(b, client, 0, 1, 2)) == [0, 1, 2]


@pytest.mark.promise("P11")
@pytest.mark.parametrize("commit", [True, False])
async def test_a_batch_held_up_in_an_agent_never_slides_into_a_later_transaction(
    commit: bool, world: World
) -> None:
    async with _held_up(world) as (late, gate, client, a, b):
        # The client gave up on this agent and goes on through another, with the same epoch.
        await client.end(b, commit=commit)
        await client.add(b, "t", 0)
        assert await client.produce(b, client.batch(0, b"fresh")).written() == (0, 0)
        gate.set()
        assert (await late.partition()).base_offset in {-1, 0}
        assert a.row("t").end_offset == 1
        assert a.row("t").open_transactions == {client.producer_id: 0}


async def test_a_batch_held_up_while_another_transaction_begins_is_sent_back(world: World) -> None:
    async with _held_up(world) as (late, gate, client, a, b):
        await client.end(b)
        await client.add(b, "t", 0)
        gate.set()
        refused = await late.partition()
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert refused.base_offset == -1
        assert "another transaction" in refused.error_message
        assert a.row("t").end_offset == 0


async def test_a_batch_held_up_while_its_transaction_ends_is_outside_of_it(world: World) -> None:
    async with _held_up(world) as (late, gate, client, a, b):
        await client.end(b)
        gate.set()
        assert await late.code() == ErrorCode.TRANSACTION_ABORTABLE
        assert a.row("t").end_offset == 0


async def test_a_batch_of_a_newer_client_that_is_held_up_is_fenced_by_the_next_epoch(
    world: World,
) -> None:
    async with _held_up(world, version=13) as (late, gate, client, a, b):
        await client.end_bumping(b)
        await client.produce(b, client.batch(0), version=13).wait()
        gate.set()
        assert await late.code() == ErrorCode.INVALID_PRODUCER_EPOCH
        assert a.row("t").end_offset == 1


async def test_behind_a_batch_that_was_sent_back_nothing_is_taken_before_it_comes_again(
    world: World,
) -> None:
    async with _read_before_the_end(world) as (read_at, client, a):
        await client.produce(a, client.batch(0), clock=read_at).wait()
        assert await client.produce(a, client.batch(1)).code() == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await _offsets(a, client, 0, 1) == [0, 1]


async def test_what_is_read_behind_a_batch_that_will_be_sent_back_does_not_overtake_it(
    world: World,
) -> None:
    async with _read_before_the_end(world) as (read_at, client, a):
        # Read around the end, one before and one after it; they share a chunk.
        answers = [
            client.produce(a, client.batch(0), clock=read_at),
            client.produce(a, client.batch(1)),
        ]
        for answer in answers:
            assert await answer.code() == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await _offsets(a, client, 0, 1) == [0, 1]


@pytest.mark.parametrize("version", [9, 13])
async def test_a_later_batch_does_not_overtake_one_of_its_transaction_that_was_lost(
    version: int, world: World
) -> None:
    async with transacting(world, chunk_linger_ms="1") as (client, agent):
        lost = stall_put(world, 0)
        first = client.produce(agent, client.batch(0), version=version, timeout_ms=60_000)
        await lost.wait()
        second = client.produce(agent, client.batch(1), version=version, timeout_ms=60_000)
        for answer in (first, second):
            assert await answer.code() == ErrorCode.KAFKA_STORAGE_ERROR
        third = await client.produce(agent, client.batch(2), version=version).partition()
        assert third.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "earlier batch" in third.error_message
        assert await _offsets(agent, client, 0, 1, 2, version=version) == [0, 1, 2]


async def test_what_was_lost_in_an_aborted_transaction_holds_up_no_later_one(world: World) -> None:
    async with transacting(world) as (client, agent):
        world.store.down = True
        answer = await client.produce(agent, client.batch(0), timeout_ms=60_000).code()
        assert answer == ErrorCode.KAFKA_STORAGE_ERROR
        world.store.down = False
        await client.end(agent, commit=False)
        await client.add(agent, "t", 0)
        # Some clients go on with the next sequence number.
        assert await client.produce(agent, client.batch(1)).written() == (0, 0)


async def test_after_a_refusal_for_want_of_a_session_the_first_batch_comes_first(
    world: World,
) -> None:
    async with transacting(world) as (client, agent):
        await agent.lose_session()
        answer = await client.produce(agent, client.batch(0)).code()
        assert answer == ErrorCode.NOT_LEADER_OR_FOLLOWER
        agent.log.down = False
        await agent.ready()
        assert await client.produce(agent, client.batch(1)).code() == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await client.produce(agent, client.batch(0)).code() == 0


async def test_a_stale_request_with_batches_of_a_transaction_is_refused_and_remembered(
    world: World,
) -> None:
    async with transacting(world) as (client, agent):
        topic_id = agent.row("t").topic_id
        agent.producing.refused(topic_id, 0, memoryview(client.batch(0)), version=9)
        answer = await client.produce(agent, client.batch(1), version=9).code()
        assert answer == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_what_is_written_in_a_transaction_is_kept_for_readers_and_the_marker_is_no_part(
    world: World,
) -> None:
    async with transacting(world) as (client, agent):
        plain = agent.produce("t", batch())
        sent = client.produce(agent, client.batch())
        await plain.wait()
        await sent.wait()
        await client.end(agent)
        await agent.produce("t", batch()).wait()
        before = len(world.store.reads)
        answer = await agent.fetch("t", 0).partition()
        assert answer.error_code == 0
        assert answer.high_watermark == 4
        assert len(world.store.reads) == before


async def test_plain_and_transactional_batches_of_one_request_are_taken_each_as_what_it_is(
    world: World,
) -> None:
    async with transacting(world, added=[0, 1]) as (client, agent):
        plain = batch(producer_id=999, epoch=0, sequence=0)
        answer = client.produce(agent, client.batch(), plain)
        assert [await answer.code(at) for at in (0, 1)] == [0, 0]
        assert agent.row("t", 0).last_stable == 0
        assert agent.row("t", 1).last_stable == 1
