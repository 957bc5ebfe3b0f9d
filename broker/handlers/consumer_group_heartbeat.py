"""ConsumerGroupHeartbeat, v0-1: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle(
    node: Node, call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(
    call: Call, request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
