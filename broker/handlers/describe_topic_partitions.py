"""DescribeTopicPartitions, v0: topics with their partitions, page by page, behind a barrier (P8).

KIP-966. Topics in order of name; a page ends after `response_partition_limit` partitions (at most
max.request.partition.size.limit) and the cursor says where the next one begins. A cursor at a
topic that is gone goes on with the next name. There are no eligible leader replicas.

Errors, per topic: 3, 5 (no barrier to be had), 17; 42 for a cursor at a negative partition.
"""

from dataclasses import replace
from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.slices import Turns
from broker.cluster.placement import Placement, zone_of_client
from broker.handler_support import TOPIC_OPERATIONS
from broker.node import Node
from coordinator.tables.topics import Topic, name_error
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

NAMES_PER_SORT: Final = 2_000
NAMES_PER_ELEMENT: Final = 8
"""So many names are sorted in the time that one element of a request takes otherwise."""


async def handle(
    node: Node, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor or Cursor()
    if cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor's partition index is negative")
    await node.log_client.barrier()
    topics = node.log_client.machine.topics
    limit = node.kafka.max_request_partition_size_limit
    left = max(min(request.response_partition_limit, limit), 1)
    turns = node.slices.of(call)
    asked = [topic.name for topic in request.topics]
    if not asked:
        asks = guards.asker(node, call)
        asked = [
            topic.name
            async for topic in turns.over(list(topics))
            if asks is None or asks.allows(DESCRIBE, topic.name)
        ]
    names = await _first_names(turns, asked, cursor.topic_name, count=left + 1)
    response = DescribeTopicPartitionsResponse()
    placement = node.placement(call.connection.listener)
    zone = zone_of_client(call.client_id)
    for name in names:
        first = cursor.partition_index if name == cursor.topic_name else 0
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        topic = topics.by_name(name)
        if topic is None:
            missing = _refused(name, _missing(name))
            missing.topic_authorized_operations = _operations(node, call, name)
            response.topics.append(missing)
            left -= 1
            continue
        last = min(first + left, topic.partition_count)
        indexes = range(min(first, last), last)
        described = _describe(topic, indexes, placement=placement, zone=zone)
        described.topic_authorized_operations = _operations(node, call, name)
        response.topics.append(described)
        left -= len(indexes)
        if last < topic.partition_count:
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    return response


async def _first_names(turns: Turns, asked: list[str], first: str, *, count: int) -> list[str]:
    """The first so many names from `first` on, in order. A page needs no more of them, since each
    has a partition or is refused."""
    names: list[str] = []
    step = max(NAMES_PER_SORT, count)
    for at in range(0, len(asked), step):
        some = [name for name in asked[at : at + step] if name >= first]
        names = sorted({*names, *some})[:count]
        await turns.spend(step // NAMES_PER_ELEMENT)
    return names


def refusal(
    call: Call, request: DescribeTopicPartitionsRequest, error: KafkaError
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[_refused(topic.name, error.code) for topic in request.topics]
    )


DESCRIBE: Final = Right(Operation.DESCRIBE, Resource.TOPIC, ("topics[].name",))


async def narrow(node: Node, call: Call, request: DescribeTopicPartitionsRequest) -> Narrowed:
    """Topics that are named are refused; of all topics those are left out (`handle`)."""
    assert node.rights is not None
    asks = guards.Asker(node.rights, call)
    left, refused = [], []
    async for topic in node.slices.of(call).over(request.topics):
        if asks.permits(DESCRIBE, topic.name):
            left.append(topic)
        else:
            refused.append(_refused(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    def complete(
        response: DescribeTopicPartitionsResponse | None,
    ) -> DescribeTopicPartitionsResponse:
        part = DescribeTopicPartitionsResponse(topics=refused)
        return guards.joined(response, part, "topics")

    if not refused:
        return Narrowed(request)
    return Narrowed(replace(request, topics=left) if left else None, complete)


API: Final = Api(
    key=apis.DESCRIBE_TOPIC_PARTITIONS,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.LEADER_NOT_AVAILABLE,
    changes=False,
    rights=(DESCRIBE,),
)


def _operations(node: Node, call: Call, name: str) -> int:
    asks = guards.asker(node, call)
    return TOPIC_OPERATIONS if asks is None else asks.operations(Resource.TOPIC, name)


def _missing(name: str) -> ErrorCode:
    if name_error(name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _describe(
    topic: Topic, indexes: range, *, placement: Placement, zone: str
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    chosen = placement.replicas(topic.topic_id, indexes, zone=zone)
    for index, nodes in zip(indexes, chosen, strict=True):
        replicas = list(nodes)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=replicas[0] if replicas else -1,
                leader_epoch=placement.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=replicas,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=partitions,
    )
