"""OffsetDelete, v0: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)


async def handle(node: Node, call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(call: Call, request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)
