"""DeleteRecords: what is deleted, what Kafka refuses, and what may still happen (P4)."""

import pytest

from broker.handlers import delete_records
from coordinator.commands.entries import DeleteTopic
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.agents import before_proposing
from tests.kit.batches import batch
from tests.kit.client import caught_up
from tests.kit.faults import lost


def delete(name: str, *places: tuple[int, int], timeout_ms: int = 10_000) -> DeleteRecordsRequest:
    """Up to an offset in each of the partitions of a topic."""
    partitions = [
        DeleteRecordsPartition(partition_index=at, offset=offset) for at, offset in places
    ]
    topic = DeleteRecordsTopic(name=name, partitions=partitions)
    return DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)


def rows(answer) -> list[tuple[int, int]]:
    """Error and low watermark of each partition of the only topic."""
    (topic,) = answer.topics
    return [(row.error_code, row.low_watermark) for row in topic.partitions]


async def ask(agent, request, **more) -> list[tuple[int, int]]:
    return rows(await agent.call(apis.DELETE_RECORDS, request, **more))


async def fill(agent, name: str = "logs", *, records: int = 5, partitions: int = 1, **configs):
    """A topic with records, one a span, in its first partition."""
    topic = await agent.create_topic(name, partitions, **configs)
    for _ in range(records):
        await agent.produce(name, batch(b"x", key=b"k"))
    partition = agent.machine.partitions.get(topic.topic_id, 0)
    assert partition.end_offset == records
    return partition


@pytest.mark.parametrize("version", range(3))
async def test_a_log_begins_at_the_offset_that_is_given(version, world):
    async with world.agents("one") as (one,):
        partition = await fill(one)
        assert await ask(one, delete("logs", (0, 3)), version=version) == [(0, 3)]
        assert (partition.log_start, partition.end_offset) == (3, 5)


async def test_nothing_is_deleted_while_an_agent_of_an_older_release_is_live(world):
    async with world.agents("one") as (one,):
        partition = await fill(one)
        (row,) = one.machine.incarnations
        row.feature_level_max = 1
        assert await ask(one, delete("logs", (0, 3))) == [(ErrorCode.UNSUPPORTED_VERSION, -1)]
        assert partition.log_start == 0


async def test_minus_one_is_the_end(world):
    async with world.agents("one") as (one,):
        partition = await fill(one)
        assert await ask(one, delete("logs", (0, -1))) == [(0, 5)]
        assert (partition.log_start, partition.end_offset) == (5, 5)


async def test_in_the_middle_of_a_batch_the_log_begins_there_too(world):
    async with world.agents("one") as (one,):
        topic = await one.create_topic("logs")
        await one.produce("logs", batch(b"a", b"b", b"c"))
        assert await ask(one, delete("logs", (0, 2))) == [(0, 2)]
        assert one.machine.partitions.get(topic.topic_id, 0).log_start == 2


@pytest.mark.parametrize(
    ("offset", "configs", "code"),
    [
        (6, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (3, {"cleanup_policy": "compact"}, ErrorCode.POLICY_VIOLATION),
        (-1, {"cleanup_policy": "compact"}, ErrorCode.POLICY_VIOLATION),
        (99, {"cleanup_policy": "compact"}, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_what_kafka_refuses_is_refused_alike(offset, configs, code, world):
    async with world.agents("one") as (one,):
        partition = await fill(one, **configs)
        assert await ask(one, delete("logs", (0, offset))) == [(code, -1)]
        assert partition.log_start == 0


async def test_a_topic_that_is_compacted_and_deleted_from_lets_go(world):
    async with world.agents("one") as (one,):
        await fill(one, cleanup_policy="compact,delete")
        assert await ask(one, delete("logs", (0, 3))) == [(0, 3)]


async def test_the_brokers_policy_holds_for_a_topic_without_its_own(world):
    async with world.agents("one", log_cleanup_policy="compact") as (one,):
        await fill(one)
        assert await ask(one, delete("logs", (0, 3))) == [(ErrorCode.POLICY_VIOLATION, -1)]


async def test_names_that_kafka_keeps_for_itself_are_invalid_if_they_are_there(world):
    async with world.agents("one") as (one,):
        name = "__consumer_offsets"
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await ask(one, delete(name, (0, 0))) == [unknown]
        await fill(one, name)
        assert await ask(one, delete(name, (0, 3))) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]


async def test_each_partition_has_its_own_answer(world):
    async with world.agents("one") as (one,):
        await fill(one, partitions=2)
        request = delete("logs", (7, 0), (0, 4), (1, 1), (1, 0), (0, 2))
        request.topics += delete("nothing", (0, 0)).topics
        logs, nothing = (await one.call(apis.DELETE_RECORDS, request)).topics
        found = {
            row.partition_index: (row.error_code, row.low_watermark) for row in logs.partitions
        }
        assert found == {
            7: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            0: (0, 2),
            1: (0, 0),
        }, "of a partition that is named twice the last mention counts"
        (row,) = nothing.partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_what_is_gone_already_needs_no_entry_in_the_log(world):
    async with world.agents("one") as (one,):
        await fill(one)
        await ask(one, delete("logs", (0, 3)))
        commands = []
        before_proposing(one, lambda command, _: commands.append(command))
        assert await ask(one, delete("logs", (0, 3))) == [(0, 3)]
        assert await ask(one, delete("logs", (0, 1))) == [(0, 3)]
        assert commands == []


@pytest.mark.promise("P8")
async def test_a_lagging_agent_knows_the_end_that_another_agent_has_told(world):
    async with world.agents("one", "lagging") as (one, lagging):
        lagging.lag()
        await fill(one)
        assert await caught_up(lagging, ask(lagging, delete("logs", (0, 5)))) == [(0, 5)]


@pytest.mark.promise("P8")
async def test_minus_one_deletes_what_another_agent_has_acknowledged_before(world):
    async with world.agents("one", "lagging") as (one, lagging):
        await fill(one, records=2)
        await lagging.log_client.barrier()
        lagging.lag()
        await one.produce("logs", batch(b"x"))
        assert await caught_up(lagging, ask(lagging, delete("logs", (0, -1)))) == [(0, 3)]


async def test_a_topic_that_is_deleted_meanwhile_is_unknown(world):
    async with world.agents("one") as (one,):
        partition = await fill(one)
        before_proposing(one, lambda _, propose: propose(DeleteTopic(partition.topic_id)))
        refused = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await ask(one, delete("logs", (0, 3))) == [refused]


@pytest.mark.promise("P4")
async def test_what_may_still_happen_is_said_to_have_timed_out(world):
    """P4: the append has no answer, so nobody knows."""
    async with world.agents("one", "two") as (one, two):
        partition = await fill(one)
        await two.log_client.barrier()
        one.log.after["append"] = lost()
        before_proposing(one, lambda *_: one.lag())
        unknown = (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert await ask(one, delete("logs", (0, 3), timeout_ms=500)) == [unknown]
        await two.log_client.barrier()
        assert two.machine.partitions.get(partition.topic_id, 0).log_start == 3


async def test_many_partitions_go_into_commands_of_bounded_size(monkeypatch, world):
    monkeypatch.setattr(delete_records, "TRIMS_PER_COMMAND_MAX", 3)

    async with world.with_topic(partitions=7) as (one,):
        for partition in range(7):
            await one.produce("logs", batch(b"x"), partition=partition)
        commands = []
        before_proposing(one, lambda command, _: commands.append(command))
        asked = delete("logs", *((partition, -1) for partition in range(7)))
        assert await ask(one, asked) == [(0, 1)] * 7
        assert [len(command.trims) for command in commands] == [3, 3, 1]
