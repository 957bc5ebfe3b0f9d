"""DescribeQuorum and ElectLeaders: what a cluster without replicas answers to Kafka's tools."""

import pytest

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)


def asked(name="__cluster_metadata", partition=0):
    rows = [DescribeQuorumRequestPartition(partition_index=partition)]
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopic(topic_name=name, partitions=rows)]
    )


def elect(*partitions, topic="logs", kind=0):
    rows = [ElectLeadersTopicPartitions(topic=topic, partitions=list(partitions))]
    return ElectLeadersRequest(election_type=kind, topic_partitions=rows)


def errors(answer):
    return {
        (row.topic, each.partition_id): each.error_code
        for row in answer.replica_election_results
        for each in row.partition_result
    }


@pytest.mark.parametrize("version", range(3))
async def test_all_live_agents_are_voters_and_every_agent_names_the_same_leader(version, world):
    async with world.agents("one", "two") as agents:
        leaders = set()
        for agent in agents:
            answer = await agent.call(apis.DESCRIBE_QUORUM, asked(), version=version)
            ((row,),) = [topic.partitions for topic in answer.topics]
            assert row.error_code == 0
            voters = {voter.replica_id for voter in row.current_voters}
            assert voters == {each.log_client.node_id() for each in agents}
            assert row.leader_id in voters
            assert row.high_watermark > 0
            assert {voter.log_end_offset for voter in row.current_voters} == {row.high_watermark}
            leaders.add(row.leader_id)
            if version == 2:
                assert {node.node_id for node in answer.nodes} == voters
        assert len(leaders) == 1


@pytest.mark.parametrize(("name", "partition"), [("logs", 0), ("__cluster_metadata", 1)])
async def test_nothing_but_the_log_of_metadata_has_a_quorum(name, partition, world):
    async with world.agents("one") as (one,):
        answer = await one.call(apis.DESCRIBE_QUORUM, asked(name, partition), version=2)
        assert answer.error_code == 0
        ((row,),) = [topic.partitions for topic in answer.topics]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_agent_that_lags_tells_the_end_that_another_has_told(world):
    async with world.with_topic("one", "two") as (one, two):
        told = await one.call(apis.DESCRIBE_QUORUM, asked(), version=2)
        other = await two.call(apis.DESCRIBE_QUORUM, asked(), version=2)
        ends = [answer.topics[0].partitions[0].high_watermark for answer in (told, other)]
        assert ends[1] >= ends[0]


@pytest.mark.parametrize("version", range(3))
async def test_no_partition_needs_an_election_and_an_unknown_one_is_said_to_be_unknown(
    version, world
):
    async with world.with_topic(partitions=2) as (one,):
        answer = await one.call(apis.ELECT_LEADERS, elect(0, 1, 2), version=version)
        assert errors(answer) == {
            ("logs", 0): ErrorCode.ELECTION_NOT_NEEDED,
            ("logs", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("logs", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


async def test_what_has_no_leader_to_be_elected_is_named_in_kafkas_words(world):
    async with world.with_topic() as (one,):
        told = []
        for request in (elect(0, 7), elect(0, topic="nothing")):
            answer = await one.call(apis.ELECT_LEADERS, request, version=2)
            (row,) = answer.replica_election_results
            told += [each.error_message for each in row.partition_result]
        assert told == [
            "Leader election not needed for topic partition.",
            "No such partition as logs-7",
            "No such topic as nothing",
        ]


async def test_an_election_for_all_partitions_elects_nobody(world):
    async with world.with_topic(partitions=2) as (one,):
        answer = await one.call(apis.ELECT_LEADERS, ElectLeadersRequest(), version=2)
        assert answer.error_code == 0
        assert errors(answer) == {}


async def test_a_type_of_election_that_kafka_does_not_have_is_refused_everywhere(world):
    async with world.with_topic(partitions=2) as (one,):
        answer = await one.call(apis.ELECT_LEADERS, elect(0, kind=7), version=2)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert errors(answer) == {("logs", 0): ErrorCode.INVALID_REQUEST}
