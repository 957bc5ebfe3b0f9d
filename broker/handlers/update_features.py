"""UpdateFeatures, v0-2: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def handle(node: Node, call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served yet")


def refusal(
    call: Call, request: UpdateFeaturesRequest, error: KafkaError
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
