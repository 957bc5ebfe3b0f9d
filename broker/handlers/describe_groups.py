"""DescribeGroups, v0-6: groups of the classic protocol, as their coordinator has them.

KIP-430 (operations, v3+), KIP-345 (instance ids, v4+), KIP-1043 (what is no such group is an error
with a sentence from v6 on; before, it is called Dead). Between the changes of a group, and behind
a barrier (P8).

Errors, per group: 14, 15, 16, 24, 69 (v6+).
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.groups.group.live import LiveGroup
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

GROUP_OPERATIONS: Final = 0b1101_0100_1000
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, as bits of their numbers: all that can
be done to a group."""
SINCE_NOT_FOUND: Final = 6
DEAD: Final = "Dead"


async def handle(node: Node, call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    await node.log_client.barrier()
    response = DescribeGroupsResponse()
    turns = node.slices.of(call)
    # Each group once: its members may be many, and its name short.
    async for group_id in turns.over(dict.fromkeys(request.groups)):
        try:
            group = (await settled_group(node, group_id)).describe()
        except KafkaError as error:
            group = _refused(group_id, error)
        if group.error_code == ErrorCode.NONE:
            if request.include_authorized_operations:
                group.authorized_operations = group_operations(node, call, group_id)
        elif group.error_code == ErrorCode.GROUP_ID_NOT_FOUND and call.version < SINCE_NOT_FOUND:
            group = DescribedGroup(group_id=group_id, group_state=DEAD)
        response.groups.append(group)
        await turns.spend(len(group.members))
    return response


def refusal(
    call: Call, request: DescribeGroupsRequest, error: KafkaError
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(group_id, error) for group_id in request.groups])


RIGHTS: Final = (Right(Operation.DESCRIBE, Resource.GROUP, ("groups[]",)),)
API: Final = Api(
    key=apis.DESCRIBE_GROUPS,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "groups", "", answers="groups", refusal=refusal),
    ),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=False,
    rights=RIGHTS,
)


def group_operations(node: Node, call: Call, group_id: str) -> int:
    """What the requester may do to the group, as bits (KIP-430)."""
    asks = guards.asker(node, call)
    return GROUP_OPERATIONS if asks is None else asks.operations(Resource.GROUP, group_id)


async def settled_group(node: Node, group_id: str) -> LiveGroup:
    """The group between its changes. Raises KafkaError."""
    await node.groups.settled(group_id)
    group = node.groups.live(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return group


def _refused(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=error.code,
        error_message=error.message or None,
        group_state=DEAD if error.code is ErrorCode.GROUP_ID_NOT_FOUND else "",
    )
