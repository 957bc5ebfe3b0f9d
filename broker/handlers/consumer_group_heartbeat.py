"""ConsumerGroupHeartbeat, v0-1: a member of a KIP-848 group joins, lives, reconciles, leaves.

KIP-848; KIP-1082 (v1: the member makes its own id), regular expressions (v1). Hot: where nothing
must be written it is answered in the call, else when the log has taken the change. The group's
coordinator decides (`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 25, 35 (switched off by
`group.coordinator.rebalance.protocols`), 42, 69, 81, 82, 110, 111, 112, 128.
"""

from typing import Final

from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def refusal(
    call: Call, request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code, error_message=error.message or None
    )


API: Final = Api(
    key=apis.CONSUMER_GROUP_HEARTBEAT,
    handler=Hot.in_shapes(lambda node: node.groups.consumer_heartbeat, refusal),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(
        Right(Operation.READ, Resource.GROUP, ("group_id",)),
        Right(Operation.DESCRIBE, Resource.TOPIC, ("subscribed_topic_names[]",)),
    ),
)
