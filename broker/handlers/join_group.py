"""JoinGroup, v0-9: become a member of a group of the classic protocol, or rejoin it.

KIP-394 (v4+: a member gets its id before it joins), KIP-345 (v5+: static members), KIP-559 (v7+:
the answer names the protocol type), KIP-800 (v8+: reason), KIP-814 (v9+: a static leader need not
assign). The answer comes when the join phase ends; the group's coordinator decides
(`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 23, 24, 25, 26, 79, 81, 82; -1
when the member's metadata fits into no entry of the log.
"""

from typing import Final

from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import JoinGroupRequest, JoinGroupResponse


def refusal(call: Call, request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)


API: Final = Api(
    key=apis.JOIN_GROUP,
    handler=Hot.in_shapes(lambda node: node.groups.join, refusal),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(Right(Operation.READ, Resource.GROUP, ("group_id",)),),
)
