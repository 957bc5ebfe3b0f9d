"""LeaveGroup, v0-5: members leave a group.

KIP-345 (v3+: several at once, by member or instance id, an error for each), KIP-800 (v5+: reason).
The group's coordinator decides (`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 24, 25, 82.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import KafkaError
from protocol.messages import LeaveGroupRequest, LeaveGroupResponse


async def handle(node: Node, call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    return await node.groups.leave(call, request)


def refusal(call: Call, request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)
