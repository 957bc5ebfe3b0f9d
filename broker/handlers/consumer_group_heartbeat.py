"""ConsumerGroupHeartbeat, v0-1: a member of a KIP-848 group joins, lives, reconciles, leaves.

KIP-848; KIP-1082 (v1: the member makes its own id), regular expressions (v1). Hot: where nothing
must be written it is answered in the call, else when the log has taken the change. The group's
coordinator decides (`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 24, 25, 35 (switched off by
`group.coordinator.rebalance.protocols`), 42, 69, 81, 82, 110, 111, 112, 128.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol import messages
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def start(node: Node, call: Call) -> None:
    request: ConsumerGroupHeartbeatRequest = messages.decode_request(
        call.api_key, call.version, call.body
    )

    def respond(response: ConsumerGroupHeartbeatResponse) -> None:
        call.answer([messages.encode_response(call.api_key, call.version, response)])

    node.groups.consumer_heartbeat(
        call, request, respond, lambda error: respond(_refusal(error.code, error.message))
    )


def refuse(node: Node, call: Call, error: KafkaError) -> None:
    """After a stall (P17): joining or leaving late could undo what was done elsewhere since."""
    response = _refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message)
    call.answer([messages.encode_response(call.api_key, call.version, response)])


def _refusal(code: ErrorCode, message: str) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message or None)
