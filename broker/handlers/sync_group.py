"""SyncGroup, v0-5: the leader's assignments in, each member's assignment out.

KIP-345 (v3+: static members), KIP-559 (v5+: protocol type and name are checked and answered). The
answer comes when the assignments are in the log; the group's coordinator decides
(`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 22, 23, 24, 25, 27, 82; -1 when
an assignment fits into no entry of the log.
"""

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import KafkaError
from protocol.messages import SyncGroupRequest, SyncGroupResponse


async def handle(node: Node, call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    return await node.groups.sync(call, request)


def refusal(call: Call, request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)
