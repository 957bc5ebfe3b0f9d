"""ApiVersions, InitProducerId, FindCoordinator and the Describe APIs."""

import pytest

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    ApiVersionsRequest,
    Cursor,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeTopicPartitionsRequest,
    InitProducerIdRequest,
    TopicRequest,
)
from tests.broker.agents import lapse
from tests.kit.agents import Agent

TOPIC, BROKER = 2, 4
CLIENT = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")


@pytest.mark.parametrize("version", range(5))
async def test_every_api_of_the_table_is_advertised_in_every_version(version, world):
    async with world.agents("one") as (one,):
        answer = await one.call(apis.API_VERSIONS, CLIENT, version=version)
        rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        assert answer.error_code == 0
        assert rows == {key: (api.min_version, api.max_version) for key, api in apis.APIS.items()}
        if version >= 3:
            assert answer.finalized_features_epoch >= 0


@pytest.mark.parametrize("version", [3, 4])
async def test_features_are_told_and_only_to_new_clients_those_that_could_be_at_level_zero(
    version, world
):
    """KIP-584; clients of before version 4 cannot read a least level of 0 (KAFKA-17011)."""
    async with world.agents("one") as (one,):
        answer = await one.call(apis.API_VERSIONS, CLIENT, version=version)
        supported = {
            row.name: (row.min_version, row.max_version) for row in answer.supported_features
        }
        since_4 = {"group.version": (0, 1), "transaction.version": (0, 2)}
        assert supported == {"metadata.version": (7, 30), **(since_4 if version > 3 else {})}
        assert {
            row.name: (row.min_version_level, row.max_version_level)
            for row in answer.finalized_features
        } == {
            "metadata.version": (30, 30),
            "group.version": (1, 1),
            "transaction.version": (2, 2),
        }


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1")])
async def test_a_client_with_a_malformed_name_is_refused(name, version, world):
    """KIP-511."""
    async with world.agents("one") as (one,):
        asked = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        assert (await one.call(apis.API_VERSIONS, asked)).error_code == 42
        assert (await one.call(apis.API_VERSIONS, asked, version=2)).error_code == 0


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_are_never_given_twice(version, world):
    async with world.agents("one", "two") as agents:
        given = []
        for _ in range(15):  # More than one block.
            for agent in agents:
                request = InitProducerIdRequest()
                answer = await agent.call(apis.INIT_PRODUCER_ID, request, version=version)
                assert (answer.error_code, answer.producer_epoch) == (0, 0)
                given.append(answer.producer_id)
        assert len(set(given)) == 30
        assert min(given) >= 0


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest(transactional_id=""), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(producer_id=5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(producer_epoch=5), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_no_idempotent_producer_is_refused(request_, code, world):
    async with world.agents("one") as (one,):
        answer = await one.call(apis.INIT_PRODUCER_ID, request_)
        assert (answer.error_code, answer.producer_id) == (code, -1)


async def test_an_epoch_that_is_given_without_transactions_makes_a_new_producer(world):
    """KIP-360, as Kafka."""
    async with world.agents("one") as (one,):
        request = InitProducerIdRequest(producer_id=123_456, producer_epoch=3)
        answer = await one.call(apis.INIT_PRODUCER_ID, request)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert answer.producer_id != 123_456


async def _no_log(agent) -> None:
    agent.log.down = True


@pytest.mark.promise("P5")
@pytest.mark.parametrize("lose", [_no_log, Agent.lose_session, lapse])
async def test_without_a_session_no_producer_id_is_given_although_there_are_some_left(lose, world):
    """P5, P8."""
    async with world.agents("one") as (one,):
        await one.call(apis.INIT_PRODUCER_ID, InitProducerIdRequest())
        await lose(one)
        answer = await one.call(apis.INIT_PRODUCER_ID, InitProducerIdRequest())
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(version, world):
    async with world.agents("one@a", "two") as (one, two):
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await one.call(apis.DESCRIBE_CLUSTER, request, version=version)
        rows = {(row.broker_id, row.host, row.port, row.rack) for row in answer.brokers}
        assert rows == {(one.node_id, "one", 9092, "a"), (two.node_id, "two", 9092, None)}
        assert (answer.error_code, answer.controller_id) == (0, one.node_id)
        assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_only_brokers_are_described(endpoint_type, code, world):
    async with world.agents("one") as (one,):
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        assert (await one.call(apis.DESCRIBE_CLUSTER, request)).error_code == code


def configs(*resources, **more) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ],
        **more,
    )


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_configs_are_told_with_their_sources(version, world):
    async with world.agents("one", message_max_bytes="5000") as (one,):
        await one.create_topic("logs", retention_ms="1000")
        request = configs((TOPIC, "logs", None), include_synonyms=True)
        answer = await one.call(apis.DESCRIBE_CONFIGS, request, version=version)
        (result,) = answer.results
        rows = {row.name: row for row in result.configs}
        assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("1000", 1)
        assert rows["max.message.bytes"].value == "5000"
        assert rows["max.message.bytes"].config_source == 4
        assert rows["cleanup.policy"].config_source == 5
        synonyms = [(each.name, each.value) for each in rows["retention.ms"].synonyms]
        assert synonyms == [("retention.ms", "1000"), ("log.retention.ms", "604800000")]
        if version >= 3:
            assert rows["retention.ms"].config_type == 5


async def test_only_the_configs_asked_for_are_told_and_documentation_on_demand(world):
    async with world.with_topic() as (one,):
        asked = (TOPIC, "logs", ["retention.ms", "no.such.thing"])
        silent = await one.call(apis.DESCRIBE_CONFIGS, configs(asked))
        telling = await one.call(apis.DESCRIBE_CONFIGS, configs(asked, include_documentation=True))
        (row,) = silent.results[0].configs
        assert (row.name, row.documentation, row.synonyms) == ("retention.ms", None, [])
        assert telling.results[0].configs[0].documentation


async def test_an_agent_describes_its_own_settings_only(world):
    async with world.agents("one", "two", num_partitions="7") as (one, two):
        request = configs(
            (BROKER, str(one.node_id), None),
            (BROKER, str(two.node_id), None),
            (BROKER, "", None),
        )
        own, other, default = (await one.call(apis.DESCRIBE_CONFIGS, request)).results
        rows = {row.name: (row.value, row.config_source) for row in own.configs}
        assert rows["num.partitions"] == ("7", 4)
        assert other.error_code == ErrorCode.INVALID_REQUEST
        assert (default.error_code, default.configs) == (0, [])


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_configs_is_answered_per_resource(kind, name, code, world):
    async with world.agents("one") as (one,):
        (result,) = (await one.call(apis.DESCRIBE_CONFIGS, configs((kind, name, None)))).results
        assert (result.error_code, result.configs) == (code, [])


def topics(*names: str, limit: int = 2_000, cursor: Cursor | None = None):
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


async def test_topics_are_described_in_order_of_name(world):
    async with world.agents("one") as (one,):
        await one.create_topic("b", 2)
        await one.create_topic("a")
        answer = await one.call(apis.DESCRIBE_TOPIC_PARTITIONS, topics("b", "c", "a"))
        rows = [(row.name, row.error_code, len(row.partitions)) for row in answer.topics]
        assert rows == [("a", 0, 1), ("b", 0, 2), ("c", 3, 0)]
        assert answer.next_cursor is None
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.leader_epoch) == (one.node_id, 0)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_hold_every_partition_once(limit, world):
    async with world.agents("one") as (one,):
        for name, count in (("a", 3), ("b", 1), ("c", 5)):
            await one.create_topic(name, count)
        cursor, seen = None, []
        for _ in range(20):
            request = topics(limit=limit, cursor=cursor)
            answer = await one.call(apis.DESCRIBE_TOPIC_PARTITIONS, request)
            page = [
                (topic.name, row.partition_index)
                for topic in answer.topics
                for row in topic.partitions
            ]
            assert 0 < len(page) <= limit
            seen += page
            cursor = answer.next_cursor
            if cursor is None:
                break
        assert seen == [(n, i) for n, count in (("a", 3), ("b", 1), ("c", 5)) for i in range(count)]


async def test_the_agents_own_limit_bounds_a_page(world):
    async with world.agents("one", max_request_partition_size_limit="2") as (one,):
        await one.create_topic("a", 5)
        answer = await one.call(apis.DESCRIBE_TOPIC_PARTITIONS, topics("a"))
        assert len(answer.topics[0].partitions) == 2
        assert answer.next_cursor == Cursor(topic_name="a", partition_index=2)
