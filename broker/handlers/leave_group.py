"""LeaveGroup, v0-5: members leave a group.

KIP-345 (v3+: several at once, by member or instance id, an error for each), KIP-800 (v5+: reason).
The group's coordinator decides (`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 24, 25, 82.
"""

from typing import Final

from broker.api import Api, Hot, Operation, Resource, Right, error_alone
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import LeaveGroupResponse

API: Final = Api(
    key=apis.LEAVE_GROUP,
    handler=Hot.in_shapes(lambda node: node.groups.leave, error_alone(LeaveGroupResponse)),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=(Right(Operation.READ, Resource.GROUP, ("group_id",)),),
)
