"""ListTransactions, v0-2: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


async def handle(
    node: Node, call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(
    call: Call, request: ListTransactionsRequest, error: KafkaError
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code)
