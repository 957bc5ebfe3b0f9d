"""LeaveGroup, v0-5: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    LeaveGroupRequest,
    LeaveGroupResponse,
)


async def handle(node: Node, call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(call: Call, request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)
