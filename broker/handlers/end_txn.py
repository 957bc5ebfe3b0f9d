"""EndTxn, v0-5: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    EndTxnRequest,
    EndTxnResponse,
)


async def handle(node: Node, call: Call, request: EndTxnRequest) -> EndTxnResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(call: Call, request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return EndTxnResponse(error_code=error.code)
