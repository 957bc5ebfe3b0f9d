"""DescribeProducers, v0: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
)


async def handle(
    node: Node, call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(
    call: Call, request: DescribeProducersRequest, error: KafkaError
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribedProducersTopic(
                name=topic.name,
                partitions=[
                    DescribedProducersPartition(
                        partition_index=partition,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
