"""AlterPartitionReassignments, v0-1: nothing is moved, as `kafka-reassign-partitions.sh` is told.

KIP-455, KIP-860 (v1+: a client may insist on the replication factor). A partition's replicas are
those that Metadata shows to the same client (`broker.cluster.placement`): who asks for these, in
this order, has them already. All others are refused, in Kafka's words where Kafka refuses them, too.
Behind a barrier (P8), so that a new topic or agent is not unknown here.

Errors, per partition: 3, 38 (another number of replicas, which the client wants kept), 39 (other
replicas), 85 (null takes a reassignment back, and none is under way); at the top as well: 41 when
there is no barrier to be had.
"""

from collections.abc import Collection
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.cluster.placement import zone_of_client
from broker.handler_support import NO_REPLICAS, REPEATED_BROKER, UNKNOWN_BROKER
from broker.node import Node
from coordinator.tables.topics import shown
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    node: Node, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    await node.log_client.barrier()
    machine = node.log_client.machine
    placement = node.placement(call.connection.listener)
    zone = zone_of_client(call.client_id)
    live = {row.node_id for row in machine.incarnations}
    responses = []
    turns = node.slices.of(call)
    async for asked in turns.over(request.topics):
        rows = []
        async for partition in turns.over(asked.partitions):
            await turns.spend(min(len(partition.replicas or ()), len(live)))
            topic = machine.topics.by_name(asked.name)
            index = partition.partition_index
            if topic is None:
                error = _unknown(f"a topic named {shown(asked.name)}")
            elif not 0 <= index < topic.partition_count:
                error = _unknown(f"partition {shown(asked.name)}:{index}")
            else:
                (current,) = placement.replicas(topic.topic_id, (index,), zone=zone)
                error = judged(
                    partition.replicas,
                    current,
                    live,
                    keeps_factor=not request.allow_replication_factor_change,
                )
            rows.append(_row(partition, error))
        responses.append(ReassignableTopicResponse(name=asked.name, partitions=rows))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=responses,
    )


def refusal(
    call: Call, request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error.code,
        error_message=error.message or None,
        responses=[
            ReassignableTopicResponse(
                name=asked.name, partitions=[_row(each, error) for each in asked.partitions]
            )
            for asked in request.topics
        ],
    )


API: Final = Api(
    key=apis.ALTER_PARTITION_REASSIGNMENTS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=False,
    rights=(Right(Operation.ALTER, Resource.CLUSTER),),
)


def judged(
    replicas: list[int] | None,
    current: tuple[int, ...],
    live: Collection[int],
    *,
    keeps_factor: bool,
) -> KafkaError | None:
    """Why a partition whose replicas are `current` does not get these; None when it has them."""
    if replicas is None:
        reason = "No partition reassignment is in progress."
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, reason)
    if not replicas:
        return _invalid(NO_REPLICAS)
    # Of more than there are agents, one is unknown or named twice: the rest tells nothing new.
    before = None
    for each in sorted(replicas[: len(live) + 1]):
        if each not in live:
            return _invalid(UNKNOWN_BROKER.format(each))
        if each == before:
            return _invalid(REPEATED_BROKER.format(each))
        before = each
    if keeps_factor and len(replicas) != len(current):
        reason = f"The replication factor is changed from {len(current)} to {len(replicas)}"
        return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    if tuple(replicas) != current:
        return _invalid(
            f"The replicas are {list(current)}, one in each zone, and are not moved:"
            " any broker serves the partition."
        )
    return None


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _unknown(what: str) -> KafkaError | None:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {what}.")


def _row(asked: ReassignablePartition, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=asked.partition_index)
    return ReassignablePartitionResponse(
        partition_index=asked.partition_index,
        error_code=error.code,
        error_message=error.message or None,
    )
