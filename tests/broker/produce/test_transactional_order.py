"""Transactional batches that come late, in vain, or to an agent that lags (P8, P10, P11)."""

import asyncio

import pytest

from protocol.errors import ErrorCode
from tests.broker.produce.transactional import Client
from tests.kit.agents import World
from tests.kit.batches import batch
from tests.kit.faults import held


async def _started(agent, *, partitions: int = 2) -> Client:
    await agent.create_topic("t", partitions=partitions)
    client = Client()
    await client.init(agent)
    return client


async def _held(world: World, agent, client: Client, gate: asyncio.Event, **how):
    """A batch whose chunk is on its way to the store until `gate` opens."""
    world.store.before["put_new"] = held(gate)
    answer = client.produce(agent, client.batch(), **how)
    await asyncio.sleep(1)
    world.store.before.clear()
    assert not answer.there
    return answer


@pytest.mark.promise("P8")
@pytest.mark.parametrize("version", [9, 13])
async def test_an_agent_that_lags_behind_the_add_waits_for_a_barrier(
    version: int, world: World
) -> None:
    async with world.agents("a", "b") as (a, b):
        await a.create_topic("t")
        await b.log_client.barrier()
        b.log.tail_gate.clear()
        client = Client()
        await client.init(a)
        if version < 12:
            await client.add(a, "t", 0)
        answer = client.produce(b, client.batch(), version=version)
        await asyncio.sleep(3)
        assert not answer.there
        assert world.store.puts == []
        b.log.tail_gate.set()
        taken = await answer.partition()
        assert (taken.error_code, taken.base_offset) == (0, 0)


async def test_what_an_agent_has_seen_needs_no_barrier(world: World) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await client.add(a, "t", 0)
        await b.log_client.barrier()
        # No barrier could end now, and none is needed before the chunk is put.
        b.log.down = True
        client.produce(b, client.batch())
        await asyncio.sleep(0.5)
        assert len(world.store.puts) == 1


async def test_without_the_log_a_transaction_that_is_not_seen_is_looked_for_elsewhere(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(agent)
        agent.log.down = True
        refused = await client.produce(agent, client.batch()).partition()
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "out of reach" in refused.error_message


async def test_a_request_behind_one_that_waits_for_its_transaction_does_not_overtake_it(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await b.log_client.barrier()
        b.log.tail_gate.clear()
        await client.add(a, "t", 0)
        answers = [client.produce(b, client.batch(sequence)) for sequence in range(3)]
        await asyncio.sleep(1)
        b.log.tail_gate.set()
        offsets = [(await answer.partition()).base_offset for answer in answers]
        assert offsets == [0, 1, 2]


@pytest.mark.promise("P11")
@pytest.mark.parametrize("commit", [True, False])
async def test_a_batch_held_up_in_an_agent_never_slides_into_a_later_transaction(
    commit: bool, world: World
) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await client.add(a, "t", 0)
        gate = asyncio.Event()
        late = await _held(world, a, client, gate)
        # The client gave up on this agent and goes on through another, with the same epoch.
        await client.end(b, commit=commit)
        await client.add(b, "t", 0)
        fresh = await client.produce(b, client.batch(0, b"fresh")).partition()
        assert (fresh.error_code, fresh.base_offset) == (0, 0)
        gate.set()
        assert (await late.partition()).base_offset in {-1, 0}
        assert a.row("t").end_offset == 1
        assert a.row("t").open_transactions == {client.producer_id: 0}


async def test_a_batch_held_up_while_another_transaction_begins_is_sent_back(world: World) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await client.add(a, "t", 0)
        gate = asyncio.Event()
        late = await _held(world, a, client, gate)
        await client.end(b)
        await client.add(b, "t", 0)
        gate.set()
        refused = await late.partition()
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert refused.base_offset == -1
        assert "another transaction" in refused.error_message
        assert a.row("t").end_offset == 0


async def test_a_batch_held_up_while_its_transaction_ends_is_outside_of_it(world: World) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await client.add(a, "t", 0)
        gate = asyncio.Event()
        late = await _held(world, a, client, gate)
        await client.end(b)
        gate.set()
        refused = await late.partition()
        assert refused.error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert a.row("t").end_offset == 0


async def test_a_batch_of_a_newer_client_that_is_held_up_is_fenced_by_the_next_epoch(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await client.produce(a, client.batch(), version=13, partition=1).wait()
        gate = asyncio.Event()
        late = await _held(world, a, client, gate, version=13)
        await client.end_bumping(b)
        await client.produce(b, client.batch(0), version=13).wait()
        gate.set()
        assert (await late.partition()).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert a.row("t").end_offset == 1


async def test_a_request_that_was_read_before_the_end_is_not_of_the_next_transaction(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await client.add(a, "t", 0)
        read_at = a.log_client.machine.position
        await client.end(b)
        await client.add(b, "t", 0)
        await a.log_client.barrier()
        # It waited for its turn on its connection, and starts only now.
        late = await client.produce(a, client.batch(), clock=read_at).partition()
        assert late.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert a.row("t").end_offset == 0
        again = await client.produce(a, client.batch()).partition()
        assert (again.error_code, again.base_offset) == (0, 0)


async def test_behind_a_batch_that_was_sent_back_nothing_is_taken_before_it_comes_again(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await client.add(a, "t", 0)
        read_at = a.log_client.machine.position
        await client.end(b)
        await client.add(b, "t", 0)
        await a.log_client.barrier()
        await client.produce(a, client.batch(0), clock=read_at).wait()
        behind = await client.produce(a, client.batch(1)).partition()
        assert behind.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        answers = [client.produce(a, client.batch(sequence)) for sequence in (0, 1)]
        assert [(await answer.partition()).base_offset for answer in answers] == [0, 1]


async def test_what_is_read_behind_a_batch_that_will_be_sent_back_does_not_overtake_it(
    world: World,
) -> None:
    async with world.agents("a", "b") as (a, b):
        client = await _started(a)
        await client.add(a, "t", 0)
        read_at = a.log_client.machine.position
        await client.end(b)
        await client.add(b, "t", 0)
        await a.log_client.barrier()
        # Read around the end, one before and one after it; they share a chunk.
        answers = [
            client.produce(a, client.batch(0), clock=read_at),
            client.produce(a, client.batch(1)),
        ]
        for answer in answers:
            refused = await answer.partition()
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        answers = [client.produce(a, client.batch(sequence)) for sequence in (0, 1)]
        assert [(await answer.partition()).base_offset for answer in answers] == [0, 1]


@pytest.mark.parametrize("version", [9, 13])
async def test_a_later_batch_does_not_overtake_one_of_its_transaction_that_was_lost(
    version: int, world: World
) -> None:
    async with world.agents("a", chunk_linger_ms="1") as (agent,):
        client = await _started(agent)
        await client.add(agent, "t", 0)
        lost = asyncio.Event()

        async def gate(key: str, *_parts: object) -> None:
            if key.endswith("0"):
                lost.set()
                await asyncio.sleep(1000)

        world.store.before["put_new"] = gate
        first = client.produce(agent, client.batch(0), version=version, timeout_ms=60_000)
        await lost.wait()
        second = client.produce(agent, client.batch(1), version=version, timeout_ms=60_000)
        for answer in (first, second):
            refused = await answer.partition()
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        third = await client.produce(agent, client.batch(2), version=version).partition()
        assert third.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "earlier batch" in third.error_message
        for sequence in range(3):
            again = client.produce(agent, client.batch(sequence), version=version)
            assert (await again.partition()).base_offset == sequence


async def test_what_was_lost_in_an_aborted_transaction_holds_up_no_later_one(world: World) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(agent)
        await client.add(agent, "t", 0)
        world.store.down = True
        lost = await client.produce(agent, client.batch(0), timeout_ms=60_000).partition()
        assert lost.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        world.store.down = False
        await client.end(agent, commit=False)
        await client.add(agent, "t", 0)
        # Some clients go on with the next sequence number.
        taken = await client.produce(agent, client.batch(1)).partition()
        assert (taken.error_code, taken.base_offset) == (0, 0)


async def test_after_a_refusal_for_want_of_a_session_the_first_batch_comes_first(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(agent)
        await client.add(agent, "t", 0)
        agent.log.down = True
        await asyncio.sleep(8)
        refused = await client.produce(agent, client.batch(0)).partition()
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        agent.log.down = False
        while agent.log_client.incarnation() is None:
            await asyncio.sleep(0.1)
        behind = await client.produce(agent, client.batch(1)).partition()
        assert behind.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        again = await client.produce(agent, client.batch(0)).partition()
        assert again.error_code == 0


async def test_a_stale_request_with_batches_of_a_transaction_is_refused_and_remembered(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(agent)
        await client.add(agent, "t", 0)
        topic_id = agent.row("t").topic_id
        agent.producing.refused(topic_id, 0, memoryview(client.batch(0)), version=9)
        behind = await client.produce(agent, client.batch(1), version=9).partition()
        assert behind.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_what_is_written_in_a_transaction_is_kept_for_readers_and_the_marker_is_no_part(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(agent)
        await client.add(agent, "t", 0)
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
    async with world.agents("a") as (agent,):
        client = await _started(agent)
        await client.add(agent, "t", 0, 1)
        plain = batch(producer_id=999, epoch=0, sequence=0)
        answer = client.produce(agent, client.batch(), plain)
        assert [(await answer.partition(at)).error_code for at in (0, 1)] == [0, 0]
        assert agent.row("t", 0).last_stable == 0
        assert agent.row("t", 1).last_stable == 1
