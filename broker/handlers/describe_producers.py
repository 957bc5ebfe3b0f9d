"""DescribeProducers, v0: who has written to a partition lately, and whose transaction is open there.

KIP-664. Any agent answers for any partition, behind a barrier (P8). A producer is told as long as
the partition remembers its sequence numbers, and while its transaction is open there. There are no
coordinators whose epochs could differ, so that epoch is always told as none.

Errors, per partition: 3, 6 (no barrier to be had), 17 (no topic has such a name).
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.slices import Turns
from broker.handler_support import partition_of
from broker.node import Node
from coordinator.tables.partitions import Partition
from coordinator.tables.topics import name_error
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
)
from txn import producers

COORDINATOR_EPOCH_NONE: Final = -1
OFFSET_NONE: Final = -1


async def handle(
    node: Node, call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    await node.log_client.barrier()
    turns = node.slices.of(call)
    told: dict[str, set[int]] = {}
    response = DescribeProducersResponse()
    async for topic in turns.over(request.topics):
        # Each partition once, however often its topic is named: its producers may be many.
        known = told.setdefault(topic.name, set())
        wanted = [each for each in dict.fromkeys(topic.partition_indexes) if each not in known]
        known.update(wanted)
        response.topics.append(
            DescribedProducersTopic(
                name=topic.name,
                partitions=[
                    await _describe(node, turns, topic.name, partition)
                    async for partition in turns.over(wanted)
                ],
            )
        )
    return response


def refusal(
    call: Call, request: DescribeProducersRequest, error: KafkaError
) -> DescribeProducersResponse:
    topics = [
        DescribedProducersTopic(
            name=topic.name,
            partitions=[_refused(partition, error) for partition in topic.partition_indexes],
        )
        for topic in request.topics
    ]
    return DescribeProducersResponse(topics=topics)


RIGHTS: Final = (Right(Operation.READ, Resource.TOPIC, ("topics[].name",)),)
API: Final = Api(
    key=apis.DESCRIBE_PRODUCERS,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "topics", "name", answers="topics", refusal=refusal),
    ),
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    changes=False,
    rights=RIGHTS,
)


def _refused(partition: int, error: KafkaError) -> DescribedProducersPartition:
    return DescribedProducersPartition(
        partition_index=partition, error_code=error.code, error_message=error.message
    )


async def _describe(node: Node, turns: Turns, name: str, index: int) -> DescribedProducersPartition:
    if (reason := name_error(name)) is not None:
        return _refused(index, KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason))
    partition = partition_of(node, name, index)
    if partition is None:
        reason = "This server does not host this topic-partition."
        return _refused(index, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason))
    return DescribedProducersPartition(
        partition_index=index, active_producers=await _producers(turns, partition)
    )


async def _producers(turns: Turns, partition: Partition) -> list[ProducerState]:
    """As of one position, however many turns of the loop it takes."""
    windows = dict(partition.windows or {})
    started = dict(partition.open_transactions)
    states = []
    async for producer_id, window in turns.over(windows.items()):
        view = producers.describe(window)
        states.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=view.epoch,
                last_sequence=view.last_sequence,
                last_timestamp=view.last_timestamp,
                coordinator_epoch=COORDINATOR_EPOCH_NONE,
                current_txn_start_offset=started.get(producer_id, OFFSET_NONE),
            )
        )
    return states
