"""DeleteGroups, v0-2: groups without members are deleted, with their offsets (KIP-229).

Each by itself, so many at a time. A group that somebody is about to join, and nobody has joined, is
empty; whoever was about to joins a new one.

Errors, per group: 7 (may still happen), 14, 15, 16, 24, 68, 69.
"""

import asyncio
from typing import Final

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from coordinator.commands.entries import Rejected
from coordinator.commands.group_commands import DeleteGroup
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

AT_ONCE_MAX: Final = 100


async def handle(node: Node, call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    group_ids = list(dict.fromkeys(request.groups_names))
    results: list[DeletableGroupResult] = []
    for first in range(0, len(group_ids), AT_ONCE_MAX):
        some = group_ids[first : first + AT_ONCE_MAX]
        results += await asyncio.gather(*[_delete(node, group_id) for group_id in some])
    return DeleteGroupsResponse(results=results)


def refusal(call: Call, request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.code)
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )


RIGHTS: Final = (Right(Operation.DELETE, Resource.GROUP, ("groups_names[]",)),)
API: Final = Api(
    key=apis.DELETE_GROUPS,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "groups_names", "", answers="results", refusal=refusal),
    ),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=RIGHTS,
    is_audited=True,
)


async def _delete(node: Node, group_id: str) -> DeletableGroupResult:
    result = DeletableGroupResult(group_id=group_id)
    try:
        await node.groups.settled(group_id)
        group = node.groups.live(group_id)
        if group is None:
            result.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state() != "Empty":
            result.error_code = ErrorCode.NON_EMPTY_GROUP
        else:
            outcome = await node.groups.propose(DeleteGroup(group_id, only_without_offsets=False))
            if isinstance(outcome, Rejected) and outcome.error is not ErrorCode.GROUP_ID_NOT_FOUND:
                result.error_code = outcome.error
    except KafkaError as error:
        result.error_code = error.code
    return result
