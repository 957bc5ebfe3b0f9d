"""Transactions that nobody ends: who gives them up, when, and what their producers hear."""

import asyncio

import pytest

from broker.transactions.stats import Ending
from coordinator.commands.transaction_commands import GiveUpTransaction
from protocol.errors import ErrorCode
from tests.broker.groups.world import agents
from tests.broker.transactions.world import (
    ABORTED,
    COMMITTED,
    EMPTY,
    OPEN,
    Producer,
    commands_of,
    partition,
    producing,
    records,
    txn_metadata,
)

TIMEOUT_MS = 5_000
SWEEP = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000"}


async def left_open(agent, **more) -> Producer:
    producer = await Producer.begin(agent, timeout_ms=TIMEOUT_MS, **more)
    await producer.add()
    assert await producer.produce() == 0
    return producer


async def until_ended(agent, seconds: float) -> float:
    """How long it took."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    async with asyncio.timeout(seconds):
        while txn_metadata(agent).state is OPEN:
            await asyncio.sleep(0.05)
    return loop.time() - begun_s


def id_of(agent) -> str:
    """A transactional id that the agent coordinates."""
    service = agent.node.transactions
    return next(f"id-{n}" for n in range(1_000) if service.coordinates(f"id-{n}"))


async def never() -> None:
    """In place of a sweep."""


def timed_out(agent) -> int:
    return agent.node.transactions.stats.ended[Ending.TIMED_OUT]


async def test_a_transaction_is_aborted_after_its_timeout_and_not_before():
    async with producing(begin=left_open, **SWEEP) as (_producer, one):
        took_s = await until_ended(one, 10)
        assert 4.9 <= took_s <= 6.5
        assert (txn_metadata(one).state, txn_metadata(one).given_up) == (ABORTED, True)
        assert partition(one).last_stable == 2
        assert await records(one) == []
        assert timed_out(one) == 1


async def test_one_that_is_ended_in_time_is_left_alone_and_the_next_one_has_its_own_time():
    async with producing(begin=left_open, **SWEEP) as (producer, one):
        proposed = commands_of(one, GiveUpTransaction)
        for _ in range(4):
            await asyncio.sleep(3)
            assert await producer.end() == 0
            await producer.add()
        assert proposed == []
        await asyncio.sleep(8)
        assert [command.instance for command in proposed] == [5]


@pytest.mark.parametrize("version", range(5))
async def test_an_old_clients_producer_is_fenced_by_the_timeout(version):
    async with producing(begin=left_open, **SWEEP) as (producer, one):
        await until_ended(one, 10)
        fenced = 47 if version < 2 else 90
        assert await producer.end(version=version) == fenced
        assert [*(await producer.add(version=min(version, 3))).values()] == [fenced]
        assert await producer.produce() == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_new_clients_producer_hears_that_it_must_abort_and_goes_on():
    """KIP-588 and KIP-890: not "another producer", while nobody has taken over."""
    async with agents(**SWEEP) as (one,):
        producer = await Producer.begin(one, timeout_ms=TIMEOUT_MS)
        assert await producer.produce(version=12) == 0
        await until_ended(one, 10)
        late = producer.copy()
        assert await late.produce(0, version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await late.produce(1, version=12) == ErrorCode.TRANSACTION_ABORTABLE
        assert await late.end(version=5) == ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.end(commit=False, version=5) == 0
        assert producer.epoch == 1
        assert await producer.produce(version=12) == 0
        assert await producer.end(version=5) == 0
        assert await records(one) == [b"v"]


async def test_the_producer_that_timed_out_recovers_by_its_own_epoch_if_nobody_took_over():
    async with producing(begin=left_open, **SWEEP) as (producer, one):
        await until_ended(one, 10)
        assert await producer.init(given=True) == 0
        assert (producer.epoch, txn_metadata(one).state) == (1, EMPTY)


async def test_the_ids_coordinator_ends_it_and_the_others_do_not_even_try():
    async with agents("one", "two", **SWEEP) as (one, two):
        for agent, other in ((one, two), (two, one)):
            transactional_id = id_of(agent)
            proposed = commands_of(other, GiveUpTransaction)
            producer = await Producer.begin(other, transactional_id, timeout_ms=TIMEOUT_MS)
            await producer.add()
            await asyncio.sleep(8)
            assert len(proposed) == 1
            assert txn_metadata(one, transactional_id).state is ABORTED
            assert timed_out(agent) == 1
        assert one.node.transactions.stats.ended == two.node.transactions.stats.ended


async def test_when_the_coordinator_does_nothing_for_long_another_agent_takes_over():
    async with agents("one", "two", **SWEEP) as (one, two):
        transactional_id = id_of(two)
        two.node.transactions.sweep = never  # It lives, and does nothing.
        producer = await Producer.begin(one, transactional_id, timeout_ms=TIMEOUT_MS)
        await producer.add()
        await asyncio.sleep(30)
        assert txn_metadata(one, transactional_id).state is OPEN
        await asyncio.sleep(10)
        assert txn_metadata(one, transactional_id).state is ABORTED
        assert timed_out(one) == 1


async def test_when_the_coordinator_dies_the_next_one_is_coordinator_and_need_not_wait():
    async with agents("one", "two", **SWEEP) as (one, two):
        transactional_id = id_of(two)
        producer = await Producer.begin(one, transactional_id, timeout_ms=60_000)
        await producer.add()
        two.log.down = True
        await asyncio.sleep(63)
        assert txn_metadata(one, transactional_id).state is ABORTED


@pytest.mark.promise("P6")
async def test_a_stall_of_the_agent_is_no_time():
    async with producing(begin=left_open, **SWEEP) as (_producer, one):
        skew = [0]
        real = one.world.boot_ms
        service = one.node.transactions
        service._clock._boot_ms = lambda: real() + skew[0]
        for _ in range(3):
            skew[0] += 60_000
            await asyncio.sleep(1)
        assert txn_metadata(one).state is OPEN
        await asyncio.sleep(4)
        assert txn_metadata(one).state is ABORTED


async def test_a_time_without_a_session_is_no_time():
    """Its clients could not end it; the agent could not either."""
    async with producing(begin=left_open, **SWEEP) as (producer, one):
        await one.lose_session()
        await asyncio.sleep(30)
        one.log.down = False
        await one.ready()
        await asyncio.sleep(1.5)
        assert txn_metadata(one).state is OPEN
        code = await producer.end()
        assert code == 51
        assert await producer.end() == 0
        assert txn_metadata(one).state is COMMITTED
        assert await records(one) == [b"v"]


@pytest.mark.promise("P6")
async def test_a_wall_clock_that_jumps_ends_nothing():
    async with producing(begin=left_open, **SWEEP) as (_producer, one):
        one.node.now_ms = lambda: 10**15
        one.log_client._proposer._now_ms = lambda: 10**15
        await one.create_topic("another")
        await asyncio.sleep(2)
        assert txn_metadata(one).state is OPEN


async def test_an_agent_that_has_just_started_gives_the_whole_time_again(world):
    async with world.agents("one", **SWEEP) as (one,):
        await one.create_topic("logs", 4)
        one.node.transactions.sweep = never
        producer = await Producer.begin(one, timeout_ms=TIMEOUT_MS)
        await producer.add()
        await asyncio.sleep(60)
        proposed = commands_of(one, GiveUpTransaction)
        async with world.agents("two", **SWEEP) as (two,):
            assert proposed == []
            one.log.down = True
            took_s = await until_ended(two, 60)
            assert took_s < 6
            assert timed_out(two) == 1


async def test_a_transaction_that_is_another_by_the_time_its_end_is_written_is_left_alone():
    """The command names what the agent saw; the row has moved on meanwhile."""
    async with producing("one", "two", begin=left_open, **SWEEP) as (producer, one, two):
        owner = one if one.node.transactions.coordinates("id") else two
        gate, real = asyncio.Event(), owner.log_client.propose

        def propose(command, incarnation=None):
            if not isinstance(command, GiveUpTransaction):
                return real(command, incarnation)
            future = asyncio.get_running_loop().create_future()

            async def later():
                await gate.wait()
                future.set_result(await real(command, incarnation))

            tasks.append(asyncio.get_running_loop().create_task(later()))
            return future

        tasks = []
        owner.log_client.propose = propose
        await asyncio.sleep(8)
        assert len(tasks) >= 1
        assert await producer.end() == 0
        await producer.add({"logs": [1]})
        gate.set()
        await asyncio.gather(*tasks)
        await one.log_client.barrier()
        assert (txn_metadata(one).state, txn_metadata(one).instance) == (OPEN, 2)
        assert timed_out(owner) == 0


async def test_the_metrics_know_how_many_are_open_and_for_how_long():
    async with agents(**SWEEP) as (one,):
        service = one.node.transactions
        assert (service.open_count, service.oldest_open_ms()) == (0, 0)
        producer = await left_open(one)
        await asyncio.sleep(3)
        assert service.open_count == 1
        assert 2_500 <= service.oldest_open_ms() <= 3_500
        assert await producer.end() == 0
        assert (service.open_count, service.oldest_open_ms()) == (0, 0)
