"""TxnOffsetCommit, v0-5: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


async def handle(
    node: Node, call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(
    call: Call, request: TxnOffsetCommitRequest, error: KafkaError
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error.code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
