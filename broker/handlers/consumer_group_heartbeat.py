"""ConsumerGroupHeartbeat, v0-1: a member of a KIP-848 group joins, lives, reconciles, leaves.

KIP-848; KIP-1082 (v1: the member makes its own id), regular expressions (v1). Hot: where nothing
must be written it is answered in the call, else when the log has taken the change. The group's
coordinator decides (`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 24, 25, 35 (switched off by
`group.coordinator.rebalance.protocols`), 42, 69, 81, 82, 110, 111, 112, 128.
"""

from functools import partial

from broker.edge.dispatch import Call
from broker.handling import Reply
from broker.node import Node
from protocol import messages
from protocol.errors import KafkaError
from protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def start(node: Node, call: Call) -> None:
    request = _request(call)
    node.groups.consumer_heartbeat(call, request, Reply(call, partial(_refusal, call, request)))


def refuse(node: Node, call: Call, error: KafkaError) -> None:
    Reply(call, partial(_refusal, call, _request(call))).refuse_stale(error)


def _request(call: Call) -> ConsumerGroupHeartbeatRequest:
    request: ConsumerGroupHeartbeatRequest = messages.decode_request(
        call.api_key, call.version, call.body
    )
    return request


def _refusal(
    call: Call, request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code, error_message=error.message or None
    )
