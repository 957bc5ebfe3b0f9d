"""The offsets that a group has committed: packed columns, one per topic.

A row is 24 packed bytes in the `bytearray` of its topic, in order of partitions; metadata stand
beside them in a list, which is there only when one of them is not empty. So an offset is no
object, and the garbage collector has a few things to walk per topic, none per partition.

Invariants: the partitions of a topic are distinct and ascending, so row i is that of partition i
or of a later one; a topic without rows is not here; `len` counts the rows of the columns, and
`metadata_size` the metadata of these and of what waits.

Beside the columns stand the offsets that wait for the ends of transactions
(`pending_offsets`); what is committed in a place takes away those that waited there from before.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from coordinator.commands.group_commands import CommittedOffset
from coordinator.tables.pending_offsets import Pending, PendingOffsets
from protocol.types import TopicId

# Partition, leader epoch, offset, machine time of the commit.
_ROW = Struct("=Iiqq")
OFFSET_ROW_BYTES = _ROW.size
_PARTITION = Struct("=I")

# The same as four-byte words, to search the partitions without unpacking.
_WORDS = OFFSET_ROW_BYTES // 4


class OffsetRow(NamedTuple):
    offset: int
    leader_epoch: int
    """-1: none."""
    metadata: str
    committed_ms: int
    """The machine's time at the commit."""


@dataclass(slots=True, eq=False)
class _Column:
    """The rows of one topic."""

    rows: bytearray = field(default_factory=bytearray)
    metadata: list[str] | None = None
    """One for each row; None: all of them are empty."""

    def find(self, partition: int) -> int:
        """Index of the partition's row, or of where it would be."""
        rows = self.rows
        dense = partition * OFFSET_ROW_BYTES
        if dense < len(rows) and _PARTITION.unpack_from(rows, dense)[0] == partition:
            return partition
        return bisect_left(memoryview(rows).cast("I")[::_WORDS], partition)

    def has(self, index: int, partition: int) -> bool:
        """Whether the row at what `find` gave is that of the partition."""
        at = index * OFFSET_ROW_BYTES
        return at < len(self.rows) and _PARTITION.unpack_from(self.rows, at)[0] == partition

    def row(self, index: int) -> OffsetRow:
        _, leader_epoch, offset, committed_ms = _ROW.unpack_from(
            self.rows, index * OFFSET_ROW_BYTES
        )
        metadata = self.metadata[index] if self.metadata is not None else ""
        return OffsetRow(offset, leader_epoch, metadata, committed_ms)

    def insert(self, index: int) -> None:
        """Make room for a row, to be written at once."""
        at = index * OFFSET_ROW_BYTES
        self.rows[at:at] = bytes(OFFSET_ROW_BYTES)
        if self.metadata is not None:
            self.metadata.insert(index, "")

    def delete(self, index: int) -> None:
        at = index * OFFSET_ROW_BYTES
        del self.rows[at : at + OFFSET_ROW_BYTES]
        if self.metadata is not None:
            del self.metadata[index]

    def set_metadata(self, index: int, metadata: str) -> int:
        """By how much the metadata have grown, in characters."""
        if self.metadata is None:
            if not metadata:
                return 0
            self.metadata = [""] * (len(self.rows) // OFFSET_ROW_BYTES)
        grown = len(metadata) - len(self.metadata[index])
        self.metadata[index] = metadata
        return grown


@dataclass(slots=True, eq=False)
class GroupOffsets:
    """Offsets of one group. All but the queries are for `apply` alone."""

    _columns: dict[TopicId, _Column] = field(default_factory=dict)
    _count: int = 0
    _metadata_size: int = 0
    """Of the columns."""
    _pending: PendingOffsets | None = None
    """None while nothing waits."""

    def __len__(self) -> int:
        """Committed offsets."""
        return self._count

    @property
    def metadata_size(self) -> int:
        """Characters of all metadata, of what waits too."""
        return self.counts()[2]

    @property
    def pending_count(self) -> int:
        """Offsets that wait for the ends of transactions."""
        return len(self._pending) if self._pending is not None else 0

    def counts(self) -> tuple[int, int, int]:
        """What is bounded: rows with those that wait, rows that wait, characters of metadata."""
        pending = self._pending
        if pending is None:
            return self._count, 0, self._metadata_size
        waiting = len(pending)
        return self._count + waiting, waiting, self._metadata_size + pending.metadata_size

    def has_pending(self, topic_id: TopicId, partition: int) -> bool:
        """Whether a transaction may still change this offset (KIP-447)."""
        return self._pending is not None and self._pending.has((topic_id, partition))

    def pending(self) -> list[tuple[int, Pending]]:
        """Producer ids, and what waits of each."""
        return list(self._pending or ())

    def topics(self) -> list[TopicId]:
        """Topics that have offsets, also such as were deleted, in order of their first commit."""
        return list(self._columns)

    def get(self, topic_id: TopicId, partition: int) -> OffsetRow | None:
        column = self._columns.get(topic_id)
        if column is None:
            return None
        index = column.find(partition)
        return column.row(index) if column.has(index, partition) else None

    def of_topic(self, topic_id: TopicId) -> Iterator[tuple[int, OffsetRow]]:
        """Partitions, ascending, with their offsets as they are when the first is asked for."""
        column = self._columns.get(topic_id)
        if column is None:
            return
        # A copy: rows could not grow while something iterates over them.
        rows = bytes(column.rows)
        metadata = list(column.metadata or ())
        for index, (partition, leader_epoch, offset, committed_ms) in enumerate(
            _ROW.iter_unpack(rows)
        ):
            text = metadata[index] if metadata else ""
            yield partition, OffsetRow(offset, leader_epoch, text, committed_ms)

    def put(self, committed: CommittedOffset, time_ms: int) -> None:
        """Note an offset, committed at the machine's time; nothing waits there any more."""
        if self._pending is not None:
            self._forget_pending(committed.topic_id, committed.partition)
        self._put(committed, time_ms)

    def _put(self, committed: CommittedOffset, time_ms: int) -> None:
        topic_id, partition, offset, leader_epoch, metadata = committed
        column = self._columns.get(topic_id)
        if column is None:
            column = self._columns[topic_id] = _Column()
        index = column.find(partition)
        if not column.has(index, partition):
            column.insert(index)
            self._count += 1
        _ROW.pack_into(
            column.rows, index * OFFSET_ROW_BYTES, partition, leader_epoch, offset, time_ms
        )
        if metadata or column.metadata is not None:
            self._metadata_size += column.set_metadata(index, metadata)

    def remove(self, topic_id: TopicId, partition: int) -> None:
        """Forget an offset, and what waits there; nothing happens when there is none."""
        if self._pending is not None:
            self._forget_pending(topic_id, partition)
        column = self._columns.get(topic_id)
        if column is None:
            return
        index = column.find(partition)
        if not column.has(index, partition):
            return
        self._metadata_size += column.set_metadata(index, "")
        column.delete(index)
        self._count -= 1
        if not column.rows:
            del self._columns[topic_id]

    # What waits for the ends of transactions.

    def put_pending(self, producer_id: int, committed: CommittedOffset) -> None:
        """An offset that is to be committed with the producer's transaction."""
        if self._pending is None:
            self._pending = PendingOffsets()
        self._pending.put(producer_id, committed)

    def take_pending(self, producer_id: int) -> list[Pending]:
        """All that waits of a producer, whose transaction ends; it waits no more."""
        if self._pending is None:
            return []
        taken = self._pending.take(producer_id)
        self._tidy_pending()
        return taken

    def put_ended(self, pending: Pending, time_ms: int) -> None:
        """Note an offset that has waited; newer ones that wait there go on waiting."""
        committed = pending.committed
        if self._pending is not None:
            place = (committed.topic_id, committed.partition)
            self._pending.drop(place, before=pending.order)
            self._tidy_pending()
        self._put(committed, time_ms)

    def _forget_pending(self, topic_id: TopicId, partition: int) -> None:
        assert self._pending is not None
        self._pending.drop((topic_id, partition))
        self._tidy_pending()

    def _tidy_pending(self) -> None:
        if not self._pending:
            self._pending = None
