"""DeleteGroups, v0-2: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(node: Node, call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(call: Call, request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.code)
            for group_id in request.groups_names
        ]
    )
