"""Filters of ACLs, and bindings out of requests, as Kafka reads and refuses them. Pure.

A filter names some of what a binding has; what it leaves open fits anything. A pattern of type MATCH
with a name means whatever applies to the resource of that name (KIP-290).
"""

from typing import Final, NamedTuple

from coordinator.commands.rights_commands import AclBinding
from coordinator.tables.administration.acls import misfit
from protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import AclCreation, DeleteAclsFilter, DescribeAclsRequest

_WHATEVER: Final = (PatternType.ANY, PatternType.MATCH)


class AclFilter(NamedTuple):
    """Which bindings are meant; None and ANY leave open."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str | None
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def fits(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._fits_pattern(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
        )

    def _fits_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (*_WHATEVER, binding.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == binding.name
        if binding.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(binding.name)
        return binding.name in (self.name, WILDCARD)


def filter_of(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter that a request has by numbers. Raises KafkaError(INVALID_REQUEST)."""
    try:
        found = AclFilter(
            ResourceType(wanted.resource_type_filter),
            PatternType(wanted.pattern_type_filter),
            wanted.resource_name_filter,
            wanted.principal_filter,
            wanted.host_filter,
            Operation(wanted.operation),
            Permission(wanted.permission_type),
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter has unknown elements.") from error
    if 0 in (found.resource_type, found.pattern_type, found.operation, found.permission):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter has unknown elements.")
    return found


def binding_of(wanted: AclCreation) -> AclBinding:
    """The ACL that a request has by numbers. Raises KafkaError(INVALID_REQUEST)."""
    try:
        binding = AclBinding(
            ResourceType(wanted.resource_type),
            PatternType(wanted.resource_pattern_type),
            wanted.resource_name,
            wanted.principal,
            wanted.host,
            Operation(wanted.operation),
            Permission(wanted.permission_type),
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{error}") from error
    if binding.resource_type is ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        reason = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if (why := _misfit(binding) or misfit(binding)) is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    return binding


def _misfit(binding: AclBinding) -> str | None:
    if not binding.name:
        return "Resource name should not be empty"
    kind, colon, _ = binding.principal.partition(":")
    if not (kind and colon):
        return (
            f"Could not parse principal from `{binding.principal}` (no colon is present separating"
            " the principal type from the principal name)"
        )
    return None
