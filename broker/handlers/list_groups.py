"""ListGroups, v0-5: the groups that this agent coordinates; clients ask every agent.

KIP-518 (by state, v4+), KIP-848 (by type, v5+). Both filters are words in any case; a word that
nobody knows fits no group, as in Kafka. Behind a barrier (P8), so that a shard that has just been
given is listed here and not nowhere.

Errors: 14 (no barrier to be had), 15 (no session, or leaving: another agent will list them).
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right, error_alone
from broker.calls.call import Call
from broker.handler_support import live_incarnation
from broker.node import Node
from coordinator.commands.group_commands import GroupKind
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

TYPES: Final = {GroupKind.CLASSIC: "classic", GroupKind.CONSUMER: "consumer"}


GROUP_ELEMENTS: Final = 3
"""What one group costs, in elements that are looked at: one without members is made from its row."""


async def handle(node: Node, call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    await node.log_client.barrier()
    live_incarnation(node, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if node.groups.claims.leaving:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "This agent is leaving.")
    states = frozenset(state.strip().lower() for state in request.states_filter)
    types = frozenset(kind.strip().lower() for kind in request.types_filter)
    groups = []
    turns = node.slices.of(call)
    asks = guards.asker(node, call)
    for group_id in _group_ids(node):
        await turns.spend(GROUP_ELEMENTS)
        if asks is not None and not asks.allows(DESCRIBE, group_id):
            continue
        listed = _listed(node, group_id)
        if (
            listed is not None
            and (not states or listed.group_state.lower() in states)
            and (not types or listed.group_type in types)
        ):
            groups.append(listed)
    return ListGroupsResponse(groups=groups)


DESCRIBE: Final = Right(
    Operation.DESCRIBE, Resource.CLUSTER, instead=Right(Operation.DESCRIBE, Resource.GROUP)
)


async def narrow(_node: Node, _call: Call, request: ListGroupsRequest) -> Narrowed:
    """Others are left out where they are found."""
    return Narrowed(request)


API: Final = Api(
    key=apis.LIST_GROUPS,
    handler=Cold(handle, error_alone(ListGroupsResponse), narrow),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=False,
    rights=(DESCRIBE,),
)


def _group_ids(node: Node) -> list[str]:
    """All that are coordinated here: those with rows, and those that nobody has finished joining."""
    groups = node.log_client.machine.groups
    served = sorted(node.groups.claims.served)
    ids = [row.group_id for shard in served for row in groups.of_shard(shard)]
    soft = [context.group_id for context in node.groups.runtime if context.shard in served]
    return [*dict.fromkeys([*ids, *soft])]


def _listed(node: Node, group_id: str) -> ListedGroup | None:
    """None when the group has gone, or has gone elsewhere."""
    try:
        group = node.groups.live(group_id)
    except KafkaError as error:
        row = node.log_client.machine.groups.get(group_id)
        if error.code is not ErrorCode.UNKNOWN_SERVER_ERROR or row is None:
            return None
        # Of a newer version: whoever looks for it should see that it is there.
        return ListedGroup(group_id=group_id, group_state="Dead", group_type=TYPES[row.kind])
    if group is None:
        return None
    return ListedGroup(
        group_id=group_id,
        protocol_type=group.protocol_type,
        group_state=group.state(),
        group_type=TYPES[group.kind],
    )
