"""Heartbeat, v0-4: a member of a group of the classic protocol lives.

KIP-345 (v3+: static members). Hot: most are answered in the call; one that comes while the group
is being written waits for the log. After a stall none is refused (P17): a heartbeat that comes
late does no harm, since it says no more than that its member lived when it sent it, and its
session timeout counts without the stall.

Errors: 15, 16, 22, 24, 25, 27, 82. When too many wait there is none, as from a Kafka that loads the
group: Java's consumers would take 14 for final, and no heartbeat has to be sent again.
"""

from typing import Final

from broker import guards
from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from protocol import apis, heartbeat
from protocol.errors import ErrorCode

READ_GROUP: Final = Right(Operation.READ, Resource.GROUP, ("group_id",))


def start(node: Node, call: Call) -> None:
    version = call.version
    group_id, generation, member_id, instance_id = heartbeat.parse_request(version, call.body)

    def respond(code: ErrorCode) -> None:
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.NONE
        call.answer(heartbeat.response(version, code, call.throttle()))

    if not guards.permits(node, call, READ_GROUP, group_id):
        respond(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    code = node.groups.heartbeat(group_id, member_id, generation, instance_id, respond)
    if code is not None:
        respond(code)


API: Final = Api(
    key=apis.HEARTBEAT,
    handler=Hot(start),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(READ_GROUP,),
)
