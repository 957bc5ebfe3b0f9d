"""Where records lie: object ids, spans, markers, pages and items, the values that tables, plans and
readers exchange.

A partition is a dense row of `Row`s: each begins at the offset at which the one before ends. What a
page stands for are such rows again, read from an index object when somebody needs them.
"""

from enum import IntEnum
from typing import Final, NamedTuple, Self

from protocol.types import Incarnation


class ObjectKind(IntEnum):
    """The kinds of objects with records or rows."""

    CHUNK = 0
    """Batches of one flush, many partitions, base offsets as the clients sent them."""
    SEGMENT = 1
    """Batches merged or compacted by a job, with their offsets in them (`storage.formats.segment`)."""
    INDEX = 2
    """Pages: rows of partitions that are not kept in memory (`storage.formats.page`)."""


_FOLDERS: Final = ("chunks", "segments", "indexes")


class ObjectId(NamedTuple):
    """One object: the incarnation that wrote it, its number there and among its kind, from 0."""

    incarnation: Incarnation
    number: int
    kind: ObjectKind = ObjectKind.CHUNK

    @property
    def key(self) -> str:
        """The key in the store, by kind and incarnation (docs/design/chunks-and-segments.md §1)."""
        return f"{_FOLDERS[self.kind]}/{self.incarnation:016x}/{self.number:08x}"

    @classmethod
    def of_key(cls, key: str) -> Self:
        """The inverse of `key`. Raises ValueError when `key` is not that of such an object."""
        folder, incarnation, number = key.split("/")
        if folder not in _FOLDERS or len(incarnation) != 16 or len(number) != 8:
            raise ValueError(f"{key!r} is not the key of a chunk, segment or index object")
        kind = ObjectKind(_FOLDERS.index(folder))
        return cls(Incarnation(int(incarnation, 16)), int(number, 16), kind)


class Item(NamedTuple):
    """What apply may refuse alone: one batch with a producer id, or adjacent plain ones together.

    Objects say it in their index, and the log in the entry that commits them.
    """

    skip: int
    """Bytes of the chunk between the item before (or the span's start) and this one, left out."""
    length: int
    """Bytes."""
    records: int
    timestamp_max: int
    producer_id: int = -1
    producer_epoch: int = -1
    first_sequence: int = -1
    instance: int = -1
    """Number of the transaction; `txn.transactions` says what NO_TRANSACTION and OF_EPOCH mean."""


class Span(NamedTuple):
    """Adjacent record batches of one partition inside one object, committed together.

    The bytes are whole record batches (magic 2). In a chunk they are of `records` offsets in all,
    from `base_offset` on without a hole, and their base offsets are 0 and must be patched when
    read. In a segment they say their own offsets, ascending, and there may be holes, but none at
    the end: the last batch ends where the span does.
    """

    object_id: ObjectId
    start: int
    """First byte in the object."""
    length: int
    """Bytes."""
    base_offset: int
    records: int
    """Offsets that it covers."""
    timestamp_max: int
    """Newest timestamp of the records, ms; -1 when they carry none. Of a chunk: as far as their
    producers were to be believed (`broker.produce.validation`)."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records


class Marker(NamedTuple):
    """The end of a transaction in a partition: one offset without bytes in any object.

    Clients are given a Kafka control batch of one record for it (`storage.formats.batches`).
    """

    base_offset: int
    producer_id: int
    producer_epoch: int
    """That of the ended transaction (TV1), or the one after it (TV2, and whatever fences)."""
    commit: bool
    timestamp: int
    """Wall clock of the agent that wrote the end into the log, ms."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + 1


MARKER_BYTES: Final = 78
"""Of a marker as a control batch: header, and a record with a key of 4 and a value of 6 bytes."""


class Page(NamedTuple):
    """Rows that are not kept in memory: spans and markers of one partition, in an index object."""

    object_id: ObjectId
    start: int
    """First byte of the page's body in the object."""
    length: int
    """Bytes of the body."""
    base_offset: int
    next_offset: int
    rows: int
    """Spans and markers in it."""
    data_bytes: int
    """Of the spans in it."""
    timestamp_max: int
    """The newest of them."""
    digest: bytes
    """`storage.formats.page.digest` of the body: what it must be, byte by byte."""


Row = Span | Marker | Page
