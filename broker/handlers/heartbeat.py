"""Heartbeat, v0-4: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
)


async def handle(node: Node, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(call: Call, request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)
