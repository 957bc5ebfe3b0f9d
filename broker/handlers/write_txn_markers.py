"""WriteTxnMarkers, v1-2: an admin's abort of a transaction that hangs (KIP-664).

In Kafka this is what a coordinator sends to brokers to end a transaction in their partitions, and
admin clients borrow it for a partition whose transaction nobody ends. Here the markers of a
transaction come from one entry of the log, and a part of it cannot end alone: that would tear it.
So an ABORT in one partition gives up the whole transaction that is open there. Its producer is
fenced as by a timeout. A COMMIT is refused: only its producer knows that all was written.

Errors, per partition: 3, 6 (no session in the log), 42 (a COMMIT), 47 (the transaction there has a
newer epoch). Nothing open there: 0. A fate that stays open closes the connection.
"""

from collections.abc import Iterator
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from broker.transactions.coordinator import ATTEMPTS_MAX
from broker.transactions.views import (
    OFFSETS_PARTITIONS,
    OFFSETS_TOPIC,
    offsets_partition,
    offsets_partitions,
)
from coordinator.tables.topics import Topic
from coordinator.tables.transactions import TransactionRow
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_Offsets = dict[tuple[int, int, int], frozenset[int]]
"""Partitions of Kafka's topic of offsets that take part in a transaction: by producer id, instance, and
number of groups, none of which goes before it ends."""


async def handle(
    node: Node, call: Call, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    await node.log_client.barrier()
    turns = node.slices.of(call)
    offsets: _Offsets = {}
    codes = [
        await _abort(node, call, marker, (topic.name, partition), offsets)
        async for marker in turns.over(request.markers)
        async for topic in turns.over(marker.topics)
        async for partition in turns.over(topic.partition_indexes)
    ]
    return _answer(request, iter(codes))


def refusal(
    call: Call, request: WriteTxnMarkersRequest, error: KafkaError
) -> WriteTxnMarkersResponse:
    count = sum(
        len(topic.partition_indexes) for marker in request.markers for topic in marker.topics
    )
    return _answer(request, iter([error.code] * count))


API: Final = Api(
    key=apis.WRITE_TXN_MARKERS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    changes=True,
    rights=(
        Right(
            Operation.ALTER,
            Resource.CLUSTER,
            instead=Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),
        ),
    ),
    is_audited=True,
)


def _answer(request: WriteTxnMarkersRequest, codes: Iterator[ErrorCode]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=partition, error_code=next(codes)
                            )
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def _abort(
    node: Node,
    call: Call,
    marker: WritableTxnMarker,
    place: tuple[str, int],
    offsets: _Offsets,
) -> ErrorCode:
    """Give up what is open there. The barrier is behind; what moves since then is seen again."""
    name, partition = place
    if marker.transaction_result:
        return ErrorCode.INVALID_REQUEST
    for _ in range(ATTEMPTS_MAX):
        topic = node.log_client.machine.topics.by_name(name)
        count = OFFSETS_PARTITIONS if name == OFFSETS_TOPIC else 0
        if not 0 <= partition < (count if topic is None else topic.partition_count):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        row = _open(node, marker)
        if row is not None and topic is None:
            key = _key_of(row)
            if key not in offsets:
                hashed = offsets_partitions(row.group_ids)
                offsets[key] = await node.slices.of(call).run(hashed)
                row = _open(node, marker)  # By now.
        if row is None or not _takes_part(row, topic, partition, offsets):
            return ErrorCode.NONE
        if marker.producer_epoch < row.txn_metadata.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        try:
            code = await node.transactions.give_up(call, row)
        except KafkaError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                raise
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code is ErrorCode.NONE:
            return code
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _open(node: Node, marker: WritableTxnMarker) -> TransactionRow | None:
    """The open transaction of the producer."""
    row = node.log_client.machine.transactions.by_producer(marker.producer_id)
    if row is None or not row.is_ongoing or row.txn_metadata.producer_id != marker.producer_id:
        return None
    return row


def _takes_part(
    row: TransactionRow, topic: Topic | None, partition: int, offsets: _Offsets
) -> bool:
    """No topic: a partition of Kafka's topic of offsets, as DescribeTransactions tells of groups."""
    if topic is not None:
        return (topic.topic_id, partition) in row.partitions
    known = offsets.get(_key_of(row))
    if known is None:  # It is another transaction by now, or of more groups.
        return partition in map(offsets_partition, row.group_ids)
    return partition in known


def _key_of(row: TransactionRow) -> tuple[int, int, int]:
    return row.txn_metadata.producer_id, row.txn_metadata.instance, len(row.group_ids)
