"""Configs of agents, loggers and subscriptions to clients' metrics, set while agents run (KIP-226, 412, 714)."""

import asyncio
import logging

import pytest

from broker.config.changes import OpType
from broker.upkeep import transaction_expiration
from coordinator.commands.config_commands import CONFIG_LEVEL, ChangeConfigs, ConfigKind
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    ApiVersionsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from tests.kit import requests
from tests.kit.batches import batch
from tests.kit.requests import rows_of

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NONE, INVALID_REQUEST, INVALID_CONFIG = 0, 42, 40
LOG = "broker.handlers.test_dynamic_configs"


async def set_(agent, kind: int, name: str, *, validate_only: bool = False, **configs: str | None):
    """`log_retention_ms="5"` sets it, None unsets it. The code and the sentence."""
    changes = [
        IncrementalAlterableConfig(
            name=each.replace("_", "."),
            config_operation=OpType.DELETE if value is None else OpType.SET,
            value=value,
        )
        for each, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        ],
        validate_only=validate_only,
    )
    (answer,) = (await agent.call(apis.INCREMENTAL_ALTER_CONFIGS, request)).responses
    return answer.error_code, answer.error_message


async def replace_(agent, kind: int, name: str, **configs: str):
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(name=each.replace("_", "."), value=value)
                    for each, value in configs.items()
                ],
            )
        ]
    )
    (answer,) = (await agent.call(apis.ALTER_CONFIGS, request)).responses
    return answer.error_code, answer.error_message


async def described(agent, kind: int, name: str):
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = (await agent.call(apis.DESCRIBE_CONFIGS, request)).results
    return result


async def values(agent, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Value and source by name."""
    result = await described(agent, kind, name)
    assert result.error_code == NONE, result.error_message
    return {row.name: (row.value, row.config_source) for row in result.configs}


def of(agent) -> str:
    return str(agent.node_id)


async def test_what_is_set_for_all_agents_holds_on_each_and_is_told_by_each(world):
    async with world.agents("one", "two") as (one, two):
        assert await set_(one, BROKER, "", message_max_bytes="100") == (NONE, None)
        for agent in (one, two):
            assert (await values(agent, BROKER, of(agent)))["message.max.bytes"] == ("100", 3)
            assert await values(agent, BROKER, "") == {"message.max.bytes": ("100", 3)}
            assert agent.node.kafka.message_max_bytes == 100


async def test_what_is_set_for_one_agent_holds_there_alone(world):
    async with world.agents("one", "two", log_retention_ms="1") as (one, two):
        assert await set_(one, BROKER, "", log_retention_ms="2") == (NONE, None)
        assert await set_(one, BROKER, of(one), log_retention_ms="3") == (NONE, None)
        assert (await values(one, BROKER, of(one)))["log.retention.ms"] == ("3", 2)
        assert (await values(two, BROKER, of(two)))["log.retention.ms"] == ("2", 3)
        result = await described(one, BROKER, of(one))
        row = next(each for each in result.configs if each.name == "log.retention.ms")
        assert [(each.value, each.source) for each in row.synonyms[:3]] == [
            ("3", 2),
            ("2", 3),
            ("1", 4),
        ]
        await set_(one, BROKER, of(one), log_retention_ms=None)
        await set_(one, BROKER, "", log_retention_ms=None)
        assert (await values(one, BROKER, of(one)))["log.retention.ms"] == ("1", 4)


async def test_topics_follow_at_once_on_every_agent_that_has_applied_it(world):
    async with world.with_topic("one", "two") as (one, two):
        large = batch(b"x" * 500)
        assert await one.produce("logs", large) == 0
        await set_(one, BROKER, "", message_max_bytes="100")
        for agent in (one, two):
            await agent.log_client.barrier()
            request = requests.produce({("logs", 0): large}, timeout_ms=30_000)
            answer = await agent.call(apis.PRODUCE, request, version=9)
            assert rows_of(answer)["logs", 0].error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await values(two, TOPIC, "logs"))["max.message.bytes"] == ("100", 3)
        await set_(one, BROKER, "", message_max_bytes=None)
        assert await one.produce("logs", large) == 1


async def test_an_agent_that_comes_later_has_what_was_set_before(world):
    async with world.agents("one") as (one,):
        await set_(one, BROKER, "", max_connections="77")
        own = ChangeConfigs(ConfigKind.BROKER, str(one.node_id + 1), (("log.retention.ms", "5"),))
        await one.log_client.propose(own)
        late = await world.add("late").ready()
        assert late.node_id == one.node_id + 1
        assert late.node.kafka.max_connections == 77
        assert late.node.kafka.log_retention_ms == 5


@pytest.mark.promise("P8")
@pytest.mark.parametrize(
    ("kind", "name", "config"), [(BROKER, "", "max_connections"), (METRICS, "s", "interval_ms")]
)
async def test_whoever_describes_it_elsewhere_sees_what_was_set(kind, name, config, world):
    async with world.agents("one", "two") as (one, two):
        two.lag()
        assert await set_(one, kind, name, **{config: "1000"}) == (NONE, None)
        asked = asyncio.ensure_future(values(two, kind, name))
        await asyncio.sleep(1)
        assert not asked.done()
        two.catch_up()
        assert (await asked)[config.replace("_", ".")][0] == "1000"


async def test_bounds_of_connections_follow(world):
    async with world.agents("one") as (one,):
        await set_(one, BROKER, of(one), max_connections_per_ip="2")
        clients = [one.connect(address="10.0.0.9") for _ in range(3)]
        await asyncio.sleep(0.1)
        assert [client.closed for client in clients] == [False, False, True]
        assert one.node.stats.connections_refused == {"address": 1}
        await set_(one, BROKER, of(one), max_connections_per_ip="9")
        more = one.connect(address="10.0.0.9")
        answer = await more.call(apis.API_VERSIONS, 0, ApiVersionsRequest())
        assert answer.error_code == NONE


async def test_the_rate_of_new_connections_follows(world):
    async with world.agents("one") as (one,):
        await set_(one, BROKER, "", max_connection_creation_rate="1")
        begun_s = asyncio.get_running_loop().time()
        for _ in range(4):
            await one.connect().call(apis.API_VERSIONS, 0, ApiVersionsRequest())
        assert asyncio.get_running_loop().time() - begun_s >= 2


async def test_producers_are_forgotten_by_the_time_that_is_set(world):
    async with world.with_topic() as (one,):
        await one.produce("logs", batch(b"x", producer_id=7, epoch=0, sequence=0))
        assert one.machine.partitions.window_count == 1
        await asyncio.sleep(3_600)
        await one.produce("logs", batch(b"x"))  # So that the log's time has passed.
        await transaction_expiration.sweep_producers(one.node)
        assert one.machine.partitions.window_count == 1
        await set_(one, BROKER, "", producer_id_expiration_ms="1000")
        await transaction_expiration.sweep_producers(one.node)
        assert one.machine.partitions.window_count == 0


@pytest.mark.parametrize("call", [set_, replace_])
async def test_only_the_agent_itself_takes_what_is_its_own(call, world):
    async with world.agents("one", "two") as (one, two):
        sentence = f"Unexpected broker id, expected {of(one)}, but received {of(two)}"
        assert await call(one, BROKER, of(two), max_connections="9") == (INVALID_REQUEST, sentence)
        sentence = "Node id must be an integer, but it is: x"
        assert await call(one, BROKER, "x", max_connections="9") == (INVALID_REQUEST, sentence)
        assert len(one.machine.dynamic_configs) == 0


async def test_an_agent_describes_nobody_but_itself_and_what_is_for_all(world):
    async with world.agents("one") as (one,):
        told = {
            (
                BROKER,
                "7",
            ): f"Unexpected broker id, expected {of(one)} or empty string, but received 7",
            (BROKER, "x"): "Broker id must be an integer, but it is: x",
            (LOGGER, "7"): f"Unexpected broker id, expected {of(one)} but received 7",
            (LOGGER, ""): "Broker id must not be empty",
            (METRICS, ""): "Client metrics subscription name must not be empty",
        }
        for resource, sentence in told.items():
            result = await described(one, *resource)
            assert (result.error_code, result.error_message) == (INVALID_REQUEST, sentence)


async def test_what_cannot_be_set_is_refused_and_nothing_of_the_request_is_done(world):
    async with world.agents("one") as (one,):
        told = await set_(one, BROKER, of(one), num_partitions="2", max_connections="9")
        sentence = "Cannot update these configs dynamically: [num.partitions]"
        assert told == (INVALID_REQUEST, sentence)
        assert one.node.kafka.max_connections == 2147483647
        rows = {row.name: row for row in (await described(one, BROKER, of(one))).configs}
        assert rows["num.partitions"].read_only
        assert not rows["max.connections"].read_only
        assert (rows["sasl.jaas.config"].value, rows["sasl.jaas.config"].is_sensitive) == (
            None,
            True,
        )


async def test_what_is_only_validated_changes_nothing(world):
    async with world.agents("one") as (one,):
        told = await set_(one, BROKER, "", validate_only=True, max_connections="9")
        assert told == (NONE, None)
        told = await set_(one, METRICS, "s", validate_only=True, metrics="*")
        assert told == (NONE, None)
        before = logging.root.level
        assert await set_(one, LOGGER, of(one), validate_only=True, root="FATAL") == (NONE, None)
        assert logging.root.level == before
        assert len(one.machine.dynamic_configs) == 0


async def test_the_older_api_replaces_all_that_was_set(world):
    async with world.agents("one") as (one,):
        await set_(one, BROKER, "", max_connections="9", log_retention_ms="5")
        assert await replace_(one, BROKER, "", log_retention_ms="6") == (NONE, None)
        assert await values(one, BROKER, "") == {"log.retention.ms": ("6", 3)}


@pytest.mark.promise("P13")
async def test_beside_an_agent_of_an_older_release_nothing_is_set(world):
    """It could not read the command, and would stop."""
    async with world.agents("one") as (one,):
        for row in one.machine.incarnations:
            row.feature_level_max = CONFIG_LEVEL - 1
        for kind, name in ((BROKER, ""), (METRICS, "s")):
            code, _ = await set_(one, kind, name, interval_ms="1000")
            assert code == ErrorCode.UNSUPPORTED_VERSION
        assert len(one.machine.dynamic_configs) == 0


async def test_what_only_another_release_knows_is_ignored_and_told_once(world, caplog):
    caplog.set_level(logging.WARNING)
    async with world.agents("one") as (one,):
        for value in ("1", "2"):
            changes = (("of.the.next.release", value),)
            await one.log_client.propose(ChangeConfigs(ConfigKind.BROKER, "", changes))
        assert await set_(one, BROKER, "", max_connections="9") == (NONE, None)
        assert one.node.kafka.max_connections == 9
        told = [each for each in caplog.messages if "of.the.next.release" in each]
        assert len(told) == 1
        assert await values(one, BROKER, "") == {"max.connections": ("9", 3)}


async def test_levels_of_loggers_are_told_set_and_unset_by_the_agent_that_is_named(world):
    logger = logging.getLogger(LOG)
    async with world.agents("one") as (one,):
        assert (await set_(one, LOGGER, "77", root="INFO")) == (
            INVALID_REQUEST,
            f"Unexpected node id. Expected {of(one)}, but received 77",
        )
        inherited = (await values(one, LOGGER, of(one)))[LOG]
        code, sentence = await alter_logger(one, LOG, "ERROR")
        assert (code, sentence) == (NONE, None)
        assert logger.level == logging.ERROR
        assert (await values(one, LOGGER, of(one)))[LOG] == ("ERROR", 6)
        assert await alter_logger(one, LOG, None) == (NONE, None)
        assert (await values(one, LOGGER, of(one)))[LOG] == inherited
        assert logger.level == logging.NOTSET
        code, sentence = await replace_(one, LOGGER, of(one), root="INFO")
        assert (code, sentence) == (
            INVALID_REQUEST,
            "Unknown resource type 8",
        )
        assert len(one.machine.dynamic_configs) == 0


async def test_an_agent_whose_log_is_away_can_still_be_made_to_say_more(world):
    async with world.agents("one") as (one,):
        await one.lose_session()
        assert await alter_logger(one, LOG, "DEBUG") == (NONE, None)
        assert (await values(one, LOGGER, of(one)))[LOG] == ("DEBUG", 6)
        assert await alter_logger(one, LOG, None) == (NONE, None)
        code, _ = await set_(one, BROKER, of(one), max_connections="9")
        assert code == ErrorCode.NOT_CONTROLLER
        one.log.down = False
        await one.ready()


async def alter_logger(agent, name: str, level: str | None):
    change = IncrementalAlterableConfig(
        name=name, config_operation=OpType.DELETE if level is None else OpType.SET, value=level
    )
    resource = IncrementalAlterConfigsResource(
        resource_type=LOGGER, resource_name=of(agent), configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = (await agent.call(apis.INCREMENTAL_ALTER_CONFIGS, request)).responses
    return answer.error_code, answer.error_message


async def listed(agent, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    answer = await agent.call(apis.LIST_CONFIG_RESOURCES, request, version=version)
    assert answer.error_code == NONE
    return sorted((row.resource_type, row.resource_name) for row in answer.config_resources)


async def test_a_subscription_is_there_as_long_as_it_has_a_config(world):
    async with world.agents("one", "two") as (one, two):
        unset = {"interval.ms": ("300000", 5), "match": ("", 5), "metrics": ("", 5)}
        assert await values(one, METRICS, "mine") == unset
        assert await set_(one, METRICS, "mine", metrics="*", interval_ms="1000") == (NONE, None)
        assert await values(two, METRICS, "mine") == unset | {
            "interval.ms": ("1000", 7),
            "metrics": ("*", 7),
        }
        assert await listed(two, version=0) == [(METRICS, "mine")]
        assert await set_(two, METRICS, "mine", metrics=None, interval_ms=None) == (NONE, None)
        assert await listed(one, version=0) == []


async def test_what_is_no_subscription_is_refused(world):
    async with world.agents("one") as (one,):
        told = await set_(one, METRICS, "mine", interval_ms="99")
        assert told[0] == INVALID_REQUEST
        assert await set_(one, METRICS, "", interval_ms="1000") == (
            INVALID_REQUEST,
            "Subscription name can't be empty",
        )
        assert (await set_(one, METRICS, "mine", match="client_id=["))[0] == INVALID_CONFIG
        assert await listed(one, METRICS) == []


async def test_all_that_has_configs_is_listed_by_kind(world):
    async with world.agents("one", "two") as (one, two):
        await one.create_topic("logs")
        await set_(one, GROUP, "readers", consumer_session_timeout_ms="50000")
        await set_(one, METRICS, "mine", metrics="*")
        agents = sorted([of(one), of(two)])
        assert await listed(two) == [
            (TOPIC, "logs"),
            *((BROKER, name) for name in agents),
            *((LOGGER, name) for name in agents),
            (METRICS, "mine"),
            (GROUP, "readers"),
        ]
        assert await listed(one, METRICS) == [(METRICS, "mine")]
