"""DescribeGroups, v0-6: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


async def handle(node: Node, call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(
    call: Call, request: DescribeGroupsRequest, error: KafkaError
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
            for group_id in request.groups
        ]
    )
