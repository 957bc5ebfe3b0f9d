"""`frazil acl`: the ACLs of a cluster, listed, added and removed, over Kafka's protocol.

Works on any cluster that speaks it. Leaves out: what an ACL decides (docs/design/rights.md).
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.cli.command_result import CommandResult
from broker.cli.kafka_client import KafkaClient, check
from broker.cli.routing import told
from broker.reports.tables import table
from coordinator.commands.rights_commands import AclBinding
from protocol import apis, messages
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode

WORDS: Final = {
    ErrorCode.SECURITY_DISABLED: "the cluster has no authorizer (authorizer.class.name)",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "you may not do that in this cluster",
}


class ResourcePattern(NamedTuple):
    """Which resources ACLs are about."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AclsWanted(NamedTuple):
    """The resources named, and who may or may not do what to them; empty: any."""

    patterns: Sequence[ResourcePattern]
    principals: Sequence[tuple[Permission, str]]
    hosts: Sequence[str]
    operations: Sequence[Operation]

    def bindings(self) -> list[AclBinding]:
        """One for each combination. Raises ValueError with a sentence when something is missing."""
        if not self.patterns:
            raise ValueError("of what? --topic, --group, --transactional-id or --cluster")
        if not self.principals:
            raise ValueError("whose? --allow-principal or --deny-principal (User:alice)")
        return [
            AclBinding(
                pattern.resource_type,
                pattern.pattern_type,
                pattern.name,
                principal,
                host,
                operation,
                permission,
            )
            for pattern in self.patterns
            for permission, principal in self.principals
            for host in self.hosts or ("*",)
            for operation in self.operations or (Operation.ALL,)
        ]


def operation(text: str) -> Operation:
    """`Read` or `DESCRIBE_CONFIGS`, as Kafka's tool and its protocol call it. Raises ValueError."""
    wanted = text.replace("_", "").lower()
    for each in Operation:
        if each > Operation.ANY and each.name.replace("_", "").lower() == wanted:
            return each
    names = ", ".join(each.name for each in Operation if each > Operation.ANY)
    raise ValueError(f'"{text}" is not an operation ({names})')


async def list_acls(
    client: KafkaClient, patterns: Sequence[ResourcePattern], *, as_json: bool
) -> CommandResult:
    """All ACLs, or those about the resources named. Raises ToolError."""
    any_resource = ResourcePattern(ResourceType.ANY, "", PatternType.ANY)
    found: dict[AclBinding, None] = {}
    for pattern in patterns or (any_resource,):
        for binding in await _described(client, pattern):
            found[binding] = None
    if as_json:
        return CommandResult([json.dumps(_plain(each)) for each in found])
    if not found:
        return CommandResult(["there are no ACLs"])
    rows = [list(_plain(each).values()) for each in sorted(found)]
    heads = ("RESOURCE", "PATTERN", "NAME", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
    return CommandResult(table(heads, rows))


async def add(client: KafkaClient, wanted: Sequence[AclBinding]) -> CommandResult:
    """They are in force everywhere when this ends. Raises ToolError."""
    request = messages.CreateAclsRequest(
        creations=[
            messages.AclCreation(
                resource_type=each.resource_type,
                resource_name=each.name,
                resource_pattern_type=each.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in wanted
        ]
    )

    async def attempt() -> None:
        answer: messages.CreateAclsResponse = await client.ask(apis.CREATE_ACLS, request)
        for row in answer.results:
            check(row.error_code, row.error_message or "")

    await told("nothing is sure to be added", client.until_done(attempt), WORDS)
    return CommandResult(["added:", *_lines(wanted)])


async def remove(client: KafkaClient, wanted: Iterable[AclBinding]) -> CommandResult:
    """They count nowhere any more when this ends. Raises ToolError."""
    request = messages.DeleteAclsRequest(
        filters=[
            messages.DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in wanted
        ]
    )
    removed: dict[AclBinding, None] = {}

    async def attempt() -> None:
        answer: messages.DeleteAclsResponse = await client.ask(apis.DELETE_ACLS, request)
        for result in answer.filter_results:
            check(result.error_code, result.error_message or "")
            for row in result.matching_acls:
                removed[_binding(row)] = None
                check(row.error_code, row.error_message or "")

    await told("nothing is sure to be removed", client.until_done(attempt), WORDS)
    return CommandResult(["removed:", *_lines(removed)] if removed else ["there are no such ACLs"])


async def _described(client: KafkaClient, pattern: ResourcePattern) -> list[AclBinding]:
    request = messages.DescribeAclsRequest(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.name or None,
        pattern_type_filter=pattern.pattern_type,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )

    async def attempt() -> messages.DescribeAclsResponse:
        answer: messages.DescribeAclsResponse = await client.ask(apis.DESCRIBE_ACLS, request)
        check(answer.error_code, answer.error_message or "")
        return answer

    answer = await told("ACLs are not told", client.until_done(attempt), WORDS)
    return [
        AclBinding(
            ResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            resource.resource_name,
            row.principal,
            row.host,
            Operation(row.operation),
            Permission(row.permission_type),
        )
        for resource in answer.resources
        for row in resource.acls
    ]


def _binding(row: messages.DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourceType(row.resource_type),
        PatternType(row.pattern_type),
        row.resource_name,
        row.principal,
        row.host,
        Operation(row.operation),
        Permission(row.permission_type),
    )


def _plain(binding: AclBinding) -> dict[str, str]:
    return {
        "resource": binding.resource_type.name,
        "pattern": binding.pattern_type.name,
        "name": binding.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission.name,
    }


def _lines(bindings: Iterable[AclBinding]) -> list[str]:
    return [
        f"  {each.permission.name} {each.principal} from {each.host} {each.operation.name}"
        f" {each.resource_type.name.lower()} {each.name}"
        + (" (prefix)" if each.pattern_type is PatternType.PREFIXED else "")
        for each in bindings
    ]
