"""DescribeAcls, CreateAcls and DeleteAcls: what is refused, and that they hold everywhere when answered."""

import asyncio

import pytest

from coordinator.commands.rights_commands import RIGHTS_LEVEL
from protocol import apis, messages
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from tests.broker.rights.acls import ADMIN, AUTHORIZED, acl, allow, ask
from tests.kit import requests

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
READ = Operation.READ


def creation(**fields) -> messages.AclCreation:
    given = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:bob",
        "host": "*",
        "operation": READ,
        "permission_type": Permission.ALLOW,
    }
    return messages.AclCreation(**(given | fields))


def create(*creations) -> messages.CreateAclsRequest:
    return messages.CreateAclsRequest(creations=list(creations))


FILTER = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def describe(**fields) -> messages.DescribeAclsRequest:
    return messages.DescribeAclsRequest(**(FILTER | fields))


def delete(*filters) -> messages.DeleteAclsRequest:
    return messages.DeleteAclsRequest(
        filters=[messages.DeleteAclsFilter(**(FILTER | each)) for each in filters]
    )


async def created(agent, *creations) -> list[int]:
    response = await ask(agent, apis.CREATE_ACLS, create(*creations), who=ADMIN)
    return [row.error_code for row in response.results]


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_an_acl_is_made_described_and_deleted_in_every_version(version, world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        made = await ask(
            one, apis.CREATE_ACLS, create(creation(), creation()), who=ADMIN, version=version
        )
        assert [row.error_code for row in made.results] == [NONE, NONE]
        found = await ask(one, apis.DESCRIBE_ACLS, describe(), who=ADMIN, version=version)
        ((resource),) = found.resources
        assert (resource.resource_type, resource.resource_name) == (ResourceType.TOPIC, "orders")
        (row,) = resource.acls
        assert (row.principal, row.host, row.operation) == ("User:bob", "*", READ)
        gone = await ask(one, apis.DELETE_ACLS, delete({}, {}), who=ADMIN, version=version)
        assert [len(result.matching_acls) for result in gone.filter_results] == [1, 1]
        assert len(one.machine.acls) == 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"resource_type": ResourceType.CLUSTER}, "kafka-cluster"),
        ({"resource_name": ""}, "should not be empty"),
        ({"resource_pattern_type": PatternType.MATCH}, "pattern"),
        ({"operation": Operation.ANY}, "operation"),
        ({"permission_type": Permission.ANY}, "allows or denies"),
        ({"principal": "bob"}, "no colon is present"),
        ({"resource_type": 99}, "99"),
    ],
)
async def test_what_is_no_acl_is_refused_by_itself(wrong, why, world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        request = create(creation(**wrong), creation())
        response = await ask(one, apis.CREATE_ACLS, request, who=ADMIN)
        assert [row.error_code for row in response.results] == [INVALID, NONE]
        assert why in response.results[0].error_message
        assert len(one.machine.acls) == 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, {"orders", "ord", "*", "pay", "kafka-cluster"}),
        ({"resource_type_filter": ResourceType.CLUSTER}, {"kafka-cluster"}),
        ({"resource_name_filter": "orders"}, {"orders"}),
        (
            {"resource_name_filter": "orders", "pattern_type_filter": PatternType.MATCH},
            {"orders", "ord", "*"},
        ),
        ({"pattern_type_filter": PatternType.PREFIXED}, {"ord"}),
        ({"principal_filter": "User:carol"}, {"pay"}),
        ({"host_filter": "10.0.0.9"}, {"pay"}),
        ({"operation": Operation.ALTER}, {"kafka-cluster"}),
        ({"permission_type": Permission.DENY}, {"*"}),
    ],
)
async def test_a_filter_fits_what_it_leaves_open(wanted, expected, world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        await allow(
            one,
            acl(READ, name="orders"),
            acl(READ, name="ord", prefix=True),
            acl(READ, deny=True),
            acl(READ, name="pay", principal="User:carol", host="10.0.0.9"),
            acl(Operation.ALTER, ResourceType.CLUSTER),
        )
        found = await ask(one, apis.DESCRIBE_ACLS, describe(**wanted), who=ADMIN)
        assert {each.resource_name for each in found.resources} == expected


async def test_a_filter_with_unknown_elements_is_refused(world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        found = await ask(one, apis.DESCRIBE_ACLS, describe(operation=77), who=ADMIN)
        assert found.error_code == INVALID
        gone = await ask(one, apis.DELETE_ACLS, delete({"operation": 0}, {}), who=ADMIN)
        assert [each.error_code for each in gone.filter_results] == [INVALID, NONE]


async def test_without_an_authorizer_there_are_no_acls(world):
    disabled = ErrorCode.SECURITY_DISABLED
    async with world.agents("one") as (one,):
        assert (await one.call(apis.DESCRIBE_ACLS, describe())).error_code == disabled
        made = await one.call(apis.CREATE_ACLS, create(creation()))
        assert [row.error_code for row in made.results] == [disabled]
        assert made.results[0].error_message == "No Authorizer is configured."
        gone = await one.call(apis.DELETE_ACLS, delete({}))
        assert [row.error_code for row in gone.filter_results] == [disabled]


async def test_more_acls_than_one_command_takes_go_as_several(world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        many = [creation(resource_name=f"{number}" * 300) for number in range(100, 700)]
        assert await created(one, *many) == [NONE] * 600
        gone = await ask(one, apis.DELETE_ACLS, delete({}), who=ADMIN)
        assert len(gone.filter_results[0].matching_acls) == 600


async def test_beside_an_agent_of_an_older_release_nothing_is_changed(world):
    async with world.agents("one", **AUTHORIZED) as (one,):
        for row in one.machine.incarnations:
            row.feature_level_max = RIGHTS_LEVEL - 1
        assert await created(one, creation()) == [ErrorCode.UNSUPPORTED_VERSION]
        assert len(one.machine.acls) == 0


async def test_an_acl_is_in_force_on_every_agent_when_it_is_answered(world):
    async with world.agents("one", "other", **AUTHORIZED) as (one, other):
        await one.create_topic("orders")
        other.lag()
        asked = asyncio.ensure_future(created(one, creation()))
        await asyncio.sleep(3)
        assert not asked.done()
        other.catch_up()
        assert await asked == [NONE]
        request = requests.fetch({("orders", 0): 0})
        response = await ask(other, apis.FETCH, request, version=12)
        assert requests.rows_of(response)["orders", 0].error_code == NONE


async def test_where_an_agent_does_not_follow_the_client_is_told_to_ask_again(world):
    async with world.agents("one", "other", **AUTHORIZED) as (one, other):
        other.lag()
        assert await created(one, creation()) == [ErrorCode.REQUEST_TIMED_OUT]
        other.catch_up()
        await other.log_client.barrier()
        assert await created(one, creation()) == [NONE]


async def test_an_agent_that_is_gone_is_not_waited_for_longer_than_its_session_lives(world):
    async with world.agents("one", "other", **AUTHORIZED) as (one, other):
        other.lag()
        await other.lose_session()
        assert await created(one, creation()) == [NONE]
        other.log.down = False
