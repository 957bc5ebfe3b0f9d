"""AlterConfigs, IncrementalAlterConfigs, DescribeConfigs, ListConfigResources; groups and topics."""

import pytest

from coordinator.commands.entries import Close, DeleteTopic
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
    hot,
)
from tests.broker.groups.world import answer_of_the_lagging
from tests.kit.batches import batch

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
OWNER_ONLY = "frazil.commit.owner.only"


def alter(*resources, validate_only: bool = False) -> AlterConfigsRequest:
    """Of (kind, name, {config: value})."""
    return AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )


def change(*resources, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    """Of (kind, name, [(config, operation, value)])."""
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )


async def codes(agent, request, **more) -> list[int]:
    key = (
        apis.ALTER_CONFIGS
        if isinstance(request, AlterConfigsRequest)
        else apis.INCREMENTAL_ALTER_CONFIGS
    )
    answer = await agent.call(key, request, **more)
    return [row.error_code for row in answer.responses]


async def described(agent, group_id: str, *, version: int = 4, code: int = 0) -> dict:
    """The configs of a group by name."""
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group_id, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = (await agent.call(apis.DESCRIBE_CONFIGS, request, version=version)).results
    assert result.error_code == code
    return {row.name: row for row in result.configs}


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_replaces_all_configs_of_topics_and_groups(version, world):
    async with world.agents("one") as (one,):
        await one.create_topic("logs", retention_ms="5", cleanup_policy="compact")
        first = alter((TOPIC, "logs", {"retention.ms": "6"}), (GROUP, "g", {SESSION: "50000"}))
        assert await codes(one, first, version=version) == [0, 0]
        assert one.machine.topics.by_name("logs").configs == {"retention.ms": "6"}
        assert one.machine.groups.configs("g") == {SESSION: "50000"}
        second = alter((TOPIC, "logs", {}), (GROUP, "g", {OWNER_ONLY: "true"}))
        assert await codes(one, second, version=version) == [0, 0]
        assert one.machine.topics.by_name("logs").configs == {}
        assert one.machine.groups.configs("g") == {OWNER_ONLY: "true"}


@pytest.mark.parametrize("version", range(2))
async def test_single_configs_are_set_unset_and_added_to(version, world):
    async with world.agents("one") as (one,):
        await one.create_topic("logs", retention_ms="5", segment_ms="7")
        changes = [
            ("retention.ms", DELETE, None),
            ("max.message.bytes", SET, "1000"),
            ("cleanup.policy", APPEND, "compact"),
        ]
        request = change((TOPIC, "logs", changes), (GROUP, "g", [(HEARTBEAT, SET, "6000")]))
        assert await codes(one, request, version=version) == [0, 0]
        assert one.machine.topics.by_name("logs").configs == {
            "cleanup.policy": "delete,compact",
            "max.message.bytes": "1000",
            "segment.ms": "7",
        }
        assert one.machine.groups.configs("g") == {HEARTBEAT: "6000"}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "gone", [("retention.ms", SET, "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", [("retention.ms", SET, "5")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", [("retention.ms", SET, "5")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "logs", [("retention.ms", SET, "-5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "logs", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "logs", [("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "logs", [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        (GROUP, "", [(SESSION, SET, "50000")], ErrorCode.INVALID_REQUEST),
        (GROUP, "g", [(SESSION, SET, "1000")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [("share.auto.offset.reset", SET, "latest")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g" * 40_000, [(SESSION, SET, "50000")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("num.partitions", SET, "3")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("num.partitions", SET, "3")], ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "9", [("root", SET, "DEBUG")], ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", [("interval.ms", SET, "99")], ErrorCode.INVALID_REQUEST),
        (77, "x", [], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_altered_is_refused_and_the_others_are_altered(
    kind, name, changes, code, world
):
    async with world.agents("one") as (one,):
        await one.create_topic("logs")
        request = change((kind, name, changes), (GROUP, "other", [(OWNER_ONLY, SET, "true")]))
        if len(name) < 30_000:
            assert await codes(one, request) == [code, 0]
            assert one.machine.groups.configs("other") == {OWNER_ONLY: "true"}
        else:
            # A longer string than Kafka's does not fit into one of its responses either.
            assert await codes(one, request, version=1) == [code, 0]
        assert one.machine.topics.by_name("logs").configs == {}
        assert not one.machine.groups.configs("g")


async def test_a_resource_that_is_named_twice_is_refused_each_time(world):
    async with world.agents("one") as (one,):
        wish = [(OWNER_ONLY, SET, "true")]
        request = change((GROUP, "g", wish), (GROUP, "h", wish), (GROUP, "g", wish))
        assert await codes(one, request) == [42, 0, 42]
        twice = alter((GROUP, "g", {}), (GROUP, "g", {}))
        assert await codes(one, twice) == [42, 42]


async def test_what_is_only_validated_changes_nothing(world):
    async with world.agents("one") as (one,):
        await one.create_topic("logs")
        position = one.machine.position
        good = change((GROUP, "g", [(OWNER_ONLY, SET, "true")]), validate_only=True)
        bad = alter((TOPIC, "logs", {"retention.ms": "x"}), validate_only=True)
        assert await codes(one, good) == [0]
        assert await codes(one, bad) == [ErrorCode.INVALID_CONFIG]
        assert one.machine.position == position


async def test_what_is_so_already_writes_nothing_into_the_log(world):
    async with world.agents("one") as (one,):
        request = change((GROUP, "g", [(OWNER_ONLY, SET, "true")]))
        assert await codes(one, request) == [0]
        position = one.machine.position
        assert await codes(one, request) == [0]
        assert one.machine.position == position


async def test_a_lagging_agent_alters_what_another_agent_made(world):
    """P8."""
    async with world.agents("one", "two") as (one, two):
        two.lag()
        await one.create_topic("logs", retention_ms="5")
        asking = codes(two, alter((TOPIC, "logs", {"segment.ms": "7"})))
        assert await answer_of_the_lagging(two, asking) == [0]
        assert two.machine.topics.by_name("logs").configs == {"segment.ms": "7"}


async def test_without_a_session_nothing_is_altered(world):
    """P5."""
    async with world.agents("one") as (one,):
        await one.lose_session()
        request = change((GROUP, "g", [(OWNER_ONLY, SET, "true")]))
        assert await codes(one, request) == [ErrorCode.NOT_CONTROLLER]
        assert await codes(one, alter((GROUP, "g", {}))) == [ErrorCode.NOT_CONTROLLER]


async def test_a_change_whose_fate_is_open_is_said_to_have_timed_out(world):
    """P4."""
    async with world.agents("one") as (one,):
        one.lag()
        wish = change((GROUP, "g", [(OWNER_ONLY, SET, "true")]))
        # The barrier passes, since nothing was written; then the outcome is not heard of.
        assert await codes(one, wish) == [ErrorCode.REQUEST_TIMED_OUT]


async def test_a_topic_that_is_deleted_meanwhile_is_unknown(monkeypatch, world):
    async with world.agents("one") as (one,):
        topic = await one.create_topic("logs")
        barrier = one.log_client.barrier

        async def barrier_before_a_deletion() -> None:
            await barrier()
            one.log_client.propose(DeleteTopic(topic.topic_id))

        monkeypatch.setattr(one.log_client, "barrier", barrier_before_a_deletion)
        answers = await codes(one, alter((TOPIC, "logs", {"retention.ms": "5"})))
        assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def produce_code(agent) -> int:
    data = hot.PartitionProduceData(index=0, records=batch(b"twenty bytes or more"))
    topic = hot.TopicProduceData(name="logs", partition_data=[data])
    request = hot.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    answer = await agent.call(apis.PRODUCE, request, version=9)
    return answer.responses[0].partition_responses[0].error_code


async def test_an_altered_topic_is_judged_by_its_new_configs_on_every_agent(world):
    async with world.agents("one", "two") as agents:
        one, two = agents
        await one.create_topic("logs")
        await two.log_client.barrier()
        for agent in agents:
            assert await produce_code(agent) == ErrorCode.NONE
        await codes(one, change((TOPIC, "logs", [("max.message.bytes", SET, "10")])))
        await two.log_client.barrier()
        for agent in agents:
            assert await produce_code(agent) == ErrorCode.MESSAGE_TOO_LARGE
        await codes(two, alter((TOPIC, "logs", {})))
        await one.log_client.barrier()
        for agent in agents:
            assert await produce_code(agent) == ErrorCode.NONE
            assert len(agent.node.producing.rules) == 1


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_groups_configs_are_told_with_their_sources(version, world):
    told = {"group_consumer_heartbeat_interval_ms": "7000"}
    async with world.agents("one", **told) as (one,):
        await codes(one, change((GROUP, "g", [(SESSION, SET, "50000")])))
        rows = await described(one, "g", version=version)
        assert (rows[SESSION].value, rows[SESSION].config_source) == ("50000", 8)
        assert (rows[HEARTBEAT].value, rows[HEARTBEAT].config_source) == ("7000", 4)
        assert (rows[OWNER_ONLY].value, rows[OWNER_ONLY].config_source) == ("false", 5)
        assert [each.value for each in rows[SESSION].synonyms] == ["50000", "45000"]
        if version >= 3:
            assert (rows[SESSION].config_type, rows[OWNER_ONLY].config_type) == (3, 1)


async def test_a_group_without_a_name_has_no_configs(world):
    async with world.agents("one") as (one,):
        assert await described(one, "", code=ErrorCode.INVALID_REQUEST) == {}


async def test_a_lagging_agent_describes_the_configs_that_another_agent_set(world):
    """P8."""
    async with world.agents("one", "two") as (one, two):
        two.lag()
        await codes(one, change((GROUP, "g", [(OWNER_ONLY, SET, "true")])))
        told = await answer_of_the_lagging(two, described(two, "g"))
        assert told[OWNER_ONLY].value == "true"


async def listed(agent, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    answer = await agent.call(apis.LIST_CONFIG_RESOURCES, request, version=version)
    assert answer.error_code == 0
    return [(row.resource_type, row.resource_name) for row in answer.config_resources]


async def test_resources_that_can_have_configs_are_listed_by_kind(world):
    async with world.agents("one", "two") as (one, two):
        await one.create_topic("logs")
        await codes(one, change((GROUP, "g", [(OWNER_ONLY, SET, "true")])))
        brokers = [str(one.node_id), str(two.node_id)]
        assert await listed(one, GROUP) == [(GROUP, "g")]
        assert await listed(one, TOPIC, GROUP, TOPIC) == [(TOPIC, "logs"), (GROUP, "g")]
        assert await listed(one) == [
            (TOPIC, "logs"),
            *((BROKER, name) for name in brokers),
            *((BROKER_LOGGER, name) for name in brokers),
            (GROUP, "g"),
        ]


async def test_a_lagging_agent_lists_what_another_agent_made(world):
    """P8."""
    async with world.agents("one", "two") as (one, two):
        two.lag()
        await codes(one, change((GROUP, "g", [(OWNER_ONLY, SET, "true")])))
        assert await answer_of_the_lagging(two, listed(two, GROUP)) == [(GROUP, "g")]


async def test_a_group_whose_configs_are_all_gone_is_listed_no_more(world):
    async with world.agents("one") as (one,):
        await codes(one, change((GROUP, "g", [(OWNER_ONLY, SET, "true")])))
        await codes(one, change((GROUP, "g", [(OWNER_ONLY, DELETE, None)])))
        assert await listed(one, GROUP) == []


async def test_the_first_version_lists_client_metrics_of_which_there_are_none(world):
    async with world.agents("one") as (one,):
        await one.create_topic("logs")
        assert await listed(one, version=0) == []
        assert await listed(one, CLIENT_METRICS) == []


async def test_an_unknown_kind_of_resource_is_not_listed(world):
    async with world.agents("one") as (one,):
        request = ListConfigResourcesRequest(resource_types=[TOPIC, 3])
        answer = await one.call(apis.LIST_CONFIG_RESOURCES, request)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert answer.config_resources == []


async def test_configs_outlive_the_agent_that_set_them(world):
    async with world.agents("one", "two") as (one, two):
        await codes(one, change((GROUP, "g", [(OWNER_ONLY, SET, "true")])))
        incarnation = one.log_client.incarnation()
        await one.log_client.propose(Close(incarnation, 0))
        assert (await described(two, "g"))[OWNER_ONLY].value == "true"
