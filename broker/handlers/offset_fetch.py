"""OffsetFetch, v1-10: not served yet, every request is refused.

Errors: 15.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)


async def handle(node: Node, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served yet")


def refusal(call: Call, request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error.code,
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
            for group in request.groups
        ],
    )
