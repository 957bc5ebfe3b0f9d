"""LeaveGroup, v0-5: members leave a group.

KIP-345 (v3+: several at once, by member or instance id, an error for each), KIP-800 (v5+: reason).
The group's coordinator decides (`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 24, 25, 82.
"""

from functools import partial
from typing import Final

from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from broker.handler_support import Reply
from broker.node import Node
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import LeaveGroupRequest, LeaveGroupResponse


def start(node: Node, call: Call) -> None:
    request = _request(call)
    node.groups.leave(call, request, Reply(call, partial(_refusal, call, request)))


def refuse(node: Node, call: Call, error: KafkaError) -> None:
    Reply(call, partial(_refusal, call, _request(call))).refuse(error)


API: Final = Api(
    key=apis.LEAVE_GROUP,
    handler=Hot(start, refuse),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(Right(Operation.READ, Resource.GROUP, ("group_id",)),),
)


def _request(call: Call) -> LeaveGroupRequest:
    request: LeaveGroupRequest = messages.decode_request(call.api_key, call.version, call.body)
    return request


def _refusal(call: Call, request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)
