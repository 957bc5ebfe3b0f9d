"""Configs of topics that are Frazil's own ask for a right to the cluster beside that to the topic."""

import contextlib

import pytest

from broker.guards import OWN_CONFIGS
from protocol import apis
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.broker.rights.acls import ADMIN, AUTHORIZED, BOB, acl, allow, ask

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NONE = ErrorCode.NONE
TOPIC = 2
SET, DELETE = 0, 1
OWN = ["frazil.iceberg.value.mode", "frazil.iceberg.retention.hold", "frazil.records.validate"]
VALUES = dict(zip(OWN, ["avro", "true", "full"], strict=True))
KAFKAS = "retention.ms"
TO_THE_CLUSTER = acl(OWN_CONFIGS.operation, OWN_CONFIGS.resource)


@contextlib.asynccontextmanager
async def guarded(world):
    """Bob may create topics that begin with "b", and alter their configs."""
    async with world.agents("one", **AUTHORIZED) as (one,):
        operations = (Operation.CREATE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
        await allow(one, *[acl(operation, name="b", prefix=True) for operation in operations])
        yield one


async def create(one, name: str, configs: dict[str, str], who=BOB, **more) -> int:
    given = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=given)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, **more)
    (row,) = (await ask(one, apis.CREATE_TOPICS, request, who=who)).topics
    return row.error_code


async def alter(one, *changes: tuple[str, int, str | None], who=BOB) -> int:
    configs = [
        IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=TOPIC, resource_name="bill", configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (row,) = (await ask(one, apis.INCREMENTAL_ALTER_CONFIGS, request, who=who)).responses
    return row.error_code


async def replace_all(one, configs: dict[str, str]) -> int:
    given = [AlterableConfig(name=name, value=value) for name, value in configs.items()]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="bill", configs=given)
    request = AlterConfigsRequest(resources=[resource])
    (row,) = (await ask(one, apis.ALTER_CONFIGS, request)).responses
    return row.error_code


def configs_of(one) -> dict[str, str]:
    return dict(one.machine.topics.by_name("bill").configs)


@pytest.mark.parametrize("name", OWN)
async def test_a_topic_is_not_created_with_a_config_of_frazils_own_without_the_right(name, world):
    async with guarded(world) as one:
        assert await create(one, "bill", {name: VALUES[name]}) == REFUSED
        assert await create(one, "bill", {name: VALUES[name]}, validate_only=True) == REFUSED
        assert one.machine.topics.by_name("bill") is None
        assert await create(one, "bill", {KAFKAS: "1000"}) == NONE
        await allow(one, TO_THE_CLUSTER)
        assert await create(one, "bob", {name: VALUES[name]}) == NONE


@pytest.mark.parametrize("name", OWN)
async def test_a_config_of_frazils_own_is_neither_set_nor_unset_without_the_right(name, world):
    async with guarded(world) as one:
        assert await create(one, "bill", {}) == NONE
        assert await alter(one, (name, SET, VALUES[name])) == REFUSED
        assert await alter(one, (name, SET, VALUES[name]), who=ADMIN) == NONE
        assert await alter(one, (name, DELETE, None)) == REFUSED
        assert configs_of(one) == {name: VALUES[name]}
        assert await alter(one, (KAFKAS, SET, "1000")) == NONE
        await allow(one, TO_THE_CLUSTER)
        assert await alter(one, (name, DELETE, None)) == NONE
        assert configs_of(one) == {KAFKAS: "1000"}


async def test_the_right_to_the_cluster_does_not_stand_for_that_to_the_topic(world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        assert await create(one, "bill", {}, who=ADMIN) == NONE
        await allow(one, TO_THE_CLUSTER)
        refused = await alter(one, (OWN[0], SET, "avro"))
        assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_whoever_replaces_all_configs_may_keep_those_of_frazils_own_and_not_drop_them(world):
    async with guarded(world) as one:
        own = {OWN[0]: "avro"}
        assert await create(one, "bill", own, who=ADMIN) == NONE
        assert await replace_all(one, {KAFKAS: "1000"}) == REFUSED
        assert configs_of(one) == own
        assert await replace_all(one, own | {KAFKAS: "1000"}) == NONE
        assert configs_of(one) == own | {KAFKAS: "1000"}


async def test_a_refusal_names_the_cluster_and_says_which_config_it_was(world):
    async with guarded(world) as one:
        assert await create(one, "bill", {}) == NONE
        config = IncrementalAlterableConfig(name=OWN[0], config_operation=SET, value="avro")
        resource = IncrementalAlterConfigsResource(
            resource_type=TOPIC, resource_name="bill", configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (row,) = (await ask(one, apis.INCREMENTAL_ALTER_CONFIGS, request)).responses
        assert OWN[0] in row.error_message
        assert "cluster" in row.error_message
        assert OWN_CONFIGS.resource is ResourceType.CLUSTER


async def test_without_an_authorizer_nobody_is_asked_for_the_right(world):
    async with world.agents("one") as (one,):
        assert await create(one, "bill", dict(VALUES)) == NONE
        assert await alter(one, (OWN[0], DELETE, None)) == NONE
