"""SyncGroup, v0-5: the leader's assignments in, each member's assignment out.

KIP-345 (v3+: static members), KIP-559 (v5+: protocol type and name are checked and answered). The
answer comes when the assignments are in the log; the group's coordinator decides
(`broker.groups`).

Errors: 15, 16, 22, 23, 24, 25, 27, 82; -1 when an assignment fits into no entry of the log. Instead
of 14 (refused unread, or too many wait), which Java's consumers take for final, 27: join again.
"""

from typing import Final

from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import SyncGroupRequest, SyncGroupResponse


def refusal(call: Call, request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    code = error.code
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return SyncGroupResponse(error_code=code)


API: Final = Api(
    key=apis.SYNC_GROUP,
    handler=Hot.in_shapes(lambda node: node.groups.sync, refusal),
    unavailable=ErrorCode.REBALANCE_IN_PROGRESS,
    changes=True,
    rights=(Right(Operation.READ, Resource.GROUP, ("group_id",)),),
)
