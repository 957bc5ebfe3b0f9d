"""Reassignments, moves between log dirs, and agents that are unregistered: what tools are told where
nothing is moved."""

import pytest

from broker.handlers.alter_partition_reassignments import judged
from coordinator.commands.entries import Close
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    MetadataRequest,
    MetadataRequestTopic,
    ReassignablePartition,
    ReassignableTopic,
    UnregisterBrokerRequest,
)
from tests.kit.client import caught_up

MOVED = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def reassign(targets, *, topic="logs", **more) -> AlterPartitionReassignmentsRequest:
    rows = [
        ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in targets.items()
    ]
    topics = [ReassignableTopic(name=topic, partitions=rows)]
    return AlterPartitionReassignmentsRequest(topics=topics, **more)


async def told(agent, request, **more) -> dict[int, tuple[int, str | None]]:
    """Error and message of each partition."""
    answer = await agent.call(apis.ALTER_PARTITION_REASSIGNMENTS, request, **more)
    assert answer.error_code == 0
    (topic,) = answer.responses
    return {row.partition_index: (row.error_code, row.error_message) for row in topic.partitions}


async def shown(agent, **more) -> dict[int, list[int]]:
    """The replicas that Metadata names."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="logs")])
    answer = await agent.call(apis.METADATA, asked, **more)
    return {row.partition_index: row.replica_nodes for row in answer.topics[0].partitions}


@pytest.mark.parametrize("client_id", ["tool", "tool,zone=a", "tool,zone=b"])
@pytest.mark.parametrize("version", [0, 1])
async def test_a_partition_can_be_given_the_replicas_that_its_client_is_shown(
    version, client_id, world
):
    async with world.agents("one@a", "two@b", "three@a") as (one, two, _):
        await one.create_topic("logs", 12)
        replicas = await shown(two, client_id=client_id)
        assert {len(each) for each in replicas.values()} == {2}
        asked = reassign(replicas)
        answers = await told(two, asked, version=version, client_id=client_id)
        assert answers == dict.fromkeys(range(12), (0, None))
        turned = reassign({index: each[::-1] for index, each in replicas.items()})
        answers = await told(two, turned, version=version, client_id=client_id)
        assert {code for code, _ in answers.values()} == {MOVED}


async def test_other_replicas_are_refused_with_a_sentence(world):
    async with world.agents("one", "two") as (one, two):
        await one.create_topic("logs", 1)
        (replica,) = (await shown(one))[0]
        (other,) = {one.node_id, two.node_id} - {replica}
        code, message = (await told(one, reassign({0: [other]})))[0]
        assert code == MOVED
        assert message == (
            f"The replicas are [{replica}], one in each zone, and are not moved:"
            " any broker serves the partition."
        )


async def test_nothing_can_be_taken_back(world):
    async with world.with_topic() as (one,):
        sentence = "No partition reassignment is in progress."
        assert await told(one, reassign({0: None})) == {
            0: (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, sentence)
        }


async def test_what_is_not_there_is_said_to_be_unknown(world):
    async with world.with_topic() as (one,):
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await told(one, reassign({1: [0], -1: [0]})) == {
            1: (unknown, "Unable to find partition logs:1."),
            -1: (unknown, "Unable to find partition logs:-1."),
        }
        assert await told(one, reassign({0: None}, topic="nothing")) == {
            0: (unknown, "Unable to find a topic named nothing.")
        }


INVALID = "The manual partition assignment includes "


@pytest.mark.parametrize(
    ("replicas", "keeps_factor", "reason"),
    [
        ([], False, INVALID + "an empty replica list."),
        ([1, 0, 1], False, INVALID + "the broker 1 more than once."),
        ([0, 9, 2], False, INVALID + "broker 9, but no such broker is registered."),
        ([2, 2, 1, 0], False, INVALID + "the broker 2 more than once."),
        ([0], True, "The replication factor is changed from 2 to 1"),
        ([0], False, "The replicas are [0, 1], one in each zone, and are not moved"),
        ([0, 2], True, "The replicas are [0, 1], one in each zone, and are not moved"),
    ],
)
def test_replicas_that_cannot_be_are_refused_as_by_kafka(replicas, keeps_factor, reason):
    error = judged(replicas, (0, 1), {0, 1, 2}, keeps_factor=keeps_factor)
    assert error is not None
    of_factor = ErrorCode.INVALID_REPLICATION_FACTOR
    assert error.code is (of_factor if "factor" in reason else MOVED)
    assert error.message.startswith(reason)


async def test_who_insists_on_the_replication_factor_is_told_that_it_would_change(world):
    async with world.agents("one", "two") as (one, two):
        await one.create_topic("logs", 1)
        (replica,) = (await shown(one))[0]
        both = [one.node_id, two.node_id]
        assert replica in both
        asked = reassign({0: both}, allow_replication_factor_change=False)
        code, _ = (await told(one, asked))[0]
        assert code == ErrorCode.INVALID_REPLICATION_FACTOR
        # Version 0 cannot insist.
        code, _ = (await told(one, reassign({0: both}), version=0))[0]
        assert code == MOVED


async def test_no_reassignment_is_ever_under_way(world):
    async with world.with_topic() as (one,):
        named = [ListPartitionReassignmentsTopics(name="logs", partition_indexes=[0])]
        for topics in (None, named, []):
            request = ListPartitionReassignmentsRequest(topics=topics)
            answer = await one.call(apis.LIST_PARTITION_REASSIGNMENTS, request)
            assert (answer.error_code, answer.topics) == (0, [])


def to_dir(path: str, name: str, *partitions: int) -> AlterReplicaLogDir:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=list(partitions))]
    return AlterReplicaLogDir(path=path, topics=topics)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_partition_lies_in_the_one_log_dir_and_in_no_other(version, world):
    async with world.with_topic(partitions=2) as (one,):
        own = one.node.settings.store_url
        request = AlterReplicaLogDirsRequest(
            dirs=[to_dir("/elsewhere", "logs", 0), to_dir(own, "logs", 1, 2)]
        )
        answer = await one.call(apis.ALTER_REPLICA_LOG_DIRS, request, version=version)
        assert [
            (topic.topic_name, row.partition_index, row.error_code)
            for topic in answer.results
            for row in topic.partitions
        ] == [
            ("logs", 0, ErrorCode.LOG_DIR_NOT_FOUND),
            ("logs", 1, ErrorCode.NONE),
            ("logs", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


async def unregister(agent, node_id: int) -> tuple[int, str | None]:
    request = UnregisterBrokerRequest(broker_id=node_id)
    answer = await agent.call(apis.UNREGISTER_BROKER, request)
    return answer.error_code, answer.error_message


async def leave(agent, seen_by) -> None:
    """The agent is cut off, and another one closes its incarnation."""
    row = seen_by.machine.incarnations.by_node_id(agent.node_id)
    await agent.lose_session()
    await seen_by.log_client.propose(Close(row.incarnation, row.last_n))


async def test_an_agent_that_is_gone_is_unregistered_as_often_as_one_likes(world):
    async with world.agents("one", "two") as (one, two):
        gone = two.node_id
        code, message = await unregister(one, gone)
        assert code == ErrorCode.INVALID_REQUEST
        assert message == f"Broker {gone} is live. Stop it: it is forgotten when it has left."
        await leave(two, one)
        for _ in range(2):
            assert await unregister(one, gone) == (0, None)
        answer = await unregister(one, 77)
        assert answer == (
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Broker ID 77 is not currently registered",
        )


@pytest.mark.promise("P8")
async def test_a_lagging_agent_knows_of_an_agent_that_another_has_seen_leave(world):
    async with world.agents("one", "two", "lagging") as (one, two, lagging):
        gone = two.node_id
        lagging.lag()
        await leave(two, one)
        assert await unregister(one, gone) == (0, None)
        assert await caught_up(lagging, unregister(lagging, gone)) == (0, None)
