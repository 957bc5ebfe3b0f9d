"""OffsetDelete, v0: offsets of topics that a group does not subscribe to are forgotten (KIP-496).

Offsets that are not there are no error. What is to be forgotten is proposed like commits, between
the changes of the group.

Errors, of the request: 7 (may still happen), 14, 15, 16, 24, 68 (members, and not of consumers),
69; per partition: 3, 86.
"""

import asyncio
from typing import Final

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right, error_alone
from broker.calls.call import Call
from broker.calls.outcomes import accepted
from broker.groups.commits import places
from broker.groups.group.live import LiveGroup
from broker.node import Node
from coordinator.commands.group_commands import DeleteOffsets
from coordinator.tables.groups import GroupRow
from coordinator.tables.topics import Topic
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.types import TopicId

CONSUMERS = "consumer"
"""Protocol type of groups whose subscriptions are known."""


async def handle(node: Node, call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    group_id = request.group_id
    node.groups.coordinates(group_id)
    if not all(_exist(node, request)):
        await node.log_client.barrier()
    await node.groups.settled(group_id)
    group = node.groups.live(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "There is no group of this id.")
    if group.state() != "Empty" and group.protocol_type != CONSUMERS:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group has members.")
    response = OffsetDeleteResponse()
    forgotten: list[tuple[TopicId, int]] = []
    row = node.log_client.machine.groups.get(group_id)
    turns = node.slices.of(call)
    async for wanted in turns.over(request.topics):
        topic = node.log_client.machine.topics.by_name(wanted.name)
        answer = OffsetDeleteResponseTopic(name=wanted.name)
        response.topics.append(answer)
        async for partition in turns.over(wanted.partitions):
            index = partition.partition_index
            code = _validate(group, topic, index)
            answer.partitions.append(
                OffsetDeleteResponsePartition(partition_index=index, error_code=code)
            )
            if code is ErrorCode.NONE and topic is not None and _is_there(row, topic, index):
                forgotten.append((topic.topic_id, index))
    await _forget(node, group_id, forgotten)
    return response


def _topics_refused(
    call: Call, request: OffsetDeleteRequest, error: KafkaError
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index, error_code=error.code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


RIGHTS: Final = (
    Right(Operation.DELETE, Resource.GROUP, ("group_id",)),
    Right(Operation.READ, Resource.TOPIC, ("topics[].name",)),
)
API: Final = Api(
    key=apis.OFFSET_DELETE,
    handler=Cold(
        handle,
        error_alone(OffsetDeleteResponse),
        guards.each_of(RIGHTS, "topics", "name", answers="topics", refusal=_topics_refused),
    ),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=True,
    rights=RIGHTS,
    is_audited=True,
)


def _exist(node: Node, request: OffsetDeleteRequest) -> list[bool]:
    topics = node.log_client.machine.topics
    return [topics.by_name(topic.name) is not None for topic in request.topics]


def _validate(group: LiveGroup, topic: Topic | None, index: int) -> ErrorCode:
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if group.subscribes(topic.name):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def _is_there(row: GroupRow | None, topic: Topic, index: int) -> bool:
    """Also one that waits for the end of a transaction: it would be there again when that is committed."""
    if row is None:
        return False
    offsets, topic_id = row.offsets, topic.topic_id
    return offsets.get(topic_id, index) is not None or offsets.has_pending(topic_id, index)


async def _forget(node: Node, group_id: str, partitions: list[tuple[TopicId, int]]) -> None:
    """Raises KafkaError; then some may be forgotten, which the next attempt will find."""
    commands = [DeleteOffsets(group_id, slice_) for slice_ in places(partitions)]
    for outcome in await asyncio.gather(*map(node.groups.propose, commands)):
        accepted(outcome)
