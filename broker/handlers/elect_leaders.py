"""ElectLeaders, v0-2: no election is ever needed, as `kafka-leader-election.sh` is told.

KIP-183, KIP-460 (v1+: type of the election). Any agent serves any partition, so every partition has
its preferred leader at all times. Behind a barrier (P8), so that a new topic is not unknown here.

Errors, per partition: 84 for one that is there, 3 for one that is not, 42 (no such type of election);
7 when there is no barrier to be had. All partitions (null): an empty list, as from Kafka when none
needed an election.
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from coordinator.tables.topics import shown
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
NOT_NEEDED: Final = "Leader election not needed for topic partition."


async def handle(node: Node, call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in {PREFERRED, UNCLEAN}:
        reason = f"Unknown election type {request.election_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    await node.log_client.barrier()
    results = []
    turns = node.slices.of(call)
    async for asked in turns.over(request.topic_partitions or []):
        topic = node.log_client.machine.topics.by_name(asked.topic)
        rows = []
        async for partition in turns.over(asked.partitions):
            if topic is None:
                rows.append(_unknown(partition, f"topic as {shown(asked.topic)}"))
            elif not 0 <= partition < topic.partition_count:
                rows.append(_unknown(partition, f"partition as {shown(asked.topic)}-{partition}"))
            else:
                rows.append(_result(partition, ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED))
        results.append(ReplicaElectionResult(topic=asked.topic, partition_result=rows))
    return ElectLeadersResponse(replica_election_results=results)


def refusal(call: Call, request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    _result(partition, error.code, error.message) for partition in asked.partitions
                ],
            )
            for asked in request.topic_partitions or []
        ],
    )


API: Final = Api(
    key=apis.ELECT_LEADERS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.ALTER, Resource.CLUSTER),),
)


def _unknown(partition_id: int, what: str) -> PartitionResult:
    return _result(partition_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")


def _result(partition_id: int, code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(
        partition_id=partition_id, error_code=code, error_message=message or None
    )
