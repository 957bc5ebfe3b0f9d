"""Where records lie: chunk ids, spans, markers and items, the values that tables, plans and readers
exchange."""

from typing import Final, NamedTuple, Self

from protocol.types import Incarnation


class ChunkId(NamedTuple):
    """One chunk: the incarnation that wrote it, and its number there, from 0."""

    incarnation: Incarnation
    number: int

    @property
    def key(self) -> str:
        """The object's key: the chunks of an incarnation lie under its own prefix (design §11)."""
        return f"chunks/{self.incarnation:016x}/{self.number:08x}"

    @classmethod
    def of_key(cls, key: str) -> Self:
        """The inverse of `key`. Raises ValueError when `key` is not a chunk's."""
        folder, incarnation, number = key.split("/")
        if folder != "chunks" or len(incarnation) != 16 or len(number) != 8:
            raise ValueError(f"{key!r} is not the key of a chunk")
        return cls(Incarnation(int(incarnation, 16)), int(number, 16))


class Item(NamedTuple):
    """What apply may refuse alone: one batch with a producer id, or adjacent plain ones together.

    Chunks say it in their index, and the log in the entry that commits them.
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

    The bytes are whole record batches (magic 2) of `records` offsets in all, from `base_offset`
    on without a hole; in the object their base offsets are 0 and must be patched when read.
    """

    chunk: ChunkId
    start: int
    """First byte in the object."""
    length: int
    """Bytes."""
    base_offset: int
    records: int
    timestamp_max: int
    """Newest timestamp of the batches, ms; -1 when they carry none."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records


class Marker(NamedTuple):
    """The end of a transaction in a partition: one offset without bytes in any object.

    Clients are given a Kafka control batch of one record for it (`storage.batches`).
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
