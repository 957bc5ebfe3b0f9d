"""CreatePartitions: what a topic gets, what Kafka refuses, and what may still happen (P4)."""

import pytest

from coordinator.commands.entries import DeleteTopic
from coordinator.commands.table_commands import TABLES_LEVEL, GrowTopic
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    MetadataRequest,
    MetadataRequestTopic,
)
from tests.broker.agents import before_proposing
from tests.kit.batches import batch
from tests.kit.client import caught_up
from tests.kit.faults import lost

NOT_MORE = ErrorCode.INVALID_PARTITIONS
BAD = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def wider(*topics: tuple, **more) -> CreatePartitionsRequest:
    """Each a name, a number of partitions, and perhaps the agents of each new one."""
    asked = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=[CreatePartitionsAssignment(broker_ids=ids) for ids in assigned[0]]
            if assigned
            else None,
        )
        for name, count, *assigned in topics
    ]
    return CreatePartitionsRequest(topics=asked, **({"timeout_ms": 10_000} | more))


async def ask(agent, *topics: tuple, version: int = 3, **more) -> list[tuple[str, int]]:
    request = wider(*topics, **more)
    answer = await agent.call(apis.CREATE_PARTITIONS, request, version=version)
    return [(row.name, row.error_code) for row in answer.results]


async def partitions_told(agent, name: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    (topic,) = (await agent.call(apis.METADATA, request)).topics
    return len(topic.partitions)


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_has_more_partitions_when_it_is_answered(version, world):
    async with world.with_topic(partitions=2) as (one,):
        await one.produce("logs", batch(b"x"), partition=1)
        assert await partitions_told(one, "logs") == 2
        assert await ask(one, ("logs", 5), version=version) == [("logs", 0)]
        assert await partitions_told(one, "logs") == 5
        await one.produce("logs", batch(b"y"), partition=4)
        topic = one.machine.topics.by_name("logs")
        ends = [one.machine.partitions.get(topic.topic_id, at).end_offset for at in range(5)]
        assert ends == [0, 1, 0, 0, 1]


async def test_what_is_only_validated_does_not_happen(world):
    async with world.with_topic(partitions=2) as (one,):
        asked = ("logs", 3), ("none", 3)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        expected = [("logs", 0), ("none", unknown)]
        assert await ask(one, *asked, validate_only=True) == expected
        assert one.machine.topics.by_name("logs").partition_count == 2


@pytest.mark.parametrize(
    ("count", "assigned", "code"),
    [
        (2, [], NOT_MORE),
        (1, [], NOT_MORE),
        (0, [], NOT_MORE),
        (-1, [], NOT_MORE),
        (10_001, [], NOT_MORE),
        (4, [[[0]]], BAD),
        (4, [[[0], [0], [0]]], BAD),
        (4, [[[0], []]], BAD),
        (4, [[[0, 0], [0, 0]]], BAD),
        (4, [[[0], [0, 1]]], BAD),
        (4, [[[0], [7]]], BAD),
        (4, [[]], BAD),
        (2, [[[7]]], NOT_MORE),
        (4, [[[0], [1]]], 0),
    ],
)
async def test_what_kafka_refuses_is_refused_alike(count, assigned, code, world):
    async with world.with_topic("one", "two", partitions=2) as (one, _):
        assert await ask(one, ("logs", count, *assigned)) == [("logs", code)]
        expected = 2 if code else count
        assert one.machine.topics.by_name("logs").partition_count == expected


async def test_each_topic_has_its_own_answer_and_one_that_is_named_twice_gets_nothing(world):
    async with world.agents("one") as (one,):
        for name in ("a", "b"):
            await one.create_topic(name, 1)
        asked = ("a", 2), ("none", 2), ("b", 2), ("b", 3)
        assert await ask(one, *asked) == [
            ("a", 0),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("b", ErrorCode.INVALID_REQUEST),
        ]
        assert one.machine.topics.by_name("b").partition_count == 1


async def test_nothing_is_added_while_an_agent_of_an_older_release_is_live(world):
    async with world.with_topic() as (one,):
        (row,) = one.machine.incarnations
        row.feature_level_max = TABLES_LEVEL - 1
        assert await ask(one, ("logs", 2)) == [("logs", ErrorCode.UNSUPPORTED_VERSION)]
        assert one.machine.topics.by_name("logs").partition_count == 1


@pytest.mark.promise("P8")
@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_lagging_agent_judges_by_what_another_agent_has_told(validate_only, world):
    """What is only validated is judged by nobody else: without a barrier it would pass."""
    async with world.with_topic("one", "lagging") as (one, lagging):
        lagging.lag()
        assert await ask(one, ("logs", 3)) == [("logs", 0)]
        request = wider(("logs", 3), validate_only=validate_only)
        (row,) = (await caught_up(lagging, lagging.call(apis.CREATE_PARTITIONS, request))).results
        assert (row.error_code, row.error_message) == (
            NOT_MORE,
            "Topic already has 3 partition(s).",
        )


@pytest.mark.parametrize(
    ("overtaking", "code"),
    [
        (lambda topic: GrowTopic(topic.topic_id, 3), NOT_MORE),
        (lambda topic: DeleteTopic(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_what_was_overtaken_is_refused_by_the_log(overtaking, code, world):
    async with world.agents("one") as (one,):
        topic = await one.create_topic("logs", 1)
        before_proposing(one, lambda _, propose: propose(overtaking(topic)))
        assert await ask(one, ("logs", 2)) == [("logs", code)]


@pytest.mark.promise("P4")
async def test_what_may_still_happen_is_said_to_have_timed_out(world):
    """P4: the append has no answer, so nobody knows."""
    async with world.with_topic("one", "two") as (one, two):
        one.log.after["append"] = lost()
        before_proposing(one, lambda *_: one.lag())
        unknown = ErrorCode.REQUEST_TIMED_OUT
        assert await ask(one, ("logs", 2), timeout_ms=500) == [("logs", unknown)]
        await two.log_client.barrier()
        assert two.machine.topics.by_name("logs").partition_count == 2
