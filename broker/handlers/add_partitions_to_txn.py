"""AddPartitionsToTxn, v0-3: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)


async def handle(
    node: Node, call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(
    call: Call, request: AddPartitionsToTxnRequest, error: KafkaError
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=error.code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
