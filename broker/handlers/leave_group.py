"""LeaveGroup, v0-5: members leave a group.

KIP-345 (v3+: several at once, by member or instance id, an error for each), KIP-800 (v5+: reason).
The group's coordinator decides (`broker.groups`). Of a group that is not there each is unknown.

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 24; before v3 25 and 82, then
these per member.
"""

from typing import Final

from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

SEVERAL_SINCE: Final = 3


def refusal(call: Call, request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    if call.version < SEVERAL_SINCE or error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=error.code)
    members = [
        MemberResponse(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            error_code=error.code,
        )
        for each in request.members
    ]
    return LeaveGroupResponse(members=members)


API: Final = Api(
    key=apis.LEAVE_GROUP,
    handler=Hot.in_shapes(lambda node: node.groups.leave, refusal),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(Right(Operation.READ, Resource.GROUP, ("group_id",)),),
)
