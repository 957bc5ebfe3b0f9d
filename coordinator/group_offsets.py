"""The offsets that a group has committed: packed columns, one per topic.

A row is 24 packed bytes in the `bytearray` of its topic, in order of partitions; metadata stand
beside them in a list, which is there only when one of them is not empty. So an offset is no
object, and the garbage collector has a few things to walk per topic, none per partition.

Invariants: the partitions of a topic are distinct and ascending, so row i is that of partition i
or of a later one; a topic without rows is not here; `len` and `metadata_size` count all rows.

Left out: offsets pending in transactions. They will stand beside the columns, per producer.
"""

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from coordinator.group_commands import CommittedOffset
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


class _Column:
    """The rows of one topic."""

    __slots__ = ("metadata", "rows")

    def __init__(self) -> None:
        self.rows = bytearray()
        self.metadata: list[str] | None = None
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


class GroupOffsets:
    """Committed offsets of one group. `put` and `remove` are for `apply` alone."""

    __slots__ = ("_columns", "_count", "metadata_size")

    def __init__(self) -> None:
        self._columns: dict[TopicId, _Column] = {}
        self._count = 0
        self.metadata_size = 0
        """Characters of all metadata."""

    def __len__(self) -> int:
        """Rows."""
        return self._count

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
        """Note an offset, committed at the machine's time."""
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
            self.metadata_size += column.set_metadata(index, metadata)

    def remove(self, topic_id: TopicId, partition: int) -> None:
        """Forget an offset; nothing happens when there is none."""
        column = self._columns.get(topic_id)
        if column is None:
            return
        index = column.find(partition)
        if not column.has(index, partition):
            return
        self.metadata_size += column.set_metadata(index, "")
        column.delete(index)
        self._count -= 1
        if not column.rows:
            del self._columns[topic_id]
