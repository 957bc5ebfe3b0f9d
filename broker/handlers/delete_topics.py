"""DeleteTopics, v1-6: by name, or from v6 on by id; takes effect when it is answered.

KIP-516 (ids). What is not found is looked for again behind a
barrier (P8). Rows of a deleted topic go in slices afterwards (`broker.upkeep.deleted_topics`); its objects
go when nothing points at them any more.

Errors: 3, 100 (unknown name, id), 7 (may still happen), 41 (no session: send it elsewhere),
42 (name and id, neither, or one of them twice), 73 (delete.topic.enable is false), 89 (KIP-599, v5+).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import RequestedChange, forget, wait_for_changes
from broker.calls.slices import Turns
from broker.handler_support import charge_mutations, live_incarnation
from broker.node import Node
from coordinator.commands.entries import DeleteTopic
from coordinator.tables.topics import Topic
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.types import TOPIC_ID_ZERO

STRICT_SINCE: Final = 5
"""What is over a quota is refused."""
PROPOSAL_ELEMENTS: Final = 10
"""What one deletion costs, in elements that are looked at."""


@dataclass(slots=True, kw_only=True)
class _TopicDeletion(RequestedChange):
    """One topic of the request."""

    state: DeleteTopicState
    topic: Topic | None = None


async def handle(node: Node, call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    turns = node.slices.of(call)
    wanted = [_TopicDeletion(state=state) async for state in turns.over(_states(request))]
    await _refuse_doubtful(turns, wanted)
    if not node.kafka.delete_topic_enable:
        disabled = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        return refusal(call, request, disabled)
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    await _find(node, turns, wanted)
    if any(item.topic is None and item.refused is None for item in wanted):
        await node.log_client.barrier()
        await _find(node, turns, wanted)
    await _refuse_named_twice(turns, wanted)
    for item in wanted:
        if item.refused is None and item.topic is not None:
            await turns.spend(PROPOSAL_ELEMENTS)
            try:
                charge_mutations(call, item.topic.partition_count, strict_since=STRICT_SINCE)
            except KafkaError as error:
                item.refused = error
                continue
            command = DeleteTopic(item.topic.topic_id)
            item.future = node.log_client.propose(command, incarnation)
            forget(item.future)  # Its client may be gone before it is asked for.
    await wait_for_changes(wanted, request.timeout_ms)
    return DeleteTopicsResponse(responses=[_result(item) async for item in turns.over(wanted)])


def refusal(call: Call, request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_refused(state, error) for state in _states(request)])


DELETE: Final = Right(
    Operation.DELETE,
    Resource.TOPIC,
    ("topics[].name", "topics[].topic_id", "topic_names[]"),
    instead=Right(Operation.DELETE, Resource.CLUSTER),
)
DESCRIBE: Final = Right(
    Operation.DESCRIBE, Resource.TOPIC, instead=Right(Operation.DELETE, Resource.CLUSTER)
)


async def narrow(node: Node, call: Call, request: DeleteTopicsRequest) -> Narrowed:
    """By its id a topic is named in the refusal only to whom may DESCRIBE it (KIP-516)."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    topics = node.log_client.machine.topics
    ids = [state.topic_id for state in _states(request) if state.topic_id != TOPIC_ID_ZERO]
    if any(topics.by_id(topic_id) is None for topic_id in ids):
        await node.log_client.barrier()
    left: list[DeleteTopicState] = []
    refused: list[DeletableTopicResult] = []
    error = guards.refusal_for(Resource.TOPIC)
    async for state in node.slices.of(call).over(_states(request)):
        topic = topics.by_id(state.topic_id)
        name = state.name
        if name is None and state.topic_id != TOPIC_ID_ZERO:
            if topic is None:
                refused.append(_refused(state, _unknown(by_name=False)))
                continue
            name = topic.name
        if name is None or asks.permits(DELETE, name):
            left.append(state)
            continue
        is_shown = state.name is not None or asks.allows(DESCRIBE, name)
        shown = DeleteTopicState(name=name if is_shown else None, topic_id=state.topic_id)
        refused.append(_refused(shown, error))

    def complete(response: DeleteTopicsResponse | None) -> DeleteTopicsResponse:
        return guards.joined(response, DeleteTopicsResponse(responses=refused), "responses")

    if not refused:
        return Narrowed(request)
    if not left:
        return Narrowed(None, complete)
    if request.topic_names:
        named = [state.name for state in left if state.name is not None]
        return Narrowed(replace(request, topic_names=named), complete)
    return Narrowed(replace(request, topics=left), complete)


API: Final = Api(
    key=apis.DELETE_TOPICS,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(DELETE,),
    is_audited=True,
)


def _states(request: DeleteTopicsRequest) -> Iterator[DeleteTopicState]:
    if request.topic_names:
        return (DeleteTopicState(name=name) for name in request.topic_names)
    return iter(request.topics)


async def _refuse_doubtful(turns: Turns, wanted: list[_TopicDeletion]) -> None:
    names = Counter(item.state.name for item in wanted if item.state.name is not None)
    ids = Counter(item.state.topic_id for item in wanted if item.state.topic_id != TOPIC_ID_ZERO)
    async for item in turns.over(wanted):
        name, topic_id = item.state.name, item.state.topic_id
        if name is not None and topic_id != TOPIC_ID_ZERO:
            reason = "You may not specify both topic name and topic id."
        elif name is None and topic_id == TOPIC_ID_ZERO:
            reason = "Neither topic name nor id were specified."
        elif name is not None and names[name] > 1:
            reason = "Duplicate topic name."
        elif name is None and ids[topic_id] > 1:
            reason = "Duplicate topic id."
        else:
            continue
        item.refused = KafkaError(ErrorCode.INVALID_REQUEST, reason)


async def _find(node: Node, turns: Turns, wanted: list[_TopicDeletion]) -> None:
    topics = node.log_client.machine.topics
    async for item in turns.over(wanted):
        name = item.state.name
        by_id = topics.by_id(item.state.topic_id)
        item.topic = by_id if name is None else topics.by_name(name)


async def _refuse_named_twice(turns: Turns, wanted: list[_TopicDeletion]) -> None:
    """One topic by its name and by its id: Kafka deletes nothing then."""
    found = Counter(
        item.topic.topic_id for item in wanted if item.topic is not None and item.refused is None
    )
    async for item in turns.over(wanted):
        if item.refused is None and item.topic is not None and found[item.topic.topic_id] > 1:
            reason = "The provided topic name maps to an ID that was already supplied."
            item.refused = KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _result(item: _TopicDeletion) -> DeletableTopicResult:
    unknown = _unknown(by_name=item.state.name is not None)
    try:
        item.outcome(ErrorCode.NOT_CONTROLLER, {ErrorCode.UNKNOWN_TOPIC_ID: unknown})
    except KafkaError as error:
        return _refused(item.state, error)
    if item.topic is None:
        return _refused(item.state, unknown)
    return DeletableTopicResult(name=item.topic.name, topic_id=item.topic.topic_id)


def _refused(state: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name,
        topic_id=state.topic_id,
        error_code=error.code,
        error_message=error.message or None,
    )


def _unknown(*, by_name: bool) -> KafkaError:
    if by_name:
        reason = "This server does not host this topic-partition."
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
