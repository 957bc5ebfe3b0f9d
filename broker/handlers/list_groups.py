"""ListGroups, v0-5: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ListGroupsRequest,
    ListGroupsResponse,
)


async def handle(node: Node, call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(call: Call, request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)
