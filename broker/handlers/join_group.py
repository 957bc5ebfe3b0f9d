"""JoinGroup, v0-9: become a member of a group of the classic protocol, or rejoin it.

KIP-394 (v4+: a member gets its id before it joins), KIP-345 (v5+: static members), KIP-559 (v7+:
the answer names the protocol type), KIP-800 (v8+: reason), KIP-814 (v9+: a static leader need not
assign). The answer comes when the join phase ends; the group's coordinator decides
(`broker.groups`).

Errors: 14 (refused unread, or too many wait: send again), 15, 16, 23, 24, 25, 26, 79, 81, 82; -1
when the member's metadata fits into no entry of the log.
"""

from typing import Final

from broker.dispatch import Call
from broker.node import Node
from protocol.errors import KafkaError
from protocol.messages import JoinGroupRequest, JoinGroupResponse

NULL_PROTOCOL_SINCE: Final = 7


async def handle(node: Node, call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    return _named(call, await node.groups.join(call, request))


def refusal(call: Call, request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    response = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    return _named(call, response)


def _named(call: Call, response: JoinGroupResponse) -> JoinGroupResponse:
    """Before version 7 a protocol that was not chosen is "", not null."""
    if response.protocol_name is None and call.version < NULL_PROTOCOL_SINCE:
        response.protocol_name = ""
    return response
