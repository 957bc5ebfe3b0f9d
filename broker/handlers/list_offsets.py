"""ListOffsets, v1-11: first, last, and by time; behind a barrier (P8).

KIP-79 (times), KIP-207, KIP-734 (newest timestamp, v7+), KIP-405 and KIP-1005 (tiers: the local
log is the whole log, nothing is tiered), KIP-98 (isolation; the last stable offset is the bound).
A search by time finds the row by the machine's column of newest timestamps; a page is read for
the span in it, and the span to look into its batches: the answer is a record, not a batch. The end
of a transaction is a record here, as in Kafka, and its time is when it was written; what is before
the log's start is not found, nor what is at or beyond the last stable offset by who reads committed
records only. Rows may move while something is read, so the search goes on from an offset and never
from a row.

Errors, per partition: 3, 6 (no barrier to be had: ask another agent), 35 (a special timestamp
before its version), 42 (a partition twice), 56 (the object store), 74, 75.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import count
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
from storage.spans import Marker, Page, Span

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
REPLANS_MAX: Final = 4
"""How often a search begins anew since an object was gone, a different one each time."""
STEPS_A_TURN: Final = 500
"""Rows looked at before others have a turn of the loop."""


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
    if machine.partitions.get(partition.topic_id, partition.partition) is None:  # By now.
        return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
    gone: list[str] = []
    while True:
        try:
            return await _search_once(node, partition, timestamp, bound)
        except ObjectNotFoundError as error:
            if str(error) in gone or len(gone) == REPLANS_MAX:
                raise
            # Merged meanwhile? Then a newer replica knows where the records went.
            gone.append(str(error))
            await node.coordinator.barrier()


async def _search_once(node: Node, partition: Partition, timestamp: int, bound: int) -> _Place:
    page: Page | None = None
    inside: Sequence[Span | Marker] = ()
    offset = _first_with_timestamp(partition, timestamp)
    for steps in count(1):
        offset = max(offset, partition.log_start)
        index = partition.find(offset)
        if offset >= bound or index == partition.row_count:
            break
        row = partition.row(index)
        if isinstance(row, Page) and row.timestamp_max >= timestamp:
            if row != page:
                page, inside = row, await _load_page(node, row)
                continue  # It may have been moved meanwhile.
            row = inside[max(bisect_right(inside, offset, key=_base_offset) - 1, 0)]
        # A newest timestamp is the producer's word for compressed batches; if a span has no
        # such record after all, the next one is looked into.
        if not isinstance(row, Page):
            place = await _search_row(node, partition, row, timestamp, bound)
            if place is not NOWHERE:
                return place
        offset = row.next_offset
        if steps % STEPS_A_TURN == 0:
            await asyncio.sleep(0)
    return NOWHERE


def _first_with_timestamp(partition: Partition, timestamp: int) -> int:
    """An offset before which no record has such a timestamp; the end when none has."""
    index = partition.first_row_with_timestamp(timestamp)
    if index == partition.row_count:
        return partition.end_offset
    return partition.row(index).base_offset


def _base_offset(row: Span | Marker) -> int:
    return row.base_offset


async def _search_row(
    node: Node, partition: Partition, row: Span | Marker, timestamp: int, bound: int
) -> _Place:
    if isinstance(row, Marker):
        found = row.timestamp >= timestamp
        return _Place(row.base_offset, row.timestamp) if found else NOWHERE
    if row.timestamp_max < timestamp:
        return NOWHERE
    batches = node.reader.cached(row) or await _load(node, row)
    return find_record(batches, timestamp, log_start=partition.log_start, bound=bound)


async def _load(node: Node, span: Span) -> Batches:
    length = node.coordinator.machine.object_length(span.object_id)
    return await node.reader.load(span, object_length=length, recent=False)


async def _load_page(node: Node, page: Page) -> Sequence[Span | Marker]:
    return node.reader.cached_page(page) or (await node.reader.load_pages([page]))[0]


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
