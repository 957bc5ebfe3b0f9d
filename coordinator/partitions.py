"""The table of partitions: offsets, spans, and the windows of idempotent producers.

A span is 32 packed bytes in its partition's `bytearray`, a window at most 106 in its dict; a
partition is one slotted object that keeps its identity, so it may be held on to (after the
deletion of its topic it gets no records any more, and the purge empties it). Partitions that were
never written cost a pointer.

Invariants: spans are dense: the next offset of each is the base offset of the one after it, and
that of the last is the end offset; the first one holds the log start or begins there.

Left out: last stable offset and aborted ranges (they come with transactions), retention.
"""

from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from coordinator.chunks import Chunks
from coordinator.commands import ChunkSpan, ItemResult
from protocol.errors import ErrorCode
from protocol.types import Position, TopicId
from storage.spans import Item, Span
from txn.producers import Duplicate, Fresh, advance, judge

PURGE_ROWS_MAX = 1000
"""Partitions and spans that one PurgePartitions drops; the rest waits for the next."""

# Writer's slot, chunk number, start, length; base offset; newest timestamp.
_SPAN = Struct("=IIIIqq")
SPAN_BYTES = _SPAN.size
assert SPAN_BYTES <= 32

# The same as eight-byte words, to search in columns without unpacking.
_WORDS = SPAN_BYTES // 8
_BASE_OFFSET_WORD = 2
_TIMESTAMP_WORD = 3


class Partition:
    """One partition. Its fields and rows are written by `apply` alone."""

    __slots__ = ("_chunks", "_rows", "end_offset", "log_start", "partition", "topic_id", "windows")

    def __init__(self, topic_id: TopicId, partition: int, chunks: Chunks) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.log_start = 0
        self.end_offset = 0
        """Next offset to be assigned: Kafka's high watermark and log end."""
        self.windows: dict[int, bytes] | None = None
        """Producer id to `txn.producers` window; None while there is none."""
        self._rows = bytearray()
        self._chunks = chunks

    @property
    def last_stable(self) -> int:
        """Where read_committed stops."""
        return self.end_offset

    @property
    def span_count(self) -> int:
        return len(self._rows) // SPAN_BYTES

    def find(self, offset: int) -> int:
        """Index of the span that contains `offset`, or else of the first one after it.

        `span_count` when there is none, as for the end offset.
        """
        count = self.span_count
        if count == 0 or offset >= self.end_offset:
            return count
        if offset >= self._base_offset(count - 1):
            return count - 1
        return max(bisect_right(self._column(_BASE_OFFSET_WORD), offset) - 1, 0)

    def span(self, index: int) -> Span:
        """The span at `index`, from 0, below `span_count`."""
        assert 0 <= index < self.span_count
        slot, number, start, length, base_offset, timestamp_max = _SPAN.unpack_from(
            self._rows, index * SPAN_BYTES
        )
        chunk = self._chunks.id(slot, number)
        records = self._next_offset(index) - base_offset
        return Span(chunk, start, length, base_offset, records, timestamp_max)

    def spans_from(self, offset: int, limit: int) -> list[Span]:
        """At most `limit` spans in order, the first one containing `offset` or after it."""
        first = self.find(offset)
        return [self.span(index) for index in range(first, min(first + limit, self.span_count))]

    def bytes_between(self, from_offset: int, to_offset: int, bytes_enough: int) -> int:
        """Bytes of the records in [from_offset, to_offset), for min_bytes; an estimate.

        Spans that lie in part in the range count in proportion. Counting ends as soon as
        `bytes_enough` are found, so it costs no more than that takes.
        """
        found = 0
        for index in range(self.find(from_offset), self.span_count):
            base_offset = self._base_offset(index)
            next_offset = self._next_offset(index)
            if base_offset >= to_offset or found >= bytes_enough:
                break
            records = min(next_offset, to_offset) - max(base_offset, from_offset)
            length: int = _SPAN.unpack_from(self._rows, index * SPAN_BYTES)[3]
            found += -(-length * records // (next_offset - base_offset))
        return found

    def first_span_with_timestamp(self, timestamp: int) -> int:
        """Index of the first span whose newest timestamp is `timestamp` or later.

        `span_count` when there is none. Walks the column: about 30 ns a span.
        """
        for index, newest in enumerate(self._column(_TIMESTAMP_WORD)):
            if newest >= timestamp:
                return index
        return self.span_count

    def newest_timestamp(self) -> int:
        """The newest timestamp of all spans, ms; -1 when there is none."""
        return max(self._column(_TIMESTAMP_WORD), default=-1)

    def append(self, row: tuple[int, int, int, int, int, int]) -> None:
        """For `apply`: a span at the end, which reaches to the end offset that is set next.

        `row`: writer's slot, chunk number, start, length, base offset, newest timestamp.
        """
        rows = self._rows
        rows += _SPAN.pack(*row)

    def drop_spans(self, count: int, position: Position) -> int:
        """For `apply`: let go of at most `count` spans, newest first; how many there were."""
        first = max(self.span_count - count, 0)
        dropped = self.span_count - first
        for slot, number, *_ in _SPAN.iter_unpack(self._rows[first * SPAN_BYTES :]):
            self._chunks.release(slot, number, position)
        del self._rows[first * SPAN_BYTES :]
        return dropped

    def drop_windows(self, count: int) -> int:
        """For `apply`: forget at most `count` producers, newest first; how many there were."""
        windows = self.windows or {}
        dropped = min(count, len(windows))
        for _ in range(dropped):
            windows.popitem()
        return dropped

    @property
    def is_empty(self) -> bool:
        """No spans and no windows (left)."""
        return not self._rows and not self.windows

    def _base_offset(self, index: int) -> int:
        base_offset: int = _SPAN.unpack_from(self._rows, index * SPAN_BYTES)[4]
        return base_offset

    def _next_offset(self, index: int) -> int:
        return self.end_offset if index + 1 == self.span_count else self._base_offset(index + 1)

    def _column(self, word: int) -> memoryview:
        """One column of the spans. Not to be kept: rows cannot grow while it exists."""
        return memoryview(self._rows).cast("q")[word::_WORDS]


class DeletedTopic(NamedTuple):
    """A topic that was deleted and has rows to be purged."""

    topic_id: TopicId
    partition_count: int


class _Rows:
    """The partitions of one topic; None: never asked for."""

    __slots__ = ("partitions", "written")

    def __init__(self, count: int) -> None:
        self.partitions: list[Partition | None] = [None] * count
        self.written = 0
        """How many have got records. Only these count: the others may differ among replicas."""


class Partitions:
    """Partitions of the topics that exist, and what is left of deleted ones."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._topics: dict[TopicId, _Rows] = {}
        self._deleted: dict[TopicId, _Rows] = {}
        self._count = 0
        self.span_count = 0
        """Spans of all partitions."""
        self.window_count = 0
        """Windows of all partitions."""

    def __len__(self) -> int:
        """Partitions, those of deleted topics that have rows left included."""
        return self._count

    def get(self, topic_id: TopicId, partition: int) -> Partition | None:
        """None when the topic does not exist (any more) or has no such partition."""
        rows = self._topics.get(topic_id)
        if rows is None or not 0 <= partition < len(rows.partitions):
            return None
        row = rows.partitions[partition]
        if row is None:
            row = rows.partitions[partition] = Partition(topic_id, partition, self._chunks)
        return row

    def deleted(self) -> Iterator[DeletedTopic]:
        """Deleted topics with rows left, for whoever proposes PurgePartitions; oldest first."""
        for topic_id, rows in self._deleted.items():
            yield DeletedTopic(topic_id, len(rows.partitions))

    def first_left(self, topic_id: TopicId) -> int | None:
        """The first partition of a deleted topic with rows left; None when all are gone."""
        if (rows := self._deleted.get(topic_id)) is None:
            return None
        return next(index for index, row in enumerate(rows.partitions) if _is_written(row))

    def add_topic(self, topic_id: TopicId, count: int) -> None:
        assert topic_id not in self._topics
        self._topics[topic_id] = _Rows(count)
        self._count += count

    def delete_topic(self, topic_id: TopicId) -> None:
        """Stops reads and writes; rows that hold something wait for `purge`."""
        rows = self._topics.pop(topic_id)
        if rows.written > 0:
            self._deleted[topic_id] = rows
        else:
            self._count -= len(rows.partitions)

    def purge(self, topic_id: TopicId, *, first: int, count: int, position: Position) -> None:
        """Drop rows of partitions [first, first + count), at most PURGE_ROWS_MAX of them."""
        if (rows := self._deleted.get(topic_id)) is None:
            return
        budget = PURGE_ROWS_MAX
        for index in range(first, min(first + count, len(rows.partitions))):
            row = rows.partitions[index]
            if row is None or not _is_written(row):
                continue
            if budget <= 0:
                return
            spans = row.drop_spans(budget - 1, position)
            windows = row.drop_windows(budget - 1 - spans)
            self.span_count -= spans
            self.window_count -= windows
            budget -= 1 + spans + windows
            if row.is_empty:
                rows.partitions[index] = None
                rows.written -= 1
        if rows.written == 0:
            del self._deleted[topic_id]
            self._count -= len(rows.partitions)

    def commit(self, span: ChunkSpan, *, slot: int, number: int, results: list[ItemResult]) -> int:
        """Append the items of a span that may be; add one result for each; the spans made.

        Neighbours that are accepted make one span; what is left out between two (a refused or
        repeated item, skipped bytes) divides it.
        """
        partition = self.get(span.topic_id, span.partition)
        if partition is None:
            results.extend([_UNKNOWN] * len(span.items))
            return 0
        windows = len(partition.windows or ())
        spans = 0
        start = end = span.start  # Of the span in the making; empty when equal.
        base_offset = offset = partition.end_offset
        newest = -1
        at = span.start
        for item in span.items:
            skip, length, records, timestamp_max, producer_id, *_ = item
            at += skip
            if producer_id >= 0 and (refusal := _write_window(partition, item, offset)):
                results.append(refusal)
                at += length
                continue
            if at != end and end > start:
                partition.append((slot, number, start, end - start, base_offset, newest))
                spans += 1
                start = end
            if start == end:
                start, base_offset, newest = at, offset, timestamp_max
            elif timestamp_max > newest:
                newest = timestamp_max
            results.append(ItemResult(ErrorCode.NONE, offset, partition.log_start))
            at += length
            end = at
            offset += records
        if end > start:
            partition.append((slot, number, start, end - start, base_offset, newest))
            spans += 1
            if partition.end_offset == 0:
                self._topics[span.topic_id].written += 1
            partition.end_offset = offset
        self.span_count += spans
        self.window_count += len(partition.windows or ()) - windows
        return spans


_UNKNOWN = ItemResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def _is_written(row: Partition | None) -> bool:
    return row is not None and row.end_offset > 0


def _write_window(partition: Partition, item: Item, offset: int) -> ItemResult | None:
    """Note an idempotent batch at `offset` when it is the producer's next; else its result."""
    _, _, records, timestamp_max, producer_id, epoch, sequence, _ = item
    if epoch < 0 or sequence < 0:  # A client may send it; Kafka's clients do not.
        return ItemResult(ErrorCode.INVALID_RECORD, -1, partition.log_start)
    windows = partition.windows
    if windows is None:
        windows = partition.windows = {}
    window = windows.get(producer_id)
    verdict = judge(window, epoch=epoch, first_sequence=sequence, records=records)
    match verdict:
        case Fresh():
            windows[producer_id] = advance(
                window,
                epoch=epoch,
                first_sequence=sequence,
                records=records,
                base_offset=offset,
                timestamp_max=timestamp_max,
            )
            return None
        case Duplicate(base_offset, timestamp):
            return ItemResult(
                error=ErrorCode.NONE,
                base_offset=base_offset,
                log_start=partition.log_start,
                duplicate=True,
                timestamp_max=timestamp,
            )
        case _:
            return ItemResult(verdict, -1, partition.log_start)
