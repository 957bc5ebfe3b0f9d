"""`frazil acl`: what its arguments mean, and what it says of a cluster's answers (faked)."""

import json

import pytest

from broker.cli import acl_tool
from broker.cli.acl_tool import AclsWanted, ResourcePattern
from broker.cli.command_result import ToolError
from coordinator.commands.rights_commands import AclBinding
from protocol import apis, messages
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from tests.broker.fake_cluster import FakeCluster, on_cluster

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.PREFIXED)
ALICE = (Permission.ALLOW, "User:alice")
BINDING = AclBinding(
    ResourceType.TOPIC,
    PatternType.PREFIXED,
    "orders",
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)


def test_each_combination_of_what_is_named_is_one_acl():
    wanted = AclsWanted(
        [ORDERS], [ALICE, (Permission.DENY, "User:bob")], ["10.0.0.1"], [Operation.READ]
    )
    assert wanted.bindings() == [
        BINDING._replace(host="10.0.0.1"),
        BINDING._replace(host="10.0.0.1", principal="User:bob", permission=Permission.DENY),
    ]


def test_what_is_not_named_is_any_host_and_every_operation():
    (binding,) = AclsWanted([ORDERS], [ALICE], [], []).bindings()
    assert (binding.host, binding.operation) == ("*", Operation.ALL)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [(AclsWanted([], [ALICE], [], []), "of what?"), (AclsWanted([ORDERS], [], [], []), "whose?")],
)
def test_without_resources_or_principals_nothing_is_meant(wanted, sentence):
    with pytest.raises(ValueError, match=sentence):
        wanted.bindings()


@pytest.mark.parametrize("text", ["DescribeConfigs", "DESCRIBE_CONFIGS", "describe_configs"])
def test_operations_have_the_names_of_kafkas_tool_and_of_its_protocol(text):
    assert acl_tool.operation(text) is Operation.DESCRIBE_CONFIGS


def test_another_word_is_no_operation():
    with pytest.raises(ValueError, match='"Any" is not an operation'):
        acl_tool.operation("Any")


def answers(**told):
    """`prepare` of a cluster that answers so."""

    def prepare(faked: FakeCluster) -> None:
        faked.answers |= {getattr(apis, name): answer for name, answer in told.items()}

    return prepare


async def test_acls_are_listed_as_a_table_or_as_json():
    row = messages.AclDescription(
        principal="User:alice", host="*", operation=Operation.READ, permission_type=3
    )
    resource = messages.DescribeAclsResource(
        resource_type=2, resource_name="orders", pattern_type=4, acls=[row]
    )
    prepare = answers(DESCRIBE_ACLS=messages.DescribeAclsResponse(resources=[resource]))
    async with on_cluster(prepare=prepare) as (client, _):
        told = await acl_tool.list_acls(client, [], as_json=False)
        as_json = await acl_tool.list_acls(client, [], as_json=True)
    words = ["TOPIC", "PREFIXED", "orders", "User:alice", "*", "READ", "ALLOW"]
    assert told.lines[1].split() == words
    assert json.loads(as_json.lines[0])["principal"] == "User:alice"


async def test_a_cluster_without_an_authorizer_says_what_it_lacks():
    result = messages.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED)
    prepare = answers(CREATE_ACLS=messages.CreateAclsResponse(results=[result]))
    async with on_cluster(prepare=prepare) as (client, _):
        with pytest.raises(ToolError, match=r"authorizer\.class\.name"):
            await acl_tool.add(client, [BINDING])


async def test_what_was_removed_is_told():
    matching = messages.DeleteAclsMatchingAcl(
        resource_type=2,
        resource_name="orders",
        pattern_type=4,
        principal="User:alice",
        host="*",
        operation=Operation.READ,
        permission_type=3,
    )
    result = messages.DeleteAclsFilterResult(matching_acls=[matching])
    prepare = answers(DELETE_ACLS=messages.DeleteAclsResponse(filter_results=[result]))
    async with on_cluster(prepare=prepare) as (client, _):
        told = await acl_tool.remove(client, [BINDING])
    assert told.lines == ["removed:", "  ALLOW User:alice from * READ topic orders (prefix)"]
