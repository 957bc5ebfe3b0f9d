"""Configs of tables as clients set them: checked, shown, and only where all agents know them."""

import pytest

from coordinator.commands.codec import decode_entry
from coordinator.commands.entries import CreateTopic
from coordinator.commands.group_commands import SetTopicConfigs
from coordinator.commands.table_commands import TABLES_LEVEL, TableCommand
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

TOPIC = 2
SET, DELETE = 0, 1
MODE = "frazil.iceberg.value.mode"
HOLD = "frazil.iceberg.retention.hold"
ENABLE = "frazil.iceberg.enable"


async def alter(agent, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    configs = [
        IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=TOPIC, resource_name="logs", configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (row,) = (await agent.call(apis.INCREMENTAL_ALTER_CONFIGS, request, version=1)).responses
    return row.error_code, row.error_message


async def create(agent, **configs: str) -> tuple[int, str | None]:
    given = [
        CreatableTopicConfig(name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    topic = CreatableTopic(name="logs", num_partitions=1, replication_factor=1, configs=given)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    (row,) = (await agent.call(apis.CREATE_TOPICS, request, version=7)).topics
    return row.error_code, row.error_message


async def shown(agent) -> dict[str, tuple[str, int]]:
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name="logs", configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    (row,) = (await agent.call(apis.DESCRIBE_CONFIGS, request, version=4)).results
    return {each.name: (each.value, each.config_source) for each in row.configs}


async def test_what_is_set_for_a_table_is_shown_and_taken_back(world):
    async with world.agents("one") as (one,):
        assert await create(one, frazil_iceberg_mode="upsert") == (0, None)
        assert await alter(one, (MODE, SET, "avro")) == (0, None)
        configs = await shown(one)
        assert configs["frazil.iceberg.mode"] == ("upsert", 1)
        assert configs[MODE] == ("avro", 1)
        assert configs["frazil.iceberg.layout"] == ("flat", 5)
        assert await alter(one, (MODE, DELETE, None)) == (0, None)
        assert (await shown(one))[MODE] == ("raw", 5)


async def test_what_makes_no_sense_is_refused_with_the_reason(world):
    async with world.agents("one") as (one,):
        code, reason = await create(one, **{HOLD: "true", ENABLE: "false"})
        assert (code, HOLD in reason) == (ErrorCode.INVALID_CONFIG, True)
        assert await create(one, **{HOLD: "true"}) == (0, None)
        for change, said in (
            ((MODE, SET, "xml"), MODE),
            (("frazil.iceberg.partition.by", SET, "week(a)"), "week"),
            (("frazil.iceberg.modes", SET, "raw"), "did you mean"),
            ((ENABLE, SET, "false"), HOLD),
        ):
            code, reason = await alter(one, change)
            assert code == ErrorCode.INVALID_CONFIG
            assert said in reason
        assert await alter(one, (ENABLE, SET, "false"), (HOLD, DELETE, None)) == (0, None)


async def test_nothing_is_set_for_a_table_while_an_agent_of_an_older_release_is_live(world):
    async with world.agents("one") as (one,):
        (row,) = one.machine.incarnations
        row.feature_level_max = TABLES_LEVEL - 1
        too_old = ErrorCode.UNSUPPORTED_VERSION
        assert (await create(one, **{HOLD: "true"}))[0] == too_old
        assert await create(one, retention_ms="1000") == (0, None)
        assert (await alter(one, (HOLD, SET, "true")))[0] == too_old
        assert await alter(one, ("retention.ms", SET, "2000")) == (0, None)
        row.feature_level_max = TABLES_LEVEL
        assert await alter(one, (HOLD, SET, "true")) == (0, None)
        row.feature_level_max = TABLES_LEVEL - 1
        assert await alter(one, (HOLD, DELETE, None)) == (0, None)


@pytest.mark.parametrize("created", [False, True])
async def test_an_agent_of_an_older_release_that_was_away_reads_no_log_in_which_records_are_held(
    created, world
):
    """It would let go of them: nothing else that it cannot read need be there yet."""
    async with world.agents("one") as (one,):
        if not created:
            assert await create(one, retention_ms="1000") == (0, None)
            assert one.machine.schemas.is_untouched
            assert await alter(one, (HOLD, SET, "true")) == (0, None)
        else:
            assert await create(one, **{HOLD: "true"}) == (0, None)
        commands = [
            command
            for entry in world.cluster.entries
            for command in decode_entry(entry.payload).commands
        ]
        kind = CreateTopic if created else SetTopicConfigs
        (held,) = [at for at, each in enumerate(commands) if isinstance(each, kind)]
        (first,) = [at for at, each in enumerate(commands) if isinstance(each, TableCommand)]
        assert first < held, "it comes before"
        assert not one.machine.schemas.is_untouched, "snapshots have it, too"
        assert await alter(one, (MODE, SET, "json")) == (0, None)
        entries = [decode_entry(entry.payload) for entry in world.cluster.entries]
        table_commands = [
            each for entry in entries for each in entry.commands if isinstance(each, TableCommand)
        ]
        assert len(table_commands) == 1, "once is enough"
