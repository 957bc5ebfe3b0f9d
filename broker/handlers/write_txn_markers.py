"""WriteTxnMarkers, v1-2: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


async def handle(
    node: Node, call: Call, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(
    call: Call, request: WriteTxnMarkersRequest, error: KafkaError
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=partition, error_code=error.code
                            )
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
