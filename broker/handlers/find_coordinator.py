"""FindCoordinator, v0-6: which agent coordinates a group, or a transactional id.

KIP-699 (several keys, v4+), KIP-932 (v6: share groups). A group's coordinator is the live agent
that holds its shard in the log, at its address on the caller's listener. While a shard is free
clients are told to ask again, which they do soon; a lagging agent may name the one before, which
then says that it is not. Any key is looked up, the empty one too, as in Kafka.

Any agent serves any transactional id; the one that is named is chosen by hashing, so that an id's
clients meet at one agent as long as agents do not come or go (`broker.transactions.placement`).

Share groups are not served: their keys are answered with 15 and a sentence.

Errors: 15; 42 for a key type that does not exist, or not yet in the request's version.
"""

from dataclasses import replace
from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from broker.transactions import placement
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

SEVERAL_SINCE: Final = 4
SHARE_SINCE: Final = 6
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2


async def handle(
    node: Node, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if call.version >= SEVERAL_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                _answer(node, call, request, key)
                async for key in node.slices.of(call).over(request.coordinator_keys)
            ]
        )
    found = _find(node, call, request.key_type, request.key)
    return FindCoordinatorResponse(node_id=found.node_id, host=found.host, port=found.port)


def refusal(
    call: Call, request: FindCoordinatorRequest, error: KafkaError
) -> FindCoordinatorResponse:
    if call.version >= SEVERAL_SINCE:
        return FindCoordinatorResponse(
            coordinators=[_refused(key, error) for key in request.coordinator_keys]
        )
    none = _refused("", error)
    return FindCoordinatorResponse(
        error_code=error.code,
        error_message=error.message,
        node_id=none.node_id,
        host=none.host,
        port=none.port,
    )


RIGHTS: Final = {
    GROUP: Right(Operation.DESCRIBE, Resource.GROUP, ("key", "coordinator_keys[]")),
    TRANSACTION: Right(
        Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, ("key", "coordinator_keys[]")
    ),
    SHARE: Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),
}
"""By type of key."""


async def narrow(node: Node, call: Call, request: FindCoordinatorRequest) -> Narrowed:
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    right = RIGHTS.get(request.key_type)
    if right is None:
        return Narrowed(request)
    if call.version < SEVERAL_SINCE:
        asks.require(right, request.key)
        return Narrowed(request)
    left: list[str] = []
    refused: list[str] = []
    async for key in node.slices.of(call).over(request.coordinator_keys):
        (left if asks.permits(right, key) else refused).append(key)
    error = guards.refusal_for(right.resource)

    def complete(response: FindCoordinatorResponse | None) -> FindCoordinatorResponse:
        part = FindCoordinatorResponse(coordinators=[_refused(key, error) for key in refused])
        return guards.joined(response, part, "coordinators")

    if not refused:
        return Narrowed(request)
    return Narrowed(replace(request, coordinator_keys=left) if left else None, complete)


API: Final = Api(
    key=apis.FIND_COORDINATOR,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    changes=False,
    rights=tuple(RIGHTS.values()),
)


def _answer(node: Node, call: Call, request: FindCoordinatorRequest, key: str) -> Coordinator:
    try:
        return _find(node, call, request.key_type, key)
    except KafkaError as error:
        return _refused(key, error)


def _refused(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
    )


def _find(node: Node, call: Call, key_type: int, key: str) -> Coordinator:
    """The coordinator of one key. Raises KafkaError."""
    if key_type not in (GROUP, TRANSACTION, SHARE) or (
        key_type == SHARE and call.version < SHARE_SINCE
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")
    if key_type == SHARE:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not served yet")
    if key_type == TRANSACTION:
        return _of_transactions(node, call, key)
    incarnation = node.groups.coordinator_of(key)
    row = None if incarnation is None else node.log_client.machine.incarnations.get(incarnation)
    if row is None:
        reason = "no agent coordinates the group at the moment"
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    for address in row.listeners:
        if address.name == call.connection.listener:
            return Coordinator(key=key, node_id=row.node_id, host=address.host, port=address.port)
    reason = f"the group's coordinator has no listener {call.connection.listener}"
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)


def _of_transactions(node: Node, call: Call, key: str) -> Coordinator:
    """The coordinator of a transactional id among the agents that the caller can reach."""
    agents = {agent.node_id: agent for agent in node.placement(call.connection.listener).agents}
    node_id = placement.coordinator(key, agents)
    if node_id is None:
        reason = f"no agent has a listener {call.connection.listener}"
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    chosen = agents[node_id]
    return Coordinator(key=key, node_id=node_id, host=chosen.host, port=chosen.port)
