"""Transactional batches on running agents: Kafka's errors by version (KIP-98, KIP-890)."""

import asyncio

import pytest

from protocol.errors import ErrorCode
from tests.broker.produce.transactional import Client
from tests.kit.agents import World
from tests.kit.batches import batch

ALL = range(3, 14)
TV1 = range(3, 12)
TV2 = range(12, 14)
OUTSIDE = {
    version: ErrorCode.INVALID_TXN_STATE if version < 11 else ErrorCode.TRANSACTION_ABORTABLE
    for version in TV1
}
"""What a batch outside of any transaction is told."""


async def _started(world: World, agent, *, partitions: int = 2) -> Client:
    await agent.create_topic("t", partitions=partitions)
    client = Client()
    await client.init(agent)
    return client


@pytest.mark.parametrize("version", TV1)
async def test_a_batch_of_the_open_transaction_is_taken_where_it_was_added(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        await client.add(agent, "t", 0)
        taken = await client.produce(agent, client.batch(), version=version).partition()
        assert (taken.error_code, taken.base_offset) == (0, 0)
        assert agent.row("t").last_stable == 0
        await client.end(agent)
        assert agent.row("t").last_stable == agent.row("t").end_offset == 2


@pytest.mark.parametrize("version", TV1)
async def test_a_batch_for_a_partition_that_was_not_added_is_refused(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        await client.add(agent, "t", 1)
        refused = await client.produce(agent, client.batch(), version=version).partition()
        assert (refused.error_code, refused.base_offset) == (OUTSIDE[version], -1)
        assert agent.row("t").end_offset == 0
        if version >= 8:
            assert "takes no part" in refused.error_message


@pytest.mark.parametrize("version", TV1)
@pytest.mark.parametrize("ended", [False, True])
async def test_a_batch_without_an_open_transaction_is_refused(
    version: int, ended: bool, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        if ended:
            await client.add(agent, "t", 0)
            await client.end(agent)
        refused = await client.produce(agent, client.batch(), version=version).partition()
        assert (refused.error_code, refused.base_offset) == (OUTSIDE[version], -1)


@pytest.mark.parametrize("version", TV2)
async def test_from_v12_on_a_batch_begins_its_transaction_and_adds_its_partition(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        sent = [client.batch(), client.batch()]
        answer = client.produce(agent, *sent, version=version)
        assert [(await answer.partition(at)).error_code for at in (0, 1)] == [0, 0]
        row = agent.log_client.machine.transactions.get("x")
        assert row.is_ongoing
        assert [partition for _, partition in row.partitions] == [0, 1]


@pytest.mark.parametrize("version", ALL)
async def test_a_producer_that_was_taken_over_is_told_that_its_epoch_is_old(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        zombie = await _started(world, agent)
        await zombie.add(agent, "t", 0)
        await zombie.produce(agent, zombie.batch()).wait()
        await Client().init(agent)
        sent = [zombie.batch(1), zombie.batch(0)]
        # One where the partition knows the producer, one where it does not.
        answer = zombie.produce(agent, *sent, version=version)
        for at in (0, 1):
            refused = await answer.partition(at)
            assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert refused.base_offset == -1
            if version >= 8:
                assert "epoch 0" in refused.error_message


@pytest.mark.parametrize("version", ALL)
async def test_a_producer_id_that_is_not_of_the_transactional_id_is_refused(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        other = Client("y")
        await other.init(agent)
        await other.add(agent, "t", 0)
        for producer_id in (other.producer_id, 999_999):
            sent = client.batch(producer_id=producer_id)
            refused = await client.produce(agent, sent, version=version).partition()
            assert refused.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        unknown = await client.produce(
            agent, client.batch(), version=version, transactional_id="nobody"
        ).partition()
        assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert agent.row("t").end_offset == 0


@pytest.mark.parametrize("version", ALL)
async def test_without_a_transactional_id_every_partition_is_refused(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        answer = agent.produce("t", batch(), client.batch(), version=version)
        for at in (0, 1):
            refused = await answer.partition(at)
            assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert agent.row("t").end_offset == 0


@pytest.mark.parametrize("version", ALL)
async def test_batches_of_two_epochs_in_one_request_are_refused_as_a_whole(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        await client.add(agent, "t", 0, 1)
        sent = [client.batch(), client.batch(epoch=client.epoch + 1)]
        answer = client.produce(agent, *sent, version=version)
        for at in (0, 1):
            refused = await answer.partition(at)
            assert refused.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert agent.row("t").end_offset == 0


@pytest.mark.parametrize("version", ALL)
async def test_a_plain_batch_within_the_producers_open_transaction_is_refused(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        await client.add(agent, "t", 0)
        await client.produce(agent, client.batch()).wait()
        plain = batch(producer_id=client.producer_id, epoch=client.epoch, sequence=1)
        refused = await agent.produce("t", plain, version=version).partition()
        assert refused.error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", TV1)
async def test_a_repeated_batch_keeps_its_offset_also_when_its_transaction_is_over(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        await client.add(agent, "t", 1)
        sent = client.batch(0, b"1", b"2")
        first = await client.produce(agent, sent, partition=1, version=version).partition()
        within = await client.produce(agent, sent, partition=1, version=version).partition()
        await client.end(agent)
        after = await client.produce(agent, sent, partition=1, version=version).partition()
        await client.add(agent, "t", 0)
        later = await client.produce(agent, sent, partition=1, version=version).partition()
        for answer in (first, within, after, later):
            assert (answer.error_code, answer.base_offset) == (0, 0)
        assert agent.row("t", 1).end_offset == 3


@pytest.mark.parametrize("version", TV1)
async def test_sequences_go_on_over_transactions_of_one_epoch(version: int, world: World) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        for sequence, commit in enumerate([True, False, True]):
            await client.add(agent, "t", 0)
            sent = client.batch(sequence)
            taken = await client.produce(agent, sent, version=version).partition()
            assert (taken.error_code, taken.base_offset) == (0, 2 * sequence)
            await client.end(agent, commit=commit)
        await client.add(agent, "t", 0)
        gap = await client.produce(agent, client.batch(4), version=version).partition()
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("version", TV2)
@pytest.mark.parametrize("commit", [True, False])
async def test_after_an_end_that_bumps_the_epoch_sequences_begin_at_0(
    version: int, commit: bool, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        old = client.batch()
        await client.produce(agent, old, version=version).wait()
        await client.end_bumping(agent, commit=commit)
        assert client.epoch == 1
        gap = await client.produce(agent, client.batch(1), version=version).partition()
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        late = await client.produce(agent, old, version=version).partition()
        assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        taken = await client.produce(agent, client.batch(0), version=version).partition()
        assert (taken.error_code, taken.base_offset) == (0, 2)


@pytest.mark.parametrize("version", ALL)
async def test_a_transaction_that_timed_out_is_said_to_have_timed_out(
    version: int, world: World
) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        if version in TV1:
            await client.add(agent, "t", 0, 1)
        await client.produce(agent, client.batch(), version=version).wait()
        await client.time_out(agent)
        answer = client.produce(agent, client.batch(1), client.batch(), version=version)
        known, unknown = await answer.partition(0), await answer.partition(1)
        # A fenced partition says 47 as Kafka's does. Others say it plainer where they can.
        abortable = version in TV2
        plain = ErrorCode.TRANSACTION_ABORTABLE if abortable else known.error_code
        assert known.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert unknown.error_code == plain
        if version >= 8:
            assert "timed out" in known.error_message
            assert "timed out" in unknown.error_message


@pytest.mark.parametrize("version", [9, 12])
async def test_a_control_batch_of_a_client_is_refused(version: int, world: World) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        await client.add(agent, "t", 0)
        sent = batch(
            producer_id=client.producer_id, epoch=client.epoch, sequence=0, attributes=0x30
        )
        refused = await client.produce(agent, sent, version=version).partition()
        assert refused.error_code == ErrorCode.INVALID_RECORD


async def test_acks_0_closes_the_connection_of_a_batch_outside_a_transaction(world: World) -> None:
    async with world.agents("a") as (agent,):
        client = await _started(world, agent)
        await client.add(agent, "t", 0)
        connection = agent.another_connection()
        taken = client.produce(agent, client.batch(), acks=0, connection=connection)
        await asyncio.sleep(1)
        assert taken.there
        assert not connection.closed
        await client.end(agent)
        client.produce(agent, client.batch(1), acks=0, connection=connection)
        await asyncio.sleep(1)
        assert "TRANSACTION_ABORTABLE" in connection.close_reason
        assert agent.row("t").end_offset == 2
