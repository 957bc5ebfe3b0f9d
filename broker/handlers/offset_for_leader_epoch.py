"""OffsetForLeaderEpoch, v2-4: where an epoch ended; there is one for each era of the log.

KIP-101, KIP-320. The newest one ends at the end offset, taken behind a barrier (P8): a consumer that
checks its position after a move must not be told of a truncation that never was. Those before ended where
a recovery found the end (`coordinator.tables.eras`). Epochs that the partition has never had are answered
with -1, -1.

Errors: 3, 6 (no barrier to be had), 74 and 75 for a current leader epoch that is another one.
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.handler_support import partition_of
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def check_epoch(node: Node, current_leader_epoch: int) -> ErrorCode:
    """What a client's idea of the leader's epoch is answered with (KIP-320); -1 is no idea."""
    leader_epoch = node.log_client.machine.eras.leader_epoch
    if current_leader_epoch < 0 or current_leader_epoch == leader_epoch:
        return ErrorCode.NONE
    if current_leader_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


async def handle(
    node: Node, call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    await node.log_client.barrier()
    turns = node.slices.of(call)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _answer(node, topic.topic, wanted)
                    async for wanted in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(request.topics)
        ]
    )


def refusal(
    call: Call, request: OffsetForLeaderEpochRequest, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=wanted.partition, error_code=error.code)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


RIGHTS: Final = (
    Right(
        Operation.DESCRIBE,
        Resource.TOPIC,
        ("topics[].topic",),
        instead=Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),
    ),
)
API: Final = Api(
    key=apis.OFFSET_FOR_LEADER_EPOCH,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "topics", "topic", answers="topics", refusal=refusal),
    ),
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    changes=False,
    rights=RIGHTS,
)


def _answer(node: Node, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = partition_of(node, name, wanted.partition)
    answer = EpochEndOffset(partition=wanted.partition)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif (code := check_epoch(node, wanted.current_leader_epoch)) is not ErrorCode.NONE:
        answer.error_code = code
    else:
        machine = node.log_client.machine
        place = (partition.topic_id, partition.partition)
        end = machine.eras.end_of(machine.topics, place, wanted.leader_epoch, partition.end_offset)
        answer.leader_epoch, answer.end_offset = end
    return answer
