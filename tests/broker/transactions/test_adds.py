"""AddPartitionsToTxn and AddOffsetsToTxn: all or none, by version, and when things move."""

from dataclasses import replace

import pytest

from broker import handler_support
from coordinator.commands.entries import DeleteTopic
from coordinator.commands.transaction_commands import AddToTransaction, GiveUpTransaction
from protocol.errors import ErrorCode
from tests.broker.groups.world import agents
from tests.broker.transactions.world import (
    OPEN,
    Producer,
    commands_of,
    in_transaction,
    partition,
    producing,
    txn_metadata,
)
from tests.kit.client import caught_up

VERSIONS = range(4)


def taking_part(agent, transactional_id="id") -> list[int]:
    row = agent.machine.transactions.get(transactional_id)
    return sorted(index for _, index in row.partitions)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_first_add_opens_the_transaction_and_later_ones_join_it(version):
    async with producing() as (producer, one):
        assert await producer.add({"logs": [0, 2]}, version=version) == {
            ("logs", 0): 0,
            ("logs", 2): 0,
        }
        assert (txn_metadata(one).state, txn_metadata(one).instance) == (OPEN, 1)
        assert await producer.add({"logs": [1, 2, 2]}, version=version) == {
            ("logs", 1): 0,
            ("logs", 2): 0,
        }
        assert txn_metadata(one).instance == 1
        assert taking_part(one) == [0, 1, 2]


@pytest.mark.parametrize("version", VERSIONS)
async def test_with_a_partition_that_is_not_there_none_takes_part(version):
    async with producing() as (producer, one):
        wanted = {"gone": [0], "logs": [0, 4, -1, 1]}
        assert await producer.add(wanted, version=version) == {
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("logs", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("logs", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("logs", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("logs", 1): ErrorCode.OPERATION_NOT_ATTEMPTED,
        }
        assert txn_metadata(one).state is not OPEN


async def test_a_topic_that_is_deleted_meanwhile_is_unknown_and_the_others_are_not_attempted():
    async with producing("one", "two") as (producer, one, two):
        topic = await one.create_topic("doomed")
        await two.log_client.barrier()
        two.lag()
        await one.log_client.propose(DeleteTopic(topic.topic_id))
        asked = producer.add({"logs": [0], "doomed": [0]}, peer=two.connect())
        assert await caught_up(two, asked) == {("logs", 0): 55, ("doomed", 0): 3}
        assert txn_metadata(two).state is not OPEN


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"transactional_id": "nobody"}, [49] * 4),
        ({"transactional_id": ""}, [42] * 4),
        ({"producer_id": 12_345}, [49] * 4),
        ({"epoch": -1}, [47, 47, 90, 90]),
        ({"epoch": 1}, [47, 47, 90, 90]),
    ],
)
async def test_who_may_not_add_is_told_so_as_its_version_knows_it(fields, codes, version):
    async with producing() as (producer, one):
        wrong = replace(producer, **fields)
        answer = await wrong.add({"logs": [0, 1]}, version=version)
        assert [*answer.values()] == [codes[version]] * 2
        assert await wrong.add_offsets("g", version=version) == codes[version]
        assert txn_metadata(one).state is not OPEN


async def test_existence_comes_before_everything_about_the_id():
    async with producing() as (producer, _one):
        producer.transactional_id = ""
        assert await producer.add({"gone": [0]}) == {("gone", 0): 3}


@pytest.mark.parametrize("version", range(5))
async def test_a_group_takes_part_in_every_version(version):
    async with producing() as (producer, one):
        assert await producer.add_offsets("g", version=version) == 0
        assert await producer.add_offsets("h", version=version) == 0
        row = one.machine.transactions.get("id")
        assert (list(row.group_ids), row.txn_metadata.instance) == (["g", "h"], 1)


async def test_more_partitions_than_a_command_may_have_take_part_in_the_same_transaction():
    async with agents() as (one,):
        await one.create_topic("wide", 2_500)
        producer = await Producer.begin(one)
        commands = commands_of(one, AddToTransaction)
        answer = await producer.add({"wide": range(2_500), "logs": [3]})
        assert [*answer.values()] == [0] * 2_501
        assert [len(each.partitions) for each in commands] == [1_000, 1_000, 501]
        assert [each.instance for each in commands] == [1, 1, 1]
        assert len(one.machine.transactions.get("id").partitions) == 2_501
        assert txn_metadata(one).adds.owner.number == producer.peer.protocol.number
        assert await producer.end() == 0


async def test_an_agent_that_lags_behind_the_producer_adds_to_its_first_transaction():
    """It has not even heard of the transactional id."""
    async with agents("one", "two") as (one, two):
        two.lag()
        producer = await Producer.begin(one)
        assert await caught_up(two, producer.add(peer=two.connect())) == {("logs", 0): 0}
        assert txn_metadata(two).instance == 1


@pytest.mark.promise("P8")
async def test_an_agent_that_lags_behind_several_transactions_adds_to_the_newest():
    """`apply` refuses what the agent saw; the client, which may not repeat it, hears nothing of it."""
    async with producing("one", "two") as (producer, _one, two):
        await two.log_client.barrier()
        two.lag()
        for _ in range(3):
            await producer.add()
            assert await producer.end() == 0
        await producer.add({"logs": [1]})
        answer = await caught_up(two, producer.add({"logs": [2]}, peer=two.connect()))
        assert answer == {("logs", 2): 0}
        assert (txn_metadata(two).instance, taking_part(two)) == (4, [1, 2])
        assert two.node.transactions.stats.moved == 1


async def test_a_transaction_that_moves_in_the_middle_of_a_large_add_takes_all_of_it_or_none():
    async with agents("one", "two") as (one, two):
        await one.create_topic("wide", 2_500)
        producer = await Producer.begin(one)
        await two.log_client.barrier()
        seen = []

        def ended(applied):
            for command in applied.entry.commands:
                if isinstance(command, AddToTransaction):
                    seen.append(command)
                    if len(seen) == 1:
                        # Somebody takes the id's transaction away between two commands.
                        give_up = GiveUpTransaction("id", producer.producer_id, 0, 1, True)
                        handler_support.forget(two.log_client.propose(give_up))

        two.log_client.on_applied(ended)
        answer = await producer.add({"wide": range(2_500)})
        await one.log_client.barrier()
        assert set(answer.values()) == {ErrorCode.PRODUCER_FENCED}
        assert txn_metadata(one).state is not OPEN


async def test_a_transaction_that_never_stands_still_is_said_to_be_concurrent():
    async with producing() as (producer, one):
        service = one.node.transactions
        service.txn_metadata = lambda transactional_id: standing_of(transactional_id)._replace(
            instance=7
        )
        standing_of = type(service).txn_metadata.__get__(service)
        assert await producer.add() == {("logs", 0): ErrorCode.CONCURRENT_TRANSACTIONS}
        assert service.stats.moved == 5


async def test_an_add_opens_no_part_of_the_log_for_readers():
    async with in_transaction() as (producer, one):
        assert partition(one).last_stable == partition(one).end_offset == 0
        assert await producer.end() == 0
        assert partition(one).end_offset == 0
