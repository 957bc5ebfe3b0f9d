"""One partition: its spans and markers, its producers, its open and aborted transactions.

A span is 32 packed bytes in a `bytearray`, and so is a marker, whose length is 0; a window is at
most 114 bytes in a dict; an aborted range is 32 packed bytes.

Invariants: rows are dense: the next offset of each is the base offset of the one after it, and
that of the last is the end offset; the first one holds the log start or begins there. Open
transactions are in the order of their first offsets, so the first of them is where `last_stable`
stands; without any it is the end offset. Aborted ranges are in the order of their markers.

Left out: what may be appended (`partitions`), retention.
"""

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, NamedTuple

from coordinator.objects import Objects
from protocol.types import Position, TopicId
from storage.spans import MARKER_BYTES, Marker, Span
from txn.producers import fence
from txn.transactions import Markers

# Writer's slot, chunk number, start, length; base offset; newest timestamp.
_SPAN = Struct("=IIIIqq")
SPAN_BYTES = _SPAN.size
assert SPAN_BYTES <= 32

# Producer id; epoch and whether it commits; length (0); base offset; the writer's clock.
_MARKER = Struct("=qIIqq")
assert _MARKER.size == SPAN_BYTES
_LENGTH = Struct("=I")
_LENGTH_AT = 12

# The same as eight-byte words, to search in columns without unpacking.
_WORDS = SPAN_BYTES // 8
_BASE_OFFSET_WORD = 2
_TIMESTAMP_WORD = 3

# Producer id, first offset, last offset (the marker's), last stable offset after it.
_ABORTED = Struct("=qqqq")
ABORTED_BYTES = _ABORTED.size
_ABORTED_WORDS = ABORTED_BYTES // 8
_LAST_OFFSET_WORD = 2

_NONE_OPEN: Final[dict[int, int]] = {}
"""Shared by all partitions without open transactions, and never written."""


class AbortedRange(NamedTuple):
    """Where an aborted transaction has records in a partition; others may lie between them."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of its marker."""


class Partition:
    """One partition. Its fields and rows are written by `apply` alone."""

    __slots__ = (
        "_aborted",
        "_objects",
        "_rows",
        "end_offset",
        "last_stable",
        "log_start",
        "open_transactions",
        "partition",
        "topic_id",
        "windows",
    )

    def __init__(self, topic_id: TopicId, partition: int, objects: Objects) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.log_start = 0
        self.end_offset = 0
        """Next offset to be assigned: Kafka's high watermark and log end."""
        self.last_stable = 0
        """Where read_committed stops: the first offset of an open transaction, or the end."""
        self.windows: dict[int, bytes] | None = None
        """Producer id to `txn.producers` window; None while there is none."""
        self.open_transactions = _NONE_OPEN
        """Producer id to the first offset of its open transaction, ascending. To be read only."""
        self._rows = bytearray()
        self._aborted: bytearray | None = None
        self._objects = objects

    @property
    def span_count(self) -> int:
        """Spans and markers."""
        return len(self._rows) // SPAN_BYTES

    @property
    def aborted_count(self) -> int:
        return len(self._aborted or b"") // ABORTED_BYTES

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

    def span(self, index: int) -> Span | Marker:
        """The span or marker at `index`, from 0, below `span_count`."""
        assert 0 <= index < self.span_count
        slot, number, start, length, base_offset, timestamp_max = _SPAN.unpack_from(
            self._rows, index * SPAN_BYTES
        )
        if length == 0:
            return self._marker(index)
        chunk = self._objects.id(slot, number)
        records = self._next_offset(index) - base_offset
        return Span(chunk, start, length, base_offset, records, timestamp_max)

    def spans_from(self, offset: int, limit: int) -> list[Span | Marker]:
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
            (length,) = _LENGTH.unpack_from(self._rows, index * SPAN_BYTES + _LENGTH_AT)
            found += -(-(length or MARKER_BYTES) * records // (next_offset - base_offset))
        return found

    def first_span_with_timestamp(self, timestamp: int) -> int:
        """Index of the first span or marker whose newest timestamp is `timestamp` or later.

        `span_count` when there is none. Walks the column: about 30 ns a span.
        """
        for index, newest in enumerate(self._column(_TIMESTAMP_WORD)):
            if newest >= timestamp:
                return index
        return self.span_count

    def newest_timestamp(self) -> int:
        """The newest timestamp of all spans and markers, ms; -1 when there is none."""
        return max(self._column(_TIMESTAMP_WORD), default=-1)

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedRange]:
        """Ranges that have something in [from_offset, to_offset), by first offset.

        Looks at no more of them than begin before `to_offset`, and those that end between.
        """
        if self._aborted is None:
            return []
        words = memoryview(self._aborted).cast("q")
        first = bisect_left(words[_LAST_OFFSET_WORD::_ABORTED_WORDS], from_offset)
        found = []
        rows = memoryview(self._aborted)[first * ABORTED_BYTES :]
        for producer_id, first_offset, last_offset, last_stable in _ABORTED.iter_unpack(rows):
            if first_offset < to_offset:
                found.append(AbortedRange(producer_id, first_offset, last_offset))
            # What ends later was open then, or not begun: it has nothing below.
            if last_stable >= to_offset:
                break
        return sorted(found, key=_by_first_offset)

    # For `apply`.

    def append(self, row: tuple[int, int, int, int, int, int]) -> None:
        """A span at the end, which reaches to the end offset that is set next.

        `row`: writer's slot, chunk number, start, length, base offset, newest timestamp.
        """
        rows = self._rows
        rows += _SPAN.pack(*row)

    def reach(self, offset: int) -> None:
        """The rows reach up to `offset` now."""
        self.end_offset = offset
        opened = self.open_transactions
        self.last_stable = next(iter(opened.values())) if opened else offset

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
        self._rows += _MARKER.pack(producer_id, word, 0, offset, timestamp)
        self.reach(offset + 1)
        if not commit:
            if self._aborted is None:
                self._aborted = bytearray()
            row = _ABORTED.pack(producer_id, first_offset, offset, self.last_stable)
            self._aborted += row
        assert self.windows is not None  # It expires in no open transaction.
        window = self.windows[producer_id]
        self.windows[producer_id] = fence(window, epoch=epoch, updated_ms=time_ms)
        return offset

    def drop_spans(self, count: int, position: Position) -> int:
        """Let go of at most `count` spans, newest first; how many there were."""
        first = max(self.span_count - count, 0)
        dropped = self.span_count - first
        for slot, number, _, length, *_ in _SPAN.iter_unpack(self._rows[first * SPAN_BYTES :]):
            if length > 0:
                self._objects.release(slot, number, position)
        del self._rows[first * SPAN_BYTES :]
        return dropped

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
            del self._aborted[-dropped * ABORTED_BYTES :]
        return dropped

    @property
    def is_empty(self) -> bool:
        """No spans, no windows and no aborted ranges (left)."""
        return not self._rows and not self.windows and not self._aborted

    def _marker(self, index: int) -> Marker:
        producer_id, word, _, base_offset, timestamp = _MARKER.unpack_from(
            self._rows, index * SPAN_BYTES
        )
        return Marker(base_offset, producer_id, word >> 1, bool(word & 1), timestamp)

    def _base_offset(self, index: int) -> int:
        base_offset: int = _SPAN.unpack_from(self._rows, index * SPAN_BYTES)[4]
        return base_offset

    def _next_offset(self, index: int) -> int:
        return self.end_offset if index + 1 == self.span_count else self._base_offset(index + 1)

    def _column(self, word: int) -> memoryview:
        """One column of the spans. Not to be kept: rows cannot grow while it exists."""
        return memoryview(self._rows).cast("q")[word::_WORDS]


def _by_first_offset(aborted: AbortedRange) -> int:
    return aborted.first_offset
