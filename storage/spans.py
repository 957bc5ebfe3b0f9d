"""Where records lie: chunk ids and spans, the values that tables, plans and readers exchange."""

from typing import NamedTuple, Self

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
