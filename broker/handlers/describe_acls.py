"""DescribeAcls, v1-3: the ACLs that a filter fits, by resource, behind a barrier (P8).

KIP-11, KIP-290 (patterns), KIP-357 (v2+, and v3: types of resources since added).

Errors: 7 (no barrier to be had), 31, 42 (unknown elements in the filter), 54 (no authorizer).
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.handler_support import refuse_without_authorizer
from broker.node import Node
from broker.rights.acl_filter import filter_of
from coordinator.commands.rights_commands import AclBinding
from protocol import apis
from protocol.acls import PatternType, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def handle(node: Node, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    refuse_without_authorizer(node, "No Authorizer is configured on the broker")
    wanted = filter_of(request)
    await node.log_client.barrier()
    found: dict[tuple[ResourceType, PatternType, str], list[AclBinding]] = {}
    async for binding in node.slices.of(call).over(list(node.log_client.machine.acls)):
        if wanted.fits(binding):
            found.setdefault(binding[:3], []).append(binding)
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=each.principal,
                        host=each.host,
                        operation=each.operation,
                        permission_type=each.permission,
                    )
                    for each in bindings
                ],
            )
            for (resource_type, pattern_type, name), bindings in found.items()
        ]
    )


def refusal(call: Call, request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=error.message or None)


API: Final = Api(
    key=apis.DESCRIBE_ACLS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.DESCRIBE, Resource.CLUSTER),),
)
