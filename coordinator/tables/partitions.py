"""The table of partitions, and what a batch has to pass before it gets an offset.

A partition is one slotted object that keeps its identity, so it may be held on to (after the
deletion of its topic it gets no records any more, and the purge empties it). Partitions that were
never written cost a pointer.

Invariants: an item of a chunk is appended, with all that follows from it, or it changes nothing;
the counts are those of all partitions.

Left out: rows of one partition (`partition`), and the ends of transactions (`transacting`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator.commands.entries import ChunkSpan, ItemResult
from coordinator.tables.objects import Moment, Objects
from coordinator.tables.partition import AbortedRange, Partition, Sums
from coordinator.tables.rows import ROW_BYTES
from coordinator.tables.transactions import TransactionRow, Transactions
from protocol.errors import ErrorCode
from protocol.types import TopicId
from storage.formats.spans import Item
from txn.producers import FRESH, Duplicate, Fresh, advance, check_sequence, continued, updated_ms
from txn.transactions import NO_TRANSACTION, OF_EPOCH, Markers, TransactionMetadata, begin, check

__all__ = ["PURGE_ROWS_MAX", "ROW_BYTES", "AbortedRange", "Partition", "Partitions"]

PURGE_ROWS_MAX = 1000
"""Partitions, rows, windows and aborted ranges that one PurgePartitions drops; the rest waits for
the next."""
ROWS_MAX = 8_000_000
"""In memory, of all partitions (P15): over it nothing is appended until rows have gone or moved."""
_NEW = tuple.__new__
"""Makes a named tuple of its fields, in half the time that its class takes."""
_DONE = ErrorCode.NONE
WINDOWS_MAX = 4_000_000
"""Of all partitions: over it no producer is new in a partition."""


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


class Stamps(NamedTuple):
    """The writer's slot, the chunk's number, and the times of its commit."""

    slot: int
    """Of the writer in the table of objects."""
    number: int
    """Of the chunk."""
    clock_ms: int
    """Wall clock of the writer."""
    time_ms: int
    """The machine's time."""


class Partitions:
    """Partitions of the topics that exist, and what is left of deleted ones."""

    def __init__(self, objects: Objects, transactions: Transactions) -> None:
        self._objects = objects
        self._transactions = transactions
        self._topics: dict[TopicId, _Rows] = {}
        self._deleted: dict[TopicId, _Rows] = {}
        self._count = 0
        self.row_count = 0
        """Rows in memory of all partitions, pages included, those in pages not."""
        self.page_count = 0
        self.paged_row_count = 0
        """Rows in pages of all partitions."""
        self.data_bytes = 0
        """Of the spans of all partitions, those in pages included."""
        self.segment_bytes = 0
        """Those of them that lie in segments."""
        self.window_count = 0
        """Windows of all partitions."""
        self.aborted_count = 0
        """Aborted ranges of all partitions."""

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
            row = rows.partitions[partition] = Partition(topic_id, partition, self._objects)
        return row

    def find(self, topic_id: TopicId, partition: int) -> Partition | None:
        """Also of a deleted topic; None when there is no such partition, or it got no records."""
        rows = self._topics.get(topic_id) or self._deleted.get(topic_id)
        if rows is None or not 0 <= partition < len(rows.partitions):
            return None
        row = rows.partitions[partition]
        return row if _is_written(row) else None

    def written(self) -> Iterator[Partition]:
        """Partitions of topics that exist, and that have got records; in a fixed order."""
        for rows in self._topics.values():
            if rows.written > 0:
                yield from (row for row in rows.partitions if row is not None and row.end_offset)

    def with_windows(self) -> Iterator[Partition]:
        """Partitions that know producers, for whoever proposes ExpireProducers."""
        for rows in self._topics.values():
            if rows.written > 0:
                yield from (row for row in rows.partitions if row is not None and row.windows)

    def deleted(self) -> Iterator[DeletedTopic]:
        """Deleted topics with rows left, for whoever proposes PurgePartitions; oldest first."""
        for topic_id, rows in self._deleted.items():
            yield DeletedTopic(topic_id, len(rows.partitions))

    def first_left(self, topic_id: TopicId) -> int | None:
        """The first partition of a deleted topic of which something can be purged.

        None: all is gone, or pages have to be recalled before anything else can go.
        """
        for row in self.left(topic_id):
            if not row.ends_with_page:
                return row.partition
        return None

    def to_recall(self) -> Iterator[Partition]:
        """Partitions of deleted topics whose last row is a page: that must be recalled before more
        of them can be purged."""
        for topic_id in self._deleted:
            for row in self.left(topic_id):
                if row.ends_with_page:
                    yield row

    def left(self, topic_id: TopicId) -> Iterator[Partition]:
        """Partitions of a deleted topic that have something left."""
        rows = self._deleted.get(topic_id)
        for row in rows.partitions if rows is not None else ():
            if row is not None and row.end_offset > 0:
                yield row

    def add_topic(self, topic_id: TopicId, count: int) -> None:
        assert topic_id not in self._topics
        self._topics[topic_id] = _Rows(count)
        self._count += count

    def widen_topic(self, topic_id: TopicId, count: int) -> None:
        """The topic has so many partitions now, more than before."""
        rows = self._topics[topic_id]
        added = count - len(rows.partitions)
        assert added > 0
        rows.partitions.extend([None] * added)
        self._count += added

    def delete_topic(self, topic_id: TopicId) -> None:
        """Stops reads and writes; rows that hold something wait for `purge`."""
        rows = self._topics.pop(topic_id)
        if rows.written > 0:
            self._deleted[topic_id] = rows
        else:
            self._count -= len(rows.partitions)

    def purge(self, topic_id: TopicId, *, first: int, count: int, moment: Moment) -> None:
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
            before = row.sums()
            spans = row.drop_rows(budget - 1, moment)
            windows = row.drop_windows(budget - 1 - spans)
            aborted = row.drop_aborted(budget - 1 - spans - windows)
            self.window_count -= windows
            self.changed(row, before)
            budget -= 1 + spans + windows + aborted
            if row.is_empty:
                rows.partitions[index] = None
                rows.written -= 1
        if rows.written == 0:
            del self._deleted[topic_id]
            self._count -= len(rows.partitions)

    def changed(self, partition: Partition, before: Sums) -> None:
        """For `apply`: rows of the partition were changed by a job or a trim."""
        after = partition.sums()
        self.row_count += after.row_count - before.row_count
        self.page_count += after.page_count - before.page_count
        self.paged_row_count += after.paged_row_count - before.paged_row_count
        self.data_bytes += after.data_bytes - before.data_bytes
        self.segment_bytes += after.segment_bytes - before.segment_bytes
        self.aborted_count += after.aborted_count - before.aborted_count

    def mark(
        self, partition: Partition, markers: Markers, *, commit: bool, timestamp: int, time_ms: int
    ) -> int | None:
        """The producer's transaction ends; the offset of its marker.

        None: it has no records there, or the topic is deleted.
        """
        if (
            markers.producer_id not in partition.open_transactions
            or partition.topic_id not in self._topics
        ):
            return None
        self.row_count += 1
        self.aborted_count += not commit
        return partition.mark(markers, commit=commit, timestamp=timestamp, time_ms=time_ms)

    def expire_producers(
        self, partition: Partition, producer_ids: tuple[int, ...], *, old_ms: int
    ) -> None:
        """Forget those that have written nothing since the machine's time `old_ms`."""
        windows = partition.windows
        if windows is None:
            return
        for producer_id in producer_ids:
            window = windows.get(producer_id)
            if (
                window is not None
                and updated_ms(window) <= old_ms
                and producer_id not in partition.open_transactions
            ):
                del windows[producer_id]
                self.window_count -= 1
        if not windows:
            partition.windows = None

    def commit(self, chunk: Sequence[ChunkSpan], stamps: Stamps) -> tuple[list[ItemResult], int]:
        """Append the items of a chunk that may be; a result for each, and how many spans it made."""
        results: list[ItemResult] = []
        spans = 0
        for span in chunk:
            if len(span.items) == 1 and (result := self._go_on(span, stamps)) is not None:
                results.append(result)
                spans += 1
            else:
                spans += self._commit(span, stamps, results)
        return results, spans

    def _commit(self, span: ChunkSpan, stamps: Stamps, results: list[ItemResult]) -> int:
        """Append the items of a span that may be; add one result for each; the spans made.

        Neighbours that are accepted make one span; what is left out between two (a refused or
        repeated item, skipped bytes) divides it.
        """
        partition = self.get(span.topic_id, span.partition)
        if partition is None:
            results.extend([_UNKNOWN] * len(span.items))
            return 0
        if self.row_count >= ROWS_MAX:
            full = ItemResult(ErrorCode.NOT_ENOUGH_REPLICAS, -1, partition.log_start)
            results.extend([full] * len(span.items))
            return 0
        slot, number, _, _ = stamps
        bytes_before = partition.data_bytes
        windows = len(partition.windows or ())
        spans = 0
        start = end = span.start  # Of the span in the making; empty when equal.
        base_offset = offset = partition.end_offset
        newest = -1
        at = span.start
        for item in span.items:
            skip, length, records, timestamp_max, producer_id, _, _, _ = item
            at += skip
            if producer_id >= 0 and (
                refusal := self._write_window(partition, item, offset, stamps)
            ):
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
            partition.reach(offset)
        self.row_count += spans
        self.data_bytes += partition.data_bytes - bytes_before
        self.window_count += len(partition.windows or ()) - windows
        return spans

    def _go_on(self, span: ChunkSpan, stamps: Stamps) -> ItemResult | None:
        """Append a span of one item that has nothing special, which nearly all are; what becomes of it
        is what `_commit` would do. None: it is not of that kind, and nothing was done."""
        topic_id, index, start, (item,) = span
        found = self._topics.get(topic_id)
        if found is None or not 0 <= index < len(found.partitions) or self.row_count >= ROWS_MAX:
            return None
        partition = found.partitions[index]
        if partition is None or (offset := partition.end_offset) == 0:
            return None
        slot, number, _, time_ms = stamps
        skip, length, records, timestamp_max, producer_id, epoch, sequence, instance = item
        if producer_id >= 0:
            windows = partition.windows
            if windows is None or instance != NO_TRANSACTION or partition.open_transactions:
                return None
            if (window := windows.get(producer_id)) is None:
                return None
            after = continued(
                window,
                epoch=epoch,
                first_sequence=sequence,
                records=records,
                base_offset=offset,
                timestamp_max=timestamp_max,
                updated_ms=time_ms,
            )
            if after is None:
                return None
            windows[producer_id] = after
        row = (slot, number, start + skip, length, offset, timestamp_max)
        partition.append_alone(row, offset + records)
        self.row_count += 1
        self.data_bytes += length
        return _NEW(ItemResult, (_DONE, offset, partition.log_start, False, -1))

    def _write_window(
        self, partition: Partition, item: Item, offset: int, stamps: Stamps
    ) -> ItemResult | None:
        """Note a producer's batch at `offset` when it is the next and may be; else its result."""
        _, _, records, timestamp_max, producer_id, epoch, sequence, instance = item
        if epoch < 0 or sequence < 0:  # A client may send it; Kafka's clients do not.
            return ItemResult(ErrorCode.INVALID_RECORD, -1, partition.log_start)
        windows = partition.windows
        if windows is None:
            windows = partition.windows = {}
        window = windows.get(producer_id)
        if window is None and self.window_count >= WINDOWS_MAX:
            return ItemResult(ErrorCode.NOT_ENOUGH_REPLICAS, -1, partition.log_start)
        verdict = check_sequence(window, epoch=epoch, first_sequence=sequence, records=records)
        if isinstance(verdict, Duplicate):
            return ItemResult(
                error=ErrorCode.NONE,
                base_offset=verdict.base_offset,
                log_start=partition.log_start,
                duplicate=True,
                timestamp_max=verdict.timestamp_max,
            )
        if instance != NO_TRANSACTION:
            # An epoch has one transaction (KIP-890), so its first batch here is number 0 also
            # where nothing is known of the producer; any other has overtaken it.
            if window is None and instance == OF_EPOCH and sequence != 0:
                verdict = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if verdict is not ErrorCode.INVALID_PRODUCER_EPOCH:
                verdict = self._enter(partition, item, verdict, offset, stamps)
        elif verdict is FRESH and producer_id in partition.open_transactions:
            verdict = ErrorCode.INVALID_TXN_STATE
        if not isinstance(verdict, Fresh):
            return ItemResult(verdict, -1, partition.log_start)
        windows[producer_id] = advance(
            window,
            epoch=epoch,
            first_sequence=sequence,
            records=records,
            base_offset=offset,
            timestamp_max=timestamp_max,
            updated_ms=stamps.time_ms,
        )
        return None

    def _enter(
        self,
        partition: Partition,
        item: Item,
        verdict: Fresh | ErrorCode,
        offset: int,
        stamps: Stamps,
    ) -> Fresh | ErrorCode:
        """Let a transactional batch into its transaction; or why it is refused.

        The order of the checks is Kafka's: the transaction before the sequence.
        """
        producer_id, epoch, instance = item.producer_id, item.producer_epoch, item.instance
        row = self._transactions.by_producer(producer_id)
        if row is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        txn_metadata = row.txn_metadata
        is_open = producer_id in partition.open_transactions
        if instance != OF_EPOCH:
            error = check(txn_metadata, producer_id=producer_id, epoch=epoch, instance=instance)
            if error != ErrorCode.NONE:
                return error
            place = (partition.topic_id, partition.partition)
            if not is_open and place not in row.partitions:
                return ErrorCode.TRANSACTION_ABORTABLE
        else:
            begun = begin(txn_metadata, producer_id=producer_id, epoch=epoch)
            if isinstance(begun, ErrorCode):
                return begun
            if verdict is not FRESH:
                return verdict
            changes = begun is not txn_metadata or not is_open
            if changes and (error := self._join(row, begun, partition, stamps)):
                return error
        if verdict is FRESH and not is_open:
            partition.open(producer_id, offset)
        return verdict

    def _join(
        self, row: TransactionRow, begun: TransactionMetadata, partition: Partition, stamps: Stamps
    ) -> ErrorCode:
        """Begin the transaction of a TV2 client if need be, and let the partition take part."""
        place = (partition.topic_id, partition.partition)
        if (refused := self._transactions.validate_room(row, (place,), ())) is not None:
            return refused.error
        if begun is not row.txn_metadata:
            self._transactions.transition_to(
                row, begun, clock_ms=stamps.clock_ms, time_ms=stamps.time_ms
            )
        self._transactions.join(row, [partition], ())
        return ErrorCode.NONE


_UNKNOWN = ItemResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def _is_written(row: Partition | None) -> bool:
    return row is not None and row.end_offset > 0
