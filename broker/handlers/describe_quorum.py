"""DescribeQuorum, v0-2: who keeps the log of metadata, as `kafka-metadata-quorum.sh` asks for it.

KIP-595, KIP-836, KIP-853 (v2: directories, listeners). Kafka's quorum keeps its metadata in the
topic `__cluster_metadata`; here all live agents read one metadata log, so each of them is a voter
and the log ends for all of them at the same place: the revision that this agent has applied, behind
a barrier (P8). No agent leads; the one of the lowest rank stands for it, the same wherever one
asks. Times are not known (-1).

Errors, per partition: 3 (another topic or partition), 5 (no agent is live); 7 when there is no
barrier to be had.
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.cluster.placement import Placement
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    Listener,
    ReplicaState,
)
from protocol.messages import Node as Voter
from protocol.types import Position, leader_epoch, revision_of

TOPIC: Final = "__cluster_metadata"


async def handle(node: Node, call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    await node.log_client.barrier()
    listener = call.connection.listener
    placement = node.placement(listener)
    position = node.log_client.machine.position
    topics = [
        DescribeQuorumResponseTopic(
            topic_name=topic.topic_name,
            partitions=[
                _partition(placement, position)
                if (topic.topic_name, partition.partition_index) == (TOPIC, 0)
                else _refused(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    nodes = [
        Voter(
            node_id=agent.node_id,
            listeners=[Listener(name=listener, host=agent.host, port=agent.port)],
        )
        for agent in placement.agents
    ]
    return DescribeQuorumResponse(topics=topics, nodes=nodes)


def refusal(
    call: Call, request: DescribeQuorumRequest, error: KafkaError
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message or None)


API: Final = Api(
    key=apis.DESCRIBE_QUORUM,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.DESCRIBE, Resource.CLUSTER),),
)


def _partition(placement: Placement, position: Position) -> DescribeQuorumResponsePartition:
    if not placement.agents:
        return _refused(0, ErrorCode.LEADER_NOT_AVAILABLE)
    end = revision_of(position)
    return DescribeQuorumResponsePartition(
        partition_index=0,
        leader_id=min(placement.agents, key=lambda agent: agent.rank).node_id,
        leader_epoch=leader_epoch(position),
        high_watermark=end,
        current_voters=[
            ReplicaState(replica_id=agent.node_id, log_end_offset=end) for agent in placement.agents
        ],
    )


def _refused(partition_index: int, code: ErrorCode) -> DescribeQuorumResponsePartition:
    return DescribeQuorumResponsePartition(
        partition_index=partition_index, error_code=code, leader_id=-1, leader_epoch=-1
    )
