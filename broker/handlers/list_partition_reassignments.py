"""ListPartitionReassignments, v0: none is under way, ever, as nothing is moved. KIP-455.

No entry of the log could change that, so no barrier is taken, and the answer comes without a log, too.
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


async def handle(
    node: Node, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()


def refusal(
    call: Call, request: ListPartitionReassignmentsRequest, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        error_code=error.code, error_message=error.message or None
    )


API: Final = Api(
    key=apis.LIST_PARTITION_REASSIGNMENTS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=False,
    rights=(Right(Operation.DESCRIBE, Resource.CLUSTER),),
)
