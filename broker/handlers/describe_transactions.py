"""DescribeTransactions, v0: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


async def handle(
    node: Node, call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(
    call: Call, request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribedTransaction(transactional_id=transactional_id, error_code=error.code)
            for transactional_id in request.transactional_ids
        ]
    )
