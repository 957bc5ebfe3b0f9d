"""Transactional batches on running agents: Kafka's errors by version (KIP-98, KIP-890)."""

import asyncio

import pytest

from protocol.errors import ErrorCode
from protocol.records import CONTROL, TRANSACTIONAL
from tests.broker.agents import World
from tests.broker.produce.transactional import Client, transacting
from tests.kit.batches import batch

ALL = range(3, 14)
TV1 = range(3, 12)
TV2 = range(12, 14)
OUTSIDE = {
    version: ErrorCode.INVALID_TXN_STATE if version < 11 else ErrorCode.TRANSACTION_ABORTABLE
    for version in TV1
}
"""What a batch outside of any transaction is told."""
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", TV1)
async def test_a_batch_of_the_open_transaction_is_taken_where_it_was_added(
    version: int, world: World
) -> None:
    async with transacting(world) as (client, agent):
        assert await client.produce(agent, client.batch(), version=version).written() == (0, 0)
        assert agent.row("t").last_stable == 0
        await client.end(agent)
        assert agent.row("t").last_stable == agent.row("t").end_offset == 2


# What | versions | partitions that were added | batches, by the client and one of another id | how
# they are sent | the code, perhaps by version.
REFUSED = [
    ("not added", TV1, [1], lambda mine, _: [mine.batch()], {}, OUTSIDE),
    ("nothing open", TV1, [], lambda mine, _: [mine.batch()], {}, OUTSIDE),
    ("producer of another id", ALL, [],
     lambda mine, other: [mine.batch(producer_id=other.producer_id)], {}, MAPPING),
    ("unknown producer", ALL, [], lambda mine, _: [mine.batch(producer_id=999_999)], {}, MAPPING),
    ("unknown id", ALL, [], lambda mine, _: [mine.batch()], {"transactional_id": "nobody"}, MAPPING),
    ("no id", ALL, [], lambda mine, _: [batch(), mine.batch()], {"transactional_id": None},
     ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ("two epochs", ALL, [0, 1],
     lambda mine, _: [mine.batch(), mine.batch(epoch=mine.epoch + 1)], {}, MAPPING),
    ("control batch", [9, 12], [0],
     lambda mine, _: [mine.batch(attributes=TRANSACTIONAL | CONTROL)], {}, ErrorCode.INVALID_RECORD),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "added", "batches", "how", "code"),
    [
        pytest.param(version, *row, id=f"{what}, v{version}")
        for what, versions, *row in REFUSED
        for version in versions
    ],
)
async def test_a_request_with_a_batch_outside_of_its_transaction_is_refused_as_a_whole(
    version: int, added: list[int], batches, how, code, world: World
) -> None:
    async with transacting(world, added=added) as (client, agent):
        other = Client("y")
        await other.init(agent)
        await other.add(agent, "t", 0)
        sent = batches(client, other)
        answer = client.produce(agent, *sent, version=version, **how)
        expected = code[version] if isinstance(code, dict) else code
        for at in range(len(sent)):
            assert await answer.written(at) == (expected, -1)
        assert agent.row("t").end_offset == 0
        if code is OUTSIDE and added and version >= 8:
            assert "takes no part" in (await answer.partition()).error_message


@pytest.mark.parametrize("version", TV1)
async def test_behind_the_end_of_its_transaction_a_batch_is_refused(
    version: int, world: World
) -> None:
    async with transacting(world) as (client, agent):
        await client.end(agent)
        answer = client.produce(agent, client.batch(), version=version)
        assert await answer.written() == (OUTSIDE[version], -1)


@pytest.mark.parametrize("version", TV2)
async def test_from_v12_on_a_batch_begins_its_transaction_and_adds_its_partition(
    version: int, world: World
) -> None:
    async with transacting(world, added=()) as (client, agent):
        sent = [client.batch(), client.batch()]
        answer = client.produce(agent, *sent, version=version)
        assert [await answer.code(at) for at in (0, 1)] == [0, 0]
        row = agent.log_client.machine.transactions.get("x")
        assert row.is_ongoing
        assert [partition for _, partition in row.partitions] == [0, 1]


@pytest.mark.parametrize("version", ALL)
async def test_a_producer_that_was_taken_over_is_told_that_its_epoch_is_old(
    version: int, world: World
) -> None:
    async with transacting(world) as (zombie, agent):
        await zombie.produce(agent, zombie.batch()).wait()
        await Client().init(agent)
        sent = [zombie.batch(1), zombie.batch(0)]
        # One where the partition knows the producer, one where it does not.
        answer = zombie.produce(agent, *sent, version=version)
        for at in (0, 1):
            assert await answer.written(at) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
            if version >= 8:
                assert "epoch 0" in (await answer.partition(at)).error_message


@pytest.mark.parametrize("version", ALL)
async def test_a_plain_batch_within_the_producers_open_transaction_is_refused(
    version: int, world: World
) -> None:
    async with transacting(world) as (client, agent):
        await client.produce(agent, client.batch()).wait()
        plain = batch(producer_id=client.producer_id, epoch=client.epoch, sequence=1)
        answer = await agent.produce("t", plain, version=version).code()
        assert answer == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", TV1)
async def test_a_repeated_batch_keeps_its_offset_also_when_its_transaction_is_over(
    version: int, world: World
) -> None:
    async with transacting(world, added=[1]) as (client, agent):
        sent = client.batch(0, b"1", b"2")

        async def again() -> tuple[int, int]:
            return await client.produce(agent, sent, partition=1, version=version).written()

        assert [await again(), await again()] == [(0, 0)] * 2
        await client.end(agent)
        assert await again() == (0, 0)
        await client.add(agent, "t", 0)
        assert await again() == (0, 0)
        assert agent.row("t", 1).end_offset == 3


@pytest.mark.parametrize("version", TV1)
async def test_sequences_go_on_over_transactions_of_one_epoch(version: int, world: World) -> None:
    async with transacting(world, added=()) as (client, agent):
        for sequence, commit in enumerate([True, False, True]):
            await client.add(agent, "t", 0)
            sent = client.batch(sequence)
            assert await client.produce(agent, sent, version=version).written() == (0, 2 * sequence)
            await client.end(agent, commit=commit)
        await client.add(agent, "t", 0)
        answer = await client.produce(agent, client.batch(4), version=version).code()
        assert answer == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("version", TV2)
@pytest.mark.parametrize("commit", [True, False])
async def test_after_an_end_that_bumps_the_epoch_sequences_begin_at_0(
    version: int, commit: bool, world: World
) -> None:
    async with transacting(world, added=()) as (client, agent):
        old = client.batch()
        await client.produce(agent, old, version=version).wait()
        await client.end_bumping(agent, commit=commit)
        assert client.epoch == 1
        answer = await client.produce(agent, client.batch(1), version=version).code()
        assert answer == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        answer = await client.produce(agent, old, version=version).code()
        assert answer == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await client.produce(agent, client.batch(0), version=version).written() == (0, 2)


@pytest.mark.parametrize("version", ALL)
async def test_a_transaction_that_timed_out_is_said_to_have_timed_out(
    version: int, world: World
) -> None:
    async with transacting(world, added=[0, 1] if version in TV1 else ()) as (client, agent):
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


async def test_acks_0_closes_the_connection_of_a_batch_outside_a_transaction(world: World) -> None:
    async with transacting(world) as (client, agent):
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
