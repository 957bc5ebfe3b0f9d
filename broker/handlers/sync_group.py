"""SyncGroup, v0-5: the leader's assignments in, each member's assignment out.

KIP-345 (v3+: static members), KIP-559 (v5+: protocol type and name are checked and answered). The
answer comes when the assignments are in the log; the group's coordinator decides
(`broker.groups`).

Errors: 15, 16, 22, 23, 24, 25, 27, 82; -1 when an assignment fits into no entry of the log. Instead
of 14 (refused unread, or too many wait), which Java's consumers take for final, 27: join again.
"""

from functools import partial
from typing import Final

from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from broker.handler_support import Reply
from broker.node import Node
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import SyncGroupRequest, SyncGroupResponse


def start(node: Node, call: Call) -> None:
    request = _request(call)
    node.groups.sync(call, request, Reply(call, partial(_refusal, call, request)))


def refuse(node: Node, call: Call, error: KafkaError) -> None:
    Reply(call, partial(_refusal, call, _request(call))).refuse(error)


API: Final = Api(
    key=apis.SYNC_GROUP,
    handler=Hot(start, refuse),
    unavailable=ErrorCode.REBALANCE_IN_PROGRESS,
    changes=True,
    rights=(Right(Operation.READ, Resource.GROUP, ("group_id",)),),
)


def _request(call: Call) -> SyncGroupRequest:
    request: SyncGroupRequest = messages.decode_request(call.api_key, call.version, call.body)
    return request


def _refusal(call: Call, request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    code = error.code
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return SyncGroupResponse(error_code=code)
