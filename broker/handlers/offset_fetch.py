"""OffsetFetch, v1-10: how far a group has come, behind a barrier (P8).

KIP-709 (several groups, v8+), KIP-447 (require_stable, v7+), KIP-320 (leader epoch, v5+), KIP-848
(member epoch, v9+; topics by id, v10). A group that nobody knows has committed nothing, and that is
no error. Offsets of deleted topics are not told, though their rows may still be there. Null topics
mean all. Who requires stable offsets is told to come again (88) where a transaction that is open
has an offset pending; everybody else hears what was committed before.

Any agent tells, not the coordinator alone: every agent has the rows, and none older than the
request. Where Kafka says NOT_COORDINATOR, librdkafka takes that for the end of the request (its
`rd_kafka_assignment_apply_offsets`): the member stays in its group and never reads the partitions.
Shards move when a rebalance has ended, which is when members ask. Only who names a member has to
ask the coordinator, since that alone knows the members.

Errors, per group (v1: per partition): 14, 24; if a member is named (v9+) 15, 16, 25, 113; per
partition: 88 (v7+), 100 (v10).
"""

from dataclasses import replace
from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.slices import Turns
from broker.groups.commits import SINCE_TOPIC_IDS
from broker.node import Node
from coordinator.tables.groups import GroupOffsets, OffsetRow
from coordinator.tables.topics import Topic
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.types import TopicId

SINCE_GROUPS = 8
"""Version that asks for several groups; before, what would be a group's is the request's."""
SINCE_REQUEST_ERROR = 2

_Told = dict[tuple[str, str | TopicId], set[int]]
"""Partitions that were told, by group and topic as the client names it. Each is told once: it takes a
few bytes to ask for one, and its metadata has thousands."""


async def handle(node: Node, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    await node.log_client.barrier()
    stable = request.require_stable
    turns = node.slices.of(call)
    told: _Told = {}
    groups = [
        await _answer(node, turns, call.version, wanted, told, stable=stable)
        async for wanted in turns.over(_once(_groups(call, request)))
    ]
    return _response(call, request, groups)


def refusal(call: Call, request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    groups = [
        OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error.code)
        for wanted in _groups(call, request)
    ]
    return _response(call, request, groups)


RIGHTS: Final = (
    Right(Operation.DESCRIBE, Resource.GROUP, ("group_id", "groups[].group_id")),
    Right(
        Operation.DESCRIBE,
        Resource.TOPIC,
        ("topics[].name", "groups[].topics[].name", "groups[].topics[].topic_id"),
    ),
)


async def narrow(node: Node, call: Call, request: OffsetFetchRequest) -> Narrowed:
    """Of a group that is asked for all it has, topics that may not be described are left out."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    of_group, of_topic = RIGHTS
    if call.version < SINCE_GROUPS:
        asks.require(of_group, request.group_id)
    left: list[OffsetFetchRequestGroup] = []
    refused: list[OffsetFetchResponseGroup] = []
    parts: dict[str, list[OffsetFetchResponseTopic]] = {}
    of_all: set[str] = set()
    for group in _groups(call, request):
        if not asks.permits(of_group, group.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
        elif group.topics is None:
            of_all.add(group.group_id)
            left.append(group)
        else:
            topics, told = await _permitted_topics(node, call, group.topics, asks, of_topic)
            parts.setdefault(group.group_id, []).extend(told)
            left.append(replace(group, topics=topics))

    def complete(response: OffsetFetchResponse | None) -> OffsetFetchResponse:
        if response is None:
            return OffsetFetchResponse(groups=refused)
        response.groups.extend(refused)
        if call.version < SINCE_GROUPS:
            response.topics = _seen(response.topics, asks, of_topic, parts.get(request.group_id))
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                told = None if group.group_id in of_all else parts.pop(group.group_id, [])
                group.topics = _seen(group.topics, asks, of_topic, told)
        return response

    if call.version < SINCE_GROUPS:
        return Narrowed(replace(request, topics=left[0].topics), complete)
    return Narrowed(replace(request, groups=left) if left or not refused else None, complete)


async def _permitted_topics(
    node: Node,
    call: Call,
    asked: list[OffsetFetchRequestTopic],
    asks: guards.Asker,
    right: Right,
) -> tuple[list[OffsetFetchRequestTopic], list[OffsetFetchResponseTopic]]:
    """Those that may be described, and what is told of the others."""
    by_id = call.version >= SINCE_TOPIC_IDS
    topics = node.log_client.machine.topics
    if by_id and any(topics.by_id(topic.topic_id) is None for topic in asked):
        await node.log_client.barrier()
    left: list[OffsetFetchRequestTopic] = []
    told: list[OffsetFetchResponseTopic] = []
    async for topic in node.slices.of(call).over(asked):
        found = topics.by_id(topic.topic_id) if by_id else None
        name = found.name if found is not None else topic.name
        if by_id and found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif asks.permits(right, name):
            left.append(topic)
            continue
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = [_none(index, code) for index in topic.partition_indexes]
        told.append(
            OffsetFetchResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return left, told


def _seen(
    topics: list[OffsetFetchResponseTopic],
    asks: guards.Asker,
    right: Right,
    told: list[OffsetFetchResponseTopic] | None,
) -> list[OffsetFetchResponseTopic]:
    """With what is told of refused topics; None: all were asked for, and some may not be seen."""
    if told is None:
        return [topic for topic in topics if asks.allows(right, topic.name)]
    return [*topics, *told]


API: Final = Api(
    key=apis.OFFSET_FETCH,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=False,
    rights=RIGHTS,
)


def _groups(call: Call, request: OffsetFetchRequest) -> list[OffsetFetchRequestGroup]:
    if call.version >= SINCE_GROUPS:
        return request.groups
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]


def _once(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """A group that is asked for all it has is told that once: a few bytes would ask for many."""
    return list(
        {
            (group.group_id, index if group.topics is not None else -1): group
            for index, group in enumerate(groups)
        }.values()
    )


def _response(
    call: Call, request: OffsetFetchRequest, groups: list[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    if call.version >= SINCE_GROUPS:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    if group.error_code and call.version < SINCE_REQUEST_ERROR:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[_none(index, group.error_code) for index in topic.partition_indexes],
            )
            for topic in request.topics or []
        ]
        return OffsetFetchResponse(topics=topics)
    return OffsetFetchResponse(topics=group.topics, error_code=group.error_code)


async def _answer(
    node: Node,
    turns: Turns,
    version: int,
    wanted: OffsetFetchRequestGroup,
    told: _Told,
    *,
    stable: bool,
) -> OffsetFetchResponseGroup:
    try:
        if wanted.member_id is not None or wanted.member_epoch >= 0:
            await _check_member(node, wanted)
        elif wanted.group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error.code)
    row = node.log_client.machine.groups.get(wanted.group_id)
    offsets = GroupOffsets() if row is None else row.offsets
    if wanted.topics is None:
        topics = await _all(node, turns, offsets, stable=stable)
    else:
        topics = [
            await _topic(
                node,
                turns,
                version,
                offsets,
                topic,
                told=told.setdefault((wanted.group_id, topic.name or topic.topic_id), set()),
                stable=stable,
            )
            async for topic in turns.over(wanted.topics)
        ]
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)


async def _check_member(node: Node, wanted: OffsetFetchRequestGroup) -> None:
    """A member that was fenced must not begin where others stand. Raises KafkaError."""
    await node.groups.settled(wanted.group_id)
    group = node.groups.live(wanted.group_id)
    if group is None:
        return
    member_id = wanted.member_id or ""
    code = group.check_fetch(member_id, wanted.member_epoch, now_ms=node.groups.now_ms())
    if code is not ErrorCode.NONE:
        raise KafkaError(code)


async def _all(
    node: Node, turns: Turns, offsets: GroupOffsets, *, stable: bool
) -> list[OffsetFetchResponseTopic]:
    """As in Kafka, places that have only a pending offset are not among them."""
    topics = node.log_client.machine.topics
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            topic_id=topic_id,
            partitions=[
                _unstable(index)
                if stable and offsets.has_pending(topic_id, index)
                else _told(index, row)
                async for index, row in turns.over(list(offsets.of_topic(topic_id)))
            ],
        )
        async for topic_id in turns.over(list(offsets.topics()))
        if (topic := topics.by_id(topic_id)) is not None
    ]


async def _topic(
    node: Node,
    turns: Turns,
    version: int,
    offsets: GroupOffsets,
    wanted: OffsetFetchRequestTopic,
    *,
    told: set[int],
    stable: bool,
) -> OffsetFetchResponseTopic:
    topics = node.log_client.machine.topics
    topic: Topic | None
    if version >= SINCE_TOPIC_IDS:
        topic = topics.by_id(wanted.topic_id)
        code = ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = topics.by_name(wanted.name)
        code = ErrorCode.NONE
    answer = OffsetFetchResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
    async for index in turns.over(wanted.partition_indexes):
        if index in told:
            continue
        told.add(index)
        row = None
        if topic is not None and 0 <= index < topic.partition_count:
            if stable and offsets.has_pending(topic.topic_id, index):
                answer.partitions.append(_unstable(index))
                continue
            row = offsets.get(topic.topic_id, index)
        answer.partitions.append(_none(index, code) if row is None else _told(index, row))
    return answer


def _told(index: int, row: OffsetRow) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=row.offset,
        committed_leader_epoch=row.leader_epoch,
        metadata=row.metadata,
    )


def _unstable(index: int) -> OffsetFetchResponsePartition:
    """The client asks again until the transaction has ended (KIP-447)."""
    return _none(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _none(index: int, code: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition_index=index, error_code=code)
