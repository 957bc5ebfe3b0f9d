"""One partition: its rows, its producers, its open and aborted transactions.

A row (span, marker or page) is 32 packed bytes, and 48 more for a page (`rows`); a window is at
most 114 bytes in a dict; an aborted range is 32 packed bytes (`aborted`).

Invariants: rows are dense: the next offset of each is the base offset of the one after it, and
that of the last is the end offset. The log start lies in the first row, but for rows wholly before
it that are still to be dropped. Open transactions are in the order of their first offsets, so the
first of them is where `last_stable` stands, or the log start when that is later; without any it is
the end offset. Aborted ranges are in the order of their markers; one is kept while its marker may be
read and a row in a chunk has offsets in it (or had, when such rows were last replaced).

Left out: what may be appended (`partitions`), and what jobs may change (`bounding`).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from coordinator.tables import aborted, rows
from coordinator.tables.aborted import AbortedRange
from coordinator.tables.objects import KIND_MASK, Moment, Objects
from coordinator.tables.rows import PageSums
from protocol.types import TopicId
from storage.formats.spans import MARKER_BYTES, Marker, ObjectId, ObjectKind, Page, Row, Span
from txn.producers import fence
from txn.transactions import Markers

__all__ = ["AbortedRange", "Partition", "Sums"]

_NONE_OPEN: Final[dict[int, int]] = {}
"""Shared by all partitions without open transactions, and never written."""


class Sums(NamedTuple):
    """A partition's share of the counts over all partitions."""

    row_count: int
    page_count: int
    paged_row_count: int
    data_bytes: int
    segment_bytes: int
    aborted_count: int


class Partition:
    """One partition. Its fields and rows are written by `apply` alone."""

    __slots__ = (
        "_aborted",
        "_objects",
        "_pages",
        "_rows",
        "clean_to",
        "data_bytes",
        "end_offset",
        "last_stable",
        "log_start",
        "open_transactions",
        "paged_row_count",
        "partition",
        "segment_bytes",
        "topic_id",
        "windows",
    )

    def __init__(self, topic_id: TopicId, partition: int, objects: Objects) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.log_start = 0
        """First offset that may be read; it may lie inside a row."""
        self.end_offset = 0
        """Next offset to be assigned: Kafka's high watermark and log end."""
        self.last_stable = 0
        """Where read_committed stops: the first offset of an open transaction, or the end."""
        self.clean_to = 0
        """Log compaction: all records below have been compared with all records below."""
        self.data_bytes = 0
        """Of all spans, those in pages and those before the log start included."""
        self.segment_bytes = 0
        """Those of them that lie in segments."""
        self.paged_row_count = 0
        """Spans and markers in pages: a sum over all of them, which every change asks for."""
        self.windows: dict[int, bytes] | None = None
        """Producer id to `txn.producers` window; None while there is none."""
        self.open_transactions = _NONE_OPEN
        """Producer id to the first offset of its open transaction, ascending. To be read only."""
        self._rows = bytearray()
        self._pages: bytearray | None = None
        self._aborted: bytearray | None = None
        self._objects = objects

    @property
    def row_count(self) -> int:
        """Spans, markers and pages; those in pages are not counted."""
        return len(self._rows) // rows.ROW_BYTES

    @property
    def page_count(self) -> int:
        return rows.page_count(self._pages)

    @property
    def aborted_count(self) -> int:
        return aborted.count(self._aborted)

    def sums(self) -> Sums:
        return Sums(
            row_count=self.row_count,
            page_count=self.page_count,
            paged_row_count=self.paged_row_count,
            data_bytes=self.data_bytes,
            segment_bytes=self.segment_bytes,
            aborted_count=self.aborted_count,
        )

    def find(self, offset: int) -> int:
        """Index of the row that contains `offset`, or else of the first one after it.

        `row_count` when there is none, as for the end offset.
        """
        count = self.row_count
        if count == 0 or offset >= self.end_offset:
            return count
        if offset >= rows.base_offset(self._rows, count - 1):
            return count - 1
        return max(bisect_right(rows.offsets(self._rows), offset) - 1, 0)

    def row(self, index: int) -> Row:
        """The span, marker or page at `index`, from 0, below `row_count`."""
        assert 0 <= index < self.row_count
        slot, number, start, length, base_offset, timestamp_max = rows.SPAN.unpack_from(
            self._rows, index * rows.ROW_BYTES
        )
        if length == 0:
            return self._marker(index)
        object_id = self._objects.id(slot, number)
        next_offset = self._next_offset(index)
        if self._pages and slot & KIND_MASK == ObjectKind.INDEX:
            sums = rows.page(self._pages, base_offset)
            return Page(
                object_id=object_id,
                start=start,
                length=length,
                base_offset=base_offset,
                next_offset=next_offset,
                rows=sums.rows,
                data_bytes=sums.data_bytes,
                timestamp_max=timestamp_max,
                digest=sums.digest,
            )
        return Span(object_id, start, length, base_offset, next_offset - base_offset, timestamp_max)

    def packed_rows(self, first: int, limit: int) -> Iterator[tuple[int, int, int, int, int, int]]:
        """At most `limit` rows from index `first` on, as they are packed: slot and number of the object
        (`object_id`), start, length (0 for markers), base offset, newest timestamp."""
        return rows.SPAN.iter_unpack(
            self._rows[first * rows.ROW_BYTES : (first + limit) * rows.ROW_BYTES]
        )

    def rows_after(self, first: int, object_ids: dict[int, ObjectId]) -> Iterator[Row]:
        """The rows from index `first` on, as `row`, for who wants many. No row may change meanwhile.

        `object_ids`: of objects met before, by number and slot.
        """
        limit = 8
        while first < self.row_count:
            some = list(self.packed_rows(first, limit))
            for index, (slot, number, start, length, base_offset, newest) in enumerate(some, first):
                if length == 0 or slot & KIND_MASK == ObjectKind.INDEX:
                    yield self.row(index)
                    continue
                name = number << 32 | slot
                object_id = object_ids.get(name)
                if object_id is None:
                    object_id = object_ids[name] = self._objects.id(slot, number)
                behind = index - first + 1
                end = some[behind][4] if behind < len(some) else self._next_offset(index)
                yield Span(object_id, start, length, base_offset, end - base_offset, newest)
            first += limit
            limit = 64

    def object_id(self, slot: int, number: int) -> ObjectId:
        """The object that a row names so."""
        return self._objects.id(slot, number)

    def rows_from(self, offset: int, limit: int) -> list[Row]:
        """At most `limit` rows in order, the first one containing `offset` or after it."""
        first = self.find(offset)
        return [self.row(index) for index in range(first, min(first + limit, self.row_count))]

    def rows_between(self, base_offset: int, next_offset: int) -> range | None:
        """Indexes of the rows that cover exactly these offsets, at least one; None: there are
        no such rows (any more)."""
        if not base_offset < next_offset <= self.end_offset or self.row_count == 0:
            return None
        first, end = self.find(base_offset), self.find(next_offset)
        if rows.base_offset(self._rows, first) != base_offset:
            return None
        if self._next_offset(end - 1) != next_offset:
            return None
        return range(first, end)

    def is_boundary(self, offset: int) -> bool:
        """A row begins there, or the log ends."""
        if offset == self.end_offset:
            return True
        index = self.find(offset)
        return index < self.row_count and rows.base_offset(self._rows, index) == offset

    def bytes_between(self, from_offset: int, to_offset: int, bytes_enough: int) -> int:
        """Bytes of the records in [from_offset, to_offset), for min_bytes; an estimate.

        Rows that lie in part in the range count in proportion. Counting ends as soon as
        `bytes_enough` are found, so it costs no more than that takes.
        """
        found = 0
        for index in range(self.find(from_offset), self.row_count):
            base_offset = rows.base_offset(self._rows, index)
            next_offset = self._next_offset(index)
            if base_offset >= to_offset or found >= bytes_enough:
                break
            records = min(next_offset, to_offset) - max(base_offset, from_offset)
            length = self.length(index) or MARKER_BYTES
            found += -(-length * records // (next_offset - base_offset))
        return found

    def length(self, index: int) -> int:
        """Bytes of the spans of the row at `index`: its own, or those in the page."""
        # Fetches ask for every span they count; most partitions have no page.
        if self._pages and rows.kind(self._rows, index) is ObjectKind.INDEX:
            return rows.page(self._pages, rows.base_offset(self._rows, index)).data_bytes
        return rows.length(self._rows, index)

    def timestamp(self, index: int) -> int:
        """The newest of the row at `index`; of a marker, its own."""
        return rows.timestamp(self._rows, index)

    def first_row_with_timestamp(self, timestamp: int) -> int:
        """Index of the first row whose newest timestamp is `timestamp` or later.

        `row_count` when there is none. Walks the column: about 30 ns a row.
        """
        for index, newest in enumerate(rows.timestamps(self._rows)):
            if newest >= timestamp:
                return index
        return self.row_count

    def newest_timestamp(self, from_offset: int = 0) -> int:
        """The newest timestamp, ms, of the rows from the one that holds the offset on, its own
        included; -1 when there is none."""
        return max(rows.timestamps(self._rows)[self.find(from_offset) :], default=-1)

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedRange]:
        """Ranges that have something in [from_offset, to_offset), by first offset."""
        if self._aborted is None:
            return []
        found = aborted.between(self._aborted, from_offset, to_offset)
        return sorted([each for _, each in found], key=_by_first_offset)

    # For `apply`.

    def append(self, row: tuple[int, int, int, int, int, int]) -> None:
        """A span at the end, which reaches to the end offset that is set next.

        `row`: writer's slot, chunk number, start, length, base offset, newest timestamp.
        """
        column = self._rows
        column += rows.SPAN.pack(*row)
        self.data_bytes += row[3]

    def append_alone(self, row: tuple[int, int, int, int, int, int], end_offset: int) -> None:
        """As `append`, and `reach` after it."""
        column = self._rows
        column += rows.SPAN.pack(*row)
        self.data_bytes += row[3]
        self.end_offset = end_offset
        opened = self.open_transactions
        self.last_stable = (
            max(next(iter(opened.values())), self.log_start) if opened else end_offset
        )

    def reach(self, offset: int) -> None:
        """The rows reach up to `offset` now."""
        self.end_offset = offset
        opened = self.open_transactions
        self.last_stable = max(next(iter(opened.values())), self.log_start) if opened else offset

    def open(self, producer_id: int, offset: int) -> None:
        """A transaction gets its first record of this partition, at `offset`, the newest."""
        assert producer_id not in self.open_transactions
        if not self.open_transactions:
            self.open_transactions = {producer_id: offset}
        else:
            self.open_transactions[producer_id] = offset

    def mark(self, markers: Markers, *, commit: bool, timestamp: int, time_ms: int) -> int:
        """The producer's open transaction ends with a marker; the offset of that."""
        producer_id, epoch = markers
        offset = self.end_offset
        first_offset = self.open_transactions.pop(producer_id)
        if not self.open_transactions:
            self.open_transactions = _NONE_OPEN
        word = epoch << 1 | commit
        self._rows += rows.MARKER.pack(producer_id, word, 0, offset, timestamp)
        self.reach(offset + 1)
        if not commit:
            if self._aborted is None:
                self._aborted = bytearray()
            self._aborted += aborted.pack(producer_id, first_offset, offset, self.last_stable)
        assert self.windows is not None  # It expires in no open transaction.
        window = self.windows[producer_id]
        self.windows[producer_id] = fence(window, epoch=epoch, updated_ms=time_ms)
        return offset

    def start_at(self, offset: int) -> None:
        """The log start moves there; rows before it wait for `drop_before_start`."""
        assert self.log_start < offset <= self.end_offset
        self.log_start = offset
        self.reach(self.end_offset)
        if self._aborted is not None:
            gone = aborted.ending_before(self._aborted, offset)
            del self._aborted[: gone * aborted.RANGE_BYTES]

    @property
    def ends_with_page(self) -> bool:
        return bool(self._rows) and rows.kind(self._rows, -1) is ObjectKind.INDEX

    @property
    def droppable(self) -> int:
        """Rows that lie wholly before the log start."""
        return self.find(self.log_start)

    def drop_before_start(self, count: int, moment: Moment) -> int:
        """Let go of at most `count` rows before the log start, up to a page; how many."""
        indexes = range(self._first_page(range(min(count, self.droppable))))
        self._let_go(indexes, moment)
        del self._rows[: len(indexes) * rows.ROW_BYTES]
        return len(indexes)

    def drop_rows(self, count: int, moment: Moment) -> int:
        """Let go of at most `count` rows, newest first, up to a page; how many."""
        first = self.row_count
        while count > 0 and first > 0 and rows.kind(self._rows, first - 1) is not ObjectKind.INDEX:
            first -= 1
            count -= 1
        indexes = range(first, self.row_count)
        self._let_go(indexes, moment)
        if 0 < first < self.row_count:
            # A page that is the last row now must say where it ends, or nobody could recall it.
            self.end_offset = rows.base_offset(self._rows, first)
        del self._rows[first * rows.ROW_BYTES :]
        return len(indexes)

    def move(self, indexes: range, spans: Sequence[Span], moment: Moment) -> None:
        """These spans of a segment take the place of rows, of which none is a page.

        Their references are counted already.
        """
        base_offset = rows.base_offset(self._rows, indexes[0])
        next_offset = self._next_offset(indexes[-1])
        self._let_go(indexes, moment)
        self._put(indexes, spans)
        length = sum([span.length for span in spans])
        self.data_bytes += length
        self.segment_bytes += length
        self._drop_aborted_between(base_offset, next_offset)

    def spill(self, indexes: range, page: Page) -> None:
        """A page takes the place of rows, of which none is one. The reference to its object is
        counted already, and those to theirs stay."""
        segment_bytes = sum(
            [
                rows.length(self._rows, index)
                for index in indexes
                if rows.kind(self._rows, index) is ObjectKind.SEGMENT
            ]
        )
        if self._pages is None:
            self._pages = bytearray()
        sums = PageSums(page.rows, page.data_bytes, segment_bytes, page.digest)
        rows.add_page(self._pages, page.base_offset, sums)
        self.paged_row_count += page.rows
        self._put(indexes, [page])

    def recall(self, index: int, spans: Sequence[Span | Marker], moment: Moment) -> None:
        """The rows of the page at `index` take its place."""
        slot, number, *_ = rows.SPAN.unpack_from(self._rows, index * rows.ROW_BYTES)
        self._drop_page(index)
        self._put(range(index, index + 1), spans)
        self._objects.release(slot, number, moment)

    def lose(self, indexes: range, span: Span, moment: Moment) -> None:
        """A span of a segment that has no records takes the place of rows, pages among them. Its
        reference is counted already. Those that rows in the pages have stay: nobody knows them."""
        next_offset = self._next_offset(indexes[-1])
        for index in indexes:
            if rows.kind(self._rows, index) is not ObjectKind.INDEX:
                self._let_go(range(index, index + 1), moment)
                continue
            slot, number, *_ = rows.SPAN.unpack_from(self._rows, index * rows.ROW_BYTES)
            sums = self._drop_page(index)
            self.data_bytes -= sums.data_bytes
            self.segment_bytes -= sums.segment_bytes
            self._objects.release(slot, number, moment)
        self._put(indexes, [span])
        self.data_bytes += span.length
        self.segment_bytes += span.length
        self._drop_aborted_between(span.base_offset, next_offset)
        # Nothing lies below the first offset, so it is clean: the partition may have holes now.
        self.clean_to = max(self.clean_to, min(1, self.last_stable))

    def drop_windows(self, count: int) -> int:
        """Forget at most `count` producers, newest first; how many there were."""
        windows = self.windows or {}
        dropped = min(count, len(windows))
        for _ in range(dropped):
            windows.popitem()
        return dropped

    def drop_aborted(self, count: int) -> int:
        """Forget at most `count` aborted ranges, newest first; how many there were."""
        dropped = min(count, self.aborted_count)
        if self._aborted is not None and dropped > 0:
            del self._aborted[-dropped * aborted.RANGE_BYTES :]
        return dropped

    @property
    def is_empty(self) -> bool:
        """No rows, no windows and no aborted ranges (left)."""
        return not self._rows and not self.windows and not self._aborted

    def _put(self, indexes: range, new: Sequence[Row]) -> None:
        """Rows into the column, in the place of those at `indexes`."""
        packed = b"".join([self._packed(row) for row in new])
        self._rows[indexes.start * rows.ROW_BYTES : indexes.stop * rows.ROW_BYTES] = packed

    def _packed(self, row: Row) -> bytes:
        if isinstance(row, Marker):
            offset, producer_id, epoch, commit, timestamp = row
            return rows.MARKER.pack(producer_id, epoch << 1 | commit, 0, offset, timestamp)
        incarnation, number, kind = row.object_id
        slot = self._objects.slot(incarnation, kind)
        place = (slot, number, row.start, row.length)
        return rows.SPAN.pack(*place, row.base_offset, row.timestamp_max)

    def _let_go(self, indexes: range, moment: Moment) -> None:
        """Spans and markers that go: of their objects, and from the sums of bytes."""
        column = self._rows[indexes.start * rows.ROW_BYTES : indexes.stop * rows.ROW_BYTES]
        for slot, number, _, length, *_ in rows.SPAN.iter_unpack(column):
            if length > 0:
                kind = slot & KIND_MASK
                assert kind != ObjectKind.INDEX
                self._objects.release(slot, number, moment)
                self.data_bytes -= length
                if kind == ObjectKind.SEGMENT:
                    self.segment_bytes -= length

    def _drop_aborted_between(self, base_offset: int, next_offset: int) -> None:
        """Forget the ranges with something in these offsets, in which no row is in a chunk now
        (in segments there are no aborted batches)."""
        if not self._aborted:
            return
        found = aborted.between(self._aborted, base_offset, next_offset)
        if not found:
            return
        raw_to = self._raw_before(base_offset, min([each.first_offset for _, each in found]))
        raw_from = self._raw_behind(next_offset, max([each.last_offset for _, each in found]))
        gone = [
            index
            for index, each in found
            if each.first_offset >= raw_to and each.last_offset < raw_from
        ]
        aborted.remove(self._aborted, gone)

    def _raw_before(self, base_offset: int, least: int) -> int:
        """Where the last raw row before `base_offset` ends; `least` when that is not above it."""
        for index in range(self.find(base_offset) - 1, -1, -1):
            next_offset = self._next_offset(index)
            if next_offset <= least:
                break
            if self._is_raw(index):
                return next_offset
        return least

    def _raw_behind(self, next_offset: int, greatest: int) -> int:
        """Where the first raw row from `next_offset` on begins, if not above `greatest`; else
        the offset after that."""
        for index in range(self.find(next_offset), self.row_count):
            base_offset = rows.base_offset(self._rows, index)
            if base_offset > greatest:
                break
            if self._is_raw(index):
                return base_offset
        return greatest + 1

    def _is_raw(self, index: int) -> bool:
        """The row is a span in a chunk, or a page with such spans."""
        kind = rows.kind(self._rows, index)
        if kind is ObjectKind.INDEX:
            sums = rows.page(self._pages, rows.base_offset(self._rows, index))
            return sums.data_bytes > sums.segment_bytes
        return kind is ObjectKind.CHUNK

    def _drop_page(self, index: int) -> PageSums:
        """The page at `index` leaves the column of pages, and what is counted of its rows."""
        assert rows.kind(self._rows, index) is ObjectKind.INDEX
        assert self._pages is not None
        base_offset = rows.base_offset(self._rows, index)
        sums = rows.page(self._pages, base_offset)
        self.paged_row_count -= sums.rows
        rows.remove_page(self._pages, base_offset)
        if not self._pages:
            self._pages = None
        return sums

    def _first_page(self, indexes: range) -> int:
        """The first of these rows that is a page; the end of the range when none is."""
        for index in indexes:
            if rows.kind(self._rows, index) is ObjectKind.INDEX:
                return index
        return indexes.stop

    def _marker(self, index: int) -> Marker:
        producer_id, word, _, base_offset, timestamp = rows.MARKER.unpack_from(
            self._rows, index * rows.ROW_BYTES
        )
        return Marker(base_offset, producer_id, word >> 1, bool(word & 1), timestamp)

    def _next_offset(self, index: int) -> int:
        if index + 1 == self.row_count:
            return self.end_offset
        return rows.base_offset(self._rows, index + 1)


def _by_first_offset(aborted: AbortedRange) -> int:
    return aborted.first_offset
