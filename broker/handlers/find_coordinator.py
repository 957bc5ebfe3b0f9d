"""FindCoordinator, v0-6: there are no coordinators yet.

KIP-699 (several keys, v4+). Groups, transactions and share groups are not served, so no agent
coordinates any. The API is there because clients take its absence for a broker of before 0.8.2
(librdkafka then does without lz4). Every key is answered with COORDINATOR_NOT_AVAILABLE, to
which clients that only assign partitions are indifferent, and a sentence that says why.

Errors: 15; 42 for a key type that does not exist.
"""

from typing import Final

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

SEVERAL_SINCE: Final = 4
KINDS: Final = ("consumer groups", "transactions", "share groups")
"""By key type."""


async def handle(
    node: Node, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if not 0 <= request.key_type < len(KINDS):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown key type {request.key_type}")
    kind = KINDS[request.key_type]
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{kind} are not served yet")


def refusal(
    call: Call, request: FindCoordinatorRequest, error: KafkaError
) -> FindCoordinatorResponse:
    if call.version >= SEVERAL_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, error_code=error.code, error_message=error.message)
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(error_code=error.code, error_message=error.message)
