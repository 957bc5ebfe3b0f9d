"""An agent of several nodes, as clients see it: who is shown them, and what each node answers."""

from collections import Counter

import pytest

from broker.cluster.nodes import STRIDE
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    ApiVersionsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeQuorumRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    UnregisterBrokerRequest,
)
from tests.broker.handlers.test_dynamic_configs import BROKER, LOGGER, set_
from tests.broker.handlers.test_log_dirs import sizes
from tests.kit import requests
from tests.kit.batches import batch
from tests.kit.client import Client

NODES = {"frazil_nodes_per_agent": "4"}


async def client_of(agent, software: str) -> Client:
    """A connection of a client that says what it is made of."""
    client = agent.connect()
    hello = ApiVersionsRequest(client_software_name=software, client_software_version="2.16.0")
    await client.call(apis.API_VERSIONS, 4, hello)
    return client


async def metadata(client, *names: str, create: bool, version: int = 12):
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )
    return await client.call(apis.METADATA, version, request)


def leaders(answer) -> list[int]:
    (topic,) = answer.topics
    return [row.leader_id for row in topic.partitions]


async def test_a_producer_of_librdkafka_is_led_to_all_nodes_evenly(world):
    async with world.agents("one@a", "two@a", **NODES) as (one, two):
        await one.create_topic("logs", 200)
        for agent in (one, two):
            answer = await metadata(await client_of(agent, "librdkafka"), "logs", create=True)
            places = {row.node_id: (row.host, row.port, row.rack) for row in answer.brokers}
            assert places == {
                owner.node_id + number * STRIDE: (owner.name, 9092, None if number else "a")
                for owner in (one, two)
                for number in range(4)
            }
            counts = Counter(leaders(answer))
            assert set(counts) == set(places)
            assert all(replicas.isr_nodes for replicas in answer.topics[0].partitions)


async def test_all_agents_tell_the_same_nodes(world):
    async with world.agents("one", "two", **NODES) as (one, two):
        await one.create_topic("logs", 64)
        told = [
            await metadata(await client_of(agent, "librdkafka"), "logs", create=True)
            for agent in (one, two)
        ]
        assert leaders(told[0]) == leaders(told[1])
        assert told[0].brokers == told[1].brokers


@pytest.mark.parametrize("software", ["apache-kafka-java", "kgo"])
async def test_other_clients_are_shown_agents(software, world):
    async with world.agents("one", **NODES) as (one,):
        await one.create_topic("logs", 8)
        answer = await metadata(await client_of(one, software), "logs", create=True)
        assert [row.node_id for row in answer.brokers] == [one.node_id]
        assert set(leaders(answer)) == {one.node_id}


async def test_a_consumer_of_librdkafka_is_led_to_agents_and_knows_the_same_nodes(world):
    """Whatever it asks: it gives up those that an answer does not name."""
    async with world.agents("one", **NODES) as (one,):
        await one.create_topic("logs", 8)
        client = await client_of(one, "librdkafka")
        answers = [
            await metadata(client, "logs", create=False),
            await metadata(client, create=False),
            await client.call(
                apis.METADATA, 12, MetadataRequest(topics=None, allow_auto_topic_creation=False)
            ),
            await metadata(client, "logs", create=True),
        ]
        assert set(leaders(answers[0])) == set(leaders(answers[2])) == {one.node_id}
        for answer in answers:
            assert [row.node_id for row in answer.brokers] == [
                one.node_id + number * STRIDE for number in range(4)
            ]


async def test_the_topic_that_is_kept_for_one_kind_of_client_is_not_shown_to_the_other(world):
    async with world.agents("one", **NODES) as (one,):
        await one.create_topic("logs", 8)
        client = await client_of(one, "librdkafka")
        for _ in range(2):
            assert len(set(leaders(await metadata(client, "logs", create=True)))) == 4
            assert len(set(leaders(await metadata(client, "logs", create=False)))) == 1


async def test_a_producer_that_asks_for_all_topics_keeps_its_nodes(world):
    async with world.agents("one", **NODES) as (one,):
        await one.create_topic("logs", 8)
        client = await client_of(one, "librdkafka")
        await client.call(apis.PRODUCE, 9, requests.produce({("logs", 0): batch(b"a")}))
        asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        assert len(set(leaders(await client.call(apis.METADATA, 12, asked)))) == 4
        other = await client_of(one, "librdkafka")
        assert len(set(leaders(await other.call(apis.METADATA, 12, asked)))) == 1


async def test_one_node_per_agent_shows_agents_alone(world):
    async with world.agents("one", frazil_nodes_per_agent="1") as (one,):
        await one.create_topic("logs", 8)
        answer = await metadata(await client_of(one, "librdkafka"), "logs", create=True)
        assert [row.node_id for row in answer.brokers] == [one.node_id]
        assert set(leaders(answer)) == {one.node_id}


async def test_nodes_keep_their_ids_over_a_restart(world):
    async def shown(agent) -> list[int]:
        answer = await metadata(await client_of(agent, "librdkafka"), "logs", create=True)
        return [row.node_id for row in answer.brokers] + leaders(answer)

    async with world.agents("zero", "one", **NODES) as (_, one):
        await one.create_topic("logs", 8)
        before = await shown(one)
    async with world.agents("one", "zero", **NODES) as (one, _):
        assert await shown(one) == before


async def test_tools_are_shown_agents(world):
    """What they ask of every broker they add up."""
    async with world.agents("one", "two", **NODES) as (one, two):
        agents = [one.node_id, two.node_id]
        client = await client_of(one, "apache-kafka-java")
        assert [row.node_id for row in (await metadata(client, create=True)).brokers] == agents
        described = await one.call(apis.DESCRIBE_CLUSTER, DescribeClusterRequest())
        assert [row.broker_id for row in described.brokers] == agents
        quorum = await one.call(apis.DESCRIBE_QUORUM, DescribeQuorumRequest())
        assert [row.node_id for row in quorum.nodes] == agents


async def test_each_partition_is_in_the_log_dir_of_one_agent(world):
    async with world.agents("one", "two", **NODES) as (one, two):
        await one.create_topic("logs", 20)
        told = [*await sizes(one), *await sizes(two)]
        assert sorted(told) == [("logs", index) for index in range(20)]


@pytest.mark.parametrize("key_type", [0, 1])
async def test_a_coordinator_is_an_agent_that_producers_know_too(key_type, world):
    async with world.agents("one", **NODES) as (one,):
        request = FindCoordinatorRequest(coordinator_keys=["key"], key_type=key_type)
        (found,) = (await one.call(apis.FIND_COORDINATOR, request)).coordinators
        assert (found.error_code, found.node_id) == (0, one.node_id)


async def described(agent, kind: int, name: str):
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)]
    )
    (result,) = (await agent.call(apis.DESCRIBE_CONFIGS, request)).results
    return result


@pytest.mark.parametrize("kind", [BROKER, LOGGER])
async def test_a_nodes_configs_are_its_agents(kind, world):
    async with world.agents("one", "two", **NODES) as (_, two):
        its_own = await described(two, kind, str(two.node_id))
        node = await described(two, kind, str(two.node_id + 3 * STRIDE))
        assert (node.error_code, node.resource_name) == (0, str(two.node_id + 3 * STRIDE))
        assert node.configs == its_own.configs


@pytest.mark.parametrize("number", [4, 1000])
async def test_a_node_that_is_not_there_has_no_configs(number, world):
    async with world.agents("one", **NODES) as (one,):
        result = await described(one, BROKER, str(one.node_id + number * STRIDE))
        assert result.error_code == ErrorCode.INVALID_REQUEST


async def test_what_is_set_for_a_node_is_set_for_its_agent(world):
    async with world.agents("one", **NODES) as (one,):
        node = str(one.node_id + STRIDE)
        assert await set_(one, BROKER, node, log_cleaner_threads="3") == (0, None)
        (value,) = [
            each.value
            for each in (await described(one, BROKER, str(one.node_id))).configs
            if each.name == "log.cleaner.threads"
        ]
        assert value == "3"


async def test_what_is_set_for_another_agents_node_is_refused(world):
    async with world.agents("one", "two", **NODES) as (one, two):
        for name in (str(two.node_id + STRIDE), f"0{one.node_id + STRIDE}"):
            code, _ = await set_(one, BROKER, name, log_cleaner_threads="3")
            assert code == ErrorCode.INVALID_REQUEST


async def test_a_node_of_a_live_agent_is_not_unregistered_and_one_that_is_not_there_is_unknown(
    world,
):
    async with world.agents("one", **NODES) as (one,):
        for number, code in (
            (3, ErrorCode.INVALID_REQUEST),
            (4, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ):
            request = UnregisterBrokerRequest(broker_id=one.node_id + number * STRIDE)
            answer = await one.call(apis.UNREGISTER_BROKER, request)
            assert answer.error_code == code


async def test_a_topic_may_be_created_with_the_replicas_that_a_producer_is_shown(world):
    async with world.agents("one", **NODES) as (one,):
        for number, code in ((3, 0), (4, ErrorCode.INVALID_REPLICA_ASSIGNMENT)):
            assignment = CreatableReplicaAssignment(
                partition_index=0, broker_ids=[one.node_id + number * STRIDE]
            )
            topic = CreatableTopic(
                name=f"t{number}",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[assignment],
            )
            request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
            (result,) = (await one.call(apis.CREATE_TOPICS, request)).topics
            assert result.error_code == code
