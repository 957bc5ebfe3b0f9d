"""ListOffsets, v1-11: first, last, and by time; behind a barrier (P8).

KIP-79 (times), KIP-207, KIP-734 (newest timestamp, v7+), KIP-405 and KIP-1005 (tiers: the local
log is the whole log, nothing is tiered), KIP-98 (isolation; the last stable offset is the bound).
A search by time finds the row by the machine's column of newest timestamps; a page is read for
the span in it, and the span to look into its batches: the answer is a record, not a batch. A header
that says its newest record were older than its base is not asked. (What rows of chunks say, and
other headers in them, is their producers' word, as far as `broker.produce.validation` believes it.) The end
of a transaction is a record here, as in Kafka, and its time is when it was written; what is before
the log's start is not found, nor what is at or beyond the last stable offset by who reads committed
records only. The newest timestamp is that of a record that is left: when the row that says it has
it has not (it was deleted, or a producer's word was wrong), others are looked into. Rows may move
while something is read, so a search goes on from an offset and never from a row.

Errors, per partition: 3, 6 (no barrier to be had: ask another agent), 35 (a special timestamp
before its version), 42 (a partition twice), 56 (the object store), 74, 75.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from broker import guards
from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.slices import SLICE_ELEMENTS
from broker.handler_support import partition_of
from broker.handlers.offset_for_leader_epoch import check_epoch
from broker.node import Node
from coordinator.tables.partitions import Partition
from protocol import apis, record_scan
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.records import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    BatchHeader,
    batch_positions,
    payload,
    read_header,
)
from protocol.slices import Sliced
from storage.formats.batches import Batches
from storage.formats.spans import Marker, Page, Row, Span
from storage.stores.object_store import ObjectNotFoundError, StoreError

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
BATCHES_A_SLICE: Final = 500
"""Headers looked at in one slice of the search in a span."""
STEPS_A_TURN: Final = 500
"""Rows looked at before others have a turn of the loop."""


class _Place(NamedTuple):
    """A record found; both -1 when there is none."""

    offset: int = -1
    timestamp: int = -1


NOWHERE: Final = _Place()


class _Looking(NamedTuple):
    """Where records are looked for, and for whom."""

    node: Node
    call: Call

    async def into(self, row: Span, search: Callable[[Batches], Sliced[_Place]]) -> _Place:
        """What a search in a span finds, away from the loop; NOWHERE when nobody waits any more."""
        node, call = self.node, self.call
        async with node.off_loop.places(row.records, call):
            batches = node.reader.cached(row) or await _load(node, row)
            found = await node.off_loop.run(
                search(batches), records=row.records, call=call, gone=lambda: call.abandoned
            )
        return NOWHERE if found is None else found


class _Candidate(NamedTuple):
    """A row that may have the newest record; the first in order is looked into first."""

    age: int
    """The newest timestamp that it says it has, negated."""
    base_offset: int
    next_offset: int
    is_page: bool


async def handle(node: Node, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    # librdkafka asks for each partition by itself, ten thousand times at once.
    await node.log_client.barrier(call.received_ms)
    committed = request.isolation_level == READ_COMMITTED
    slots = asyncio.Semaphore(SEARCHES_MAX)

    async def answer(name: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        async with slots:
            return await _answer(node, call, name, wanted, committed=committed)

    topics = []
    turns = node.slices.of(call)
    async for topic in turns.over(request.topics):
        counts = Counter(wanted.partition_index for wanted in topic.partitions)
        partitions: list[ListOffsetsPartitionResponse] = []
        for first in range(0, len(topic.partitions), SLICE_ELEMENTS):
            some = topic.partitions[first : first + SLICE_ELEMENTS]
            await turns.spend(len(some))
            partitions += await asyncio.gather(
                *(
                    _twice(each) if counts[each.partition_index] > 1 else answer(topic.name, each)
                    for each in some
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


RIGHTS: Final = (Right(Operation.DESCRIBE, Resource.TOPIC, ("topics[].name",)),)
API: Final = Api(
    key=apis.LIST_OFFSETS,
    handler=Cold(
        handle,
        refusal,
        guards.each_of(RIGHTS, "topics", "name", answers="topics", refusal=refusal),
    ),
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER,
    changes=False,
    rights=RIGHTS,
)


def _refused(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


async def _twice(wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return _refused(wanted, ErrorCode.INVALID_REQUEST)


async def _answer(
    node: Node, call: Call, name: str, wanted: ListOffsetsPartition, *, committed: bool
) -> ListOffsetsPartitionResponse:
    partition = partition_of(node, name, wanted.partition_index)
    if partition is None:
        return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if (code := check_epoch(node, wanted.current_leader_epoch)) is not ErrorCode.NONE:
        return _refused(wanted, code)
    if wanted.timestamp < 0 and call.version < SINCE.get(wanted.timestamp, call.version + 1):
        return _refused(wanted, ErrorCode.UNSUPPORTED_VERSION)
    try:
        place = await _place(_Looking(node, call), partition, wanted.timestamp, committed=committed)
    except StoreError:
        return _refused(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    machine = node.log_client.machine
    if machine.partitions.get(partition.topic_id, partition.partition) is None:  # By now.
        return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        offset=place.offset,
        timestamp=place.timestamp,
        leader_epoch=-1 if place is NOWHERE else machine.eras.leader_epoch,
    )


async def _place(
    looking: _Looking, partition: Partition, timestamp: int, *, committed: bool
) -> _Place:
    bound = partition.last_stable if committed else partition.end_offset
    match timestamp:
        case -1:  # LATEST
            return _Place(bound)
        case -2 | -4:  # EARLIEST, EARLIEST_LOCAL
            return _Place(partition.log_start)
        case -3:  # MAX_TIMESTAMP
            place = await _replanned(looking.node, lambda: _newest(looking, partition))
            # As Kafka: when the newest is not stable yet, who reads committed records gets nothing.
            return place if place.offset < bound else NOWHERE
        case -5 | -6:  # LATEST_TIERED, EARLIEST_PENDING_UPLOAD
            return NOWHERE
        case _:
            return await _replanned(
                looking.node, lambda: _search(looking, partition, timestamp, bound)
            )


async def _replanned(node: Node, search: Callable[[], Awaitable[_Place]]) -> _Place:
    """What the search finds, begun anew when an object was gone.

    Raises StoreError when what must be looked into cannot be read.
    """
    gone: list[str] = []
    while True:
        try:
            return await search()
        except ObjectNotFoundError as error:
            if str(error) in gone or len(gone) == REPLANS_MAX:
                raise
            # Merged meanwhile? Then a newer replica knows where the records went.
            gone.append(str(error))
            await node.log_client.barrier()


async def _search(looking: _Looking, partition: Partition, timestamp: int, bound: int) -> _Place:
    """The first record at or after `timestamp`, below `bound`."""
    first = _first_with_timestamp(partition, timestamp)
    # A newest timestamp is the producer's word for compressed batches; if a span has no such
    # record after all, the next one is looked into.
    async with aclosing(_rows(looking.node, partition, first, bound, timestamp)) as rows:
        async for row in rows:
            place = await _search_row(looking, partition, row, timestamp, bound)
            if place is not NOWHERE:
                return place
    return NOWHERE


async def _rows(
    node: Node, partition: Partition, offset: int, bound: int, timestamp: int
) -> AsyncGenerator[Span | Marker, None]:
    """Spans and markers of [offset, bound), those in pages too, from the log's start on; at least
    those that have something at or after `timestamp`."""
    page: Page | None = None
    inside: Sequence[Span | Marker] = ()
    for steps in count(1):
        offset = max(offset, partition.log_start)
        index = partition.find(offset)
        if offset >= bound or index == partition.row_count:
            return
        row = partition.row(index)
        if isinstance(row, Page) and row.timestamp_max >= timestamp:
            if row != page:
                page, inside = row, await _load_page(node, row)
                continue  # It may have been moved meanwhile.
            row = inside[max(bisect_right(inside, offset, key=_base_offset) - 1, 0)]
        if not isinstance(row, Page):
            yield row
        offset = row.next_offset
        if steps % STEPS_A_TURN == 0:
            await asyncio.sleep(0)


async def _newest(looking: _Looking, partition: Partition) -> _Place:
    """The first of the newest records that are left."""
    newest = partition.newest_timestamp(partition.log_start)
    if newest < 0:
        return NOWHERE
    place = await _search(looking, partition, newest, partition.end_offset)
    # Not found: it was before the log start in the first row, or never there. A newer one: a row
    # said too little of itself, and others may, too.
    return place if place.timestamp == newest else await _newest_of_all(looking, partition)


async def _newest_of_all(looking: _Looking, partition: Partition) -> _Place:
    """Looked for in the rows in the order of what they say of themselves, newest first, until no
    other can have a newer record; few are read unless many say what is not so."""
    ahead = await _candidates(partition)
    best = NOWHERE
    while ahead and (best is NOWHERE or ahead[0][:2] < (-best.timestamp, best.offset)):
        candidate = heappop(ahead)
        base, end = candidate.base_offset, candidate.next_offset
        # One row, unless it has been moved meanwhile: then only these offsets of others.
        timestamp = max(best.timestamp, 0)
        async with aclosing(_rows(looking.node, partition, base, end, timestamp)) as rows:
            async for row in rows:
                if _timestamp(row) < 0:
                    continue
                if candidate.is_page:
                    heappush(ahead, _candidate(row))
                    continue
                found = await _newest_of_row(looking, row, max(base, partition.log_start), end)
                best = min(best, found, key=_newest_first)
    return best


async def _candidates(partition: Partition) -> list[_Candidate]:
    """All rows from the log's start on, as a heap."""
    found: list[_Candidate] = []
    offset = partition.log_start
    while rows := partition.rows_from(offset, STEPS_A_TURN):
        found += [_candidate(row) for row in rows if _timestamp(row) >= 0]
        offset = rows[-1].next_offset
        await asyncio.sleep(0)
    heapify(found)
    return found


def _candidate(row: Row) -> _Candidate:
    return _Candidate(-_timestamp(row), row.base_offset, row.next_offset, isinstance(row, Page))


def _timestamp(row: Row) -> int:
    return row.timestamp if isinstance(row, Marker) else row.timestamp_max


async def _newest_of_row(looking: _Looking, row: Span | Marker, first: int, end: int) -> _Place:
    if isinstance(row, Marker):
        return _Place(row.base_offset, row.timestamp)
    return await looking.into(row, lambda batches: newest_record(batches, first, end))


def _newest_first(place: _Place) -> tuple[int, int]:
    return -place.timestamp, place.offset


def _first_with_timestamp(partition: Partition, timestamp: int) -> int:
    """An offset before which no record has such a timestamp; the end when none has."""
    index = partition.first_row_with_timestamp(timestamp)
    if index == partition.row_count:
        return partition.end_offset
    return partition.row(index).base_offset


def _base_offset(row: Span | Marker) -> int:
    return row.base_offset


async def _search_row(
    looking: _Looking, partition: Partition, row: Span | Marker, timestamp: int, bound: int
) -> _Place:
    if isinstance(row, Marker):
        found = row.timestamp >= timestamp
        return _Place(row.base_offset, row.timestamp) if found else NOWHERE
    if row.timestamp_max < timestamp:
        return NOWHERE
    log_start = partition.log_start
    return await looking.into(
        row, lambda batches: find_record(batches, timestamp, log_start=log_start, bound=bound)
    )


async def _load(node: Node, span: Span) -> Batches:
    length = node.log_client.machine.object_length(span.object_id)
    return await node.reader.load(span, object_length=length, recent=False)


async def _load_page(node: Node, page: Page) -> Sequence[Span | Marker]:
    return node.reader.cached_page(page) or (await node.reader.load_pages([page]))[0]


def find_record(batches: Batches, timestamp: int, *, log_start: int, bound: int) -> Sliced[_Place]:
    """The first record of a span at or after `timestamp` and within the offsets.

    One slice where a few records are all: of ten thousand partitions that is what there is to do,
    and behind each further slice there is a rest (`broker.calls.off_loop`).
    """
    view = batches.view()
    opened = False
    for number, at in enumerate(batch_positions(view)[0]):
        if number % BATCHES_A_SLICE == BATCHES_A_SLICE - 1:
            yield
        header = read_header(view, at)
        if header.last_offset < log_start or not _may_have(header, timestamp):
            continue
        try:
            for offsets, stamps in _offsets_and_timestamps(header, view, at):
                if opened:
                    yield
                opened = True
                if not stamps or max(stamps) < timestamp:
                    continue
                for offset, stamp in zip(offsets, stamps, strict=False):
                    if stamp >= timestamp and offset >= log_start:
                        return _Place(offset, stamp) if offset < bound else NOWHERE
        except ProtocolError:
            # Stored as it was sent: records that nobody can read. Their batch is the answer.
            newest = max(header.max_timestamp, header.base_timestamp)
            if newest >= timestamp:
                return _Place(max(header.base_offset, log_start), newest)
    return NOWHERE


def newest_record(batches: Batches, first: int, end: int) -> Sliced[_Place]:
    """The first of the newest records of a span that lie in [first, end); in slices as `find_record`."""
    view = batches.view()
    opened = False
    best = NOWHERE
    for number, at in enumerate(batch_positions(view)[0]):
        if number % BATCHES_A_SLICE == BATCHES_A_SLICE - 1:
            yield
        header = read_header(view, at)
        if header.base_offset >= end:
            break
        if header.last_offset < first or not _may_have(header, best.timestamp + 1):
            continue
        try:
            for offsets, stamps in _offsets_and_timestamps(header, view, at):
                if opened:
                    yield
                opened = True
                if not stamps or max(stamps) <= best.timestamp:
                    continue
                for offset, stamp in zip(offsets, stamps, strict=False):
                    if stamp > best.timestamp and first <= offset < end:
                        best = _Place(offset, stamp)
        except ProtocolError:
            # As above: the batch is what there is.
            newest = max(header.max_timestamp, header.base_timestamp)
            if newest > best.timestamp:
                best = _Place(max(header.base_offset, first), newest)
    return best


def _may_have(header: BatchHeader, timestamp: int) -> bool:
    """Whether a record may be at or after `timestamp`, as far as the header is to be believed."""
    # A delete horizon takes the base's place (KIP-534), and such batches the cleaner has made.
    believed = header.max_timestamp >= header.base_timestamp or header.attributes & (
        LOG_APPEND_TIME | DELETE_HORIZON
    )
    return not believed or header.max_timestamp >= timestamp


def _offsets_and_timestamps(
    header: BatchHeader, view: memoryview, at: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Of the records of the batch at `at`, some at a time. Raises ProtocolError, perhaps after some."""
    for heads in record_scan.heads(payload(view, at)[1], header.record_count):
        offsets = [header.base_offset + delta for delta in heads.offset_deltas]
        if header.is_log_append_time:
            yield offsets, [header.max_timestamp] * len(offsets)
        else:
            yield offsets, [header.base_timestamp + delta for delta in heads.timestamp_deltas]
