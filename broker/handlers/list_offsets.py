"""ListOffsets, v1-11: first, last, and by time; behind a barrier (P8).

KIP-79 (times), KIP-207, KIP-734 (newest timestamp, v7+), KIP-405 and KIP-1005 (tiers: the local
log is the whole log, nothing is tiered), KIP-98 (isolation; the last stable offset is the bound).
A search by time finds the span by the machine's column of newest timestamps, reads that span and
looks into its batches: the answer is a record, not a batch. The end of a transaction is a record
here, as in Kafka, and its time is when it was written; what is at or beyond the last stable offset
is not found by who reads committed records only.

Errors, per partition: 3, 6 (no barrier to be had: ask another agent), 35 (a special timestamp
before its version), 42 (a partition twice), 56 (the object store), 74, 75.
"""

import asyncio
from collections import Counter
from typing import Final, NamedTuple

from broker.dispatch import Call
from broker.handlers.offset_for_leader_epoch import check_epoch
from broker.node import Node
from broker.placement import LEADER_EPOCH
from coordinator.partitions import Partition
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.records import batch_positions, iterate, read_header
from storage.batches import Batches
from storage.object_store import ObjectNotFoundError, StoreError
from storage.spans import Marker, Span

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Version that each special timestamp came with."""

READ_COMMITTED: Final = 1
SEARCHES_MAX: Final = 8
"""Of one request at a time: each holds a span in memory."""


class _Place(NamedTuple):
    """A record found; both -1 when there is none."""

    offset: int = -1
    timestamp: int = -1


NOWHERE: Final = _Place()


async def handle(node: Node, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    await node.coordinator.barrier()
    committed = request.isolation_level == READ_COMMITTED
    slots = asyncio.Semaphore(SEARCHES_MAX)

    async def answer(name: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        async with slots:
            return await _answer(node, call.version, name, wanted, committed=committed)

    topics = []
    for topic in request.topics:
        counts = Counter(wanted.partition_index for wanted in topic.partitions)
        partitions = await asyncio.gather(
            *(
                _twice(wanted) if counts[wanted.partition_index] > 1 else answer(topic.name, wanted)
                for wanted in topic.partitions
            )
        )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def refusal(call: Call, request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_refused(wanted, error.code) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _refused(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


async def _twice(wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return _refused(wanted, ErrorCode.INVALID_REQUEST)


async def _answer(
    node: Node, version: int, name: str, wanted: ListOffsetsPartition, *, committed: bool
) -> ListOffsetsPartitionResponse:
    machine = node.coordinator.machine
    topic = machine.topics.by_name(name)
    partition = (
        None if topic is None else machine.partitions.get(topic.topic_id, wanted.partition_index)
    )
    if partition is None:
        return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if (code := check_epoch(wanted.current_leader_epoch)) is not ErrorCode.NONE:
        return _refused(wanted, code)
    if wanted.timestamp < 0 and version < SINCE.get(wanted.timestamp, version + 1):
        return _refused(wanted, ErrorCode.UNSUPPORTED_VERSION)
    try:
        place = await _place(node, partition, wanted.timestamp, committed=committed)
    except StoreError:
        return _refused(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        offset=place.offset,
        timestamp=place.timestamp,
        leader_epoch=-1 if place is NOWHERE else LEADER_EPOCH,
    )


async def _place(node: Node, partition: Partition, timestamp: int, *, committed: bool) -> _Place:
    bound = partition.last_stable if committed else partition.end_offset
    match timestamp:
        case -1:  # LATEST
            return _Place(bound)
        case -2 | -4:  # EARLIEST, EARLIEST_LOCAL
            return _Place(partition.log_start)
        case -3:  # MAX_TIMESTAMP
            newest = partition.newest_timestamp()
            return NOWHERE if newest < 0 else await _search(node, partition, newest, bound)
        case -5 | -6:  # LATEST_TIERED, EARLIEST_PENDING_UPLOAD
            return NOWHERE
        case _:
            return await _search(node, partition, timestamp, bound)


async def _search(node: Node, partition: Partition, timestamp: int, bound: int) -> _Place:
    """The first record at or after `timestamp`, below `bound`.

    Raises StoreError when what must be looked into cannot be read.
    """
    for again in (False, True):
        try:
            return await _search_once(node, partition, timestamp, bound)
        except ObjectNotFoundError:
            if again:
                raise
            # Merged meanwhile? Then a newer replica knows where the records went.
            await node.coordinator.barrier()
    raise AssertionError("the second search returns or raises")


async def _search_once(node: Node, partition: Partition, timestamp: int, bound: int) -> _Place:
    index = partition.first_row_with_timestamp(timestamp)
    while index < partition.row_count:
        span = partition.row(index)
        if span.base_offset >= bound:
            return NOWHERE
        if isinstance(span, Marker):
            if span.timestamp >= timestamp and span.base_offset >= partition.log_start:
                return _Place(span.base_offset, span.timestamp)
            index += 1
            continue
        # A newest timestamp is the producer's word for compressed batches; if a span has no
        # such record after all, the next one is looked into.
        if span.timestamp_max >= timestamp:
            batches = node.reader.cached(span) or await _load(node, span)
            place = find_record(batches, timestamp, log_start=partition.log_start, bound=bound)
            if place is not NOWHERE:
                return place
        index = partition.find(span.next_offset)
    return NOWHERE


async def _load(node: Node, span: Span) -> Batches:
    length = node.coordinator.machine.object_length(span.object_id)
    return await node.reader.load(span, object_length=length, recent=False)


def find_record(batches: Batches, timestamp: int, *, log_start: int, bound: int) -> _Place:
    """The first record of a span at or after `timestamp` and within the offsets."""
    view = batches.view()
    starts, _ = batch_positions(view)
    for at in starts:
        header = read_header(view, at)
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        try:
            for record in iterate(view, at):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    found = record.offset < bound
                    return _Place(record.offset, record.timestamp) if found else NOWHERE
        except ProtocolError:
            # Stored as it was sent: records that nobody can read. Their batch is the answer.
            return _Place(header.base_offset, header.max_timestamp)
    return NOWHERE
