"""AddOffsetsToTxn, v0-4: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)


async def handle(
    node: Node, call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(
    call: Call, request: AddOffsetsToTxnRequest, error: KafkaError
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error.code)
