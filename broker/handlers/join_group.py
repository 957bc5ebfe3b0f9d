"""JoinGroup, v0-9: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    JoinGroupRequest,
    JoinGroupResponse,
)


async def handle(node: Node, call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(call: Call, request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
