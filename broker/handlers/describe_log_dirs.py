"""DescribeLogDirs, v1-5: how many bytes of records each partition has in the object store.

KIP-113, KIP-827 (v4+: sizes of the volume; an object store has none, so -1), KIP-1066 (v5+).
Every agent has one "log dir", named after the store's URL (without what may be secret in it), and
every partition lies in it. But an agent lists only the partitions whose leader it is named, to
this very client, in Metadata. So each partition is told by exactly one agent, and what tools add
up over all brokers is what lies in the bucket; and who asks a partition's leader is told of it.
A partition is not told by its other replicas (there is one a zone): they would be the same bytes.

Sizes are those of the records as they are stored: spans in chunks and in segments, also those
whose rows are not in memory; without indexes, and without what waits for collection. Nothing lags
(there are no copies), nothing moves between dirs. Behind a barrier (P8).

Errors: 7 (no barrier to be had); before v3, that of the only dir.
"""

from collections.abc import Sequence
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.cluster.placement import Placement, zone_of_client
from broker.node import Node
from coordinator.tables.topics import Topic
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

PARTITIONS_PER_TURN_MAX: Final = 500
"""Of the loop."""
ERRORS_OF_THEIR_OWN_SINCE: Final = 3


async def handle(
    node: Node, call: Call, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    await node.log_client.barrier()
    machine = node.log_client.machine
    turns = node.slices.of(call)
    asked: list[tuple[Topic, Sequence[int]]] = []
    if request.topics is None:
        asked = [(topic, range(topic.partition_count)) for topic in machine.topics]
    else:
        async for wanted in turns.over(request.topics):
            topic = machine.topics.by_name(wanted.topic)
            if topic is not None:
                asked.append((topic, list(dict.fromkeys(wanted.partitions))))
    placement = node.placement(call.connection.listener)
    zone = zone_of_client(call.client_id)
    topics = []
    async for topic, indexes in turns.over(asked):
        partitions = []
        for first in range(0, len(indexes), PARTITIONS_PER_TURN_MAX):
            part = indexes[first : first + PARTITIONS_PER_TURN_MAX]
            partitions += _describe(node, placement, topic, part, zone=zone)
            await turns.spend(len(part))
        if partitions:
            topics.append(DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    return DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(log_dir=log_dir(node.settings.store_url), topics=topics)]
    )


def refusal(
    call: Call, request: DescribeLogDirsRequest, error: KafkaError
) -> DescribeLogDirsResponse:
    if call.version >= ERRORS_OF_THEIR_OWN_SINCE:
        return DescribeLogDirsResponse(error_code=error.code)
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=error.code)])


API: Final = Api(
    key=apis.DESCRIBE_LOG_DIRS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.DESCRIBE, Resource.CLUSTER),),
)


def log_dir(store_url: str) -> str:
    """The store's URL without user, password and parameters."""
    scheme, separator, rest = store_url.partition("://")
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return scheme + separator + host.rpartition("@")[2] + slash + path


def _describe(
    node: Node, placement: Placement, topic: Topic, indexes: Sequence[int], *, zone: str
) -> list[DescribeLogDirsPartition]:
    """Those that this agent leads, as the client sees it."""
    own = node.log_client.node_id()
    replicas = placement.replicas(topic.topic_id, indexes, zone=zone)
    found = []
    for index, node_ids in zip(indexes, replicas, strict=True):
        partition = node.log_client.machine.partitions.get(topic.topic_id, index)
        if node_ids[:1] == (own,) and partition is not None:
            found.append(
                DescribeLogDirsPartition(partition_index=index, partition_size=partition.data_bytes)
            )
    return found
