"""ListConfigResources, v0-1: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


async def handle(
    node: Node, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(
    call: Call, request: ListConfigResourcesRequest, error: KafkaError
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error.code)
