"""ConsumerGroupDescribe, v0-1: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)


async def handle(
    node: Node, call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(
    call: Call, request: ConsumerGroupDescribeRequest, error: KafkaError
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedConsumerGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )
            for group_id in request.group_ids
        ]
    )
