"""The record batches of one span, with the offsets and bytes that clients get.

Chunks hold batches as producers sent them, with base offset 0. Here they are copied once (or not
at all, when the memory is ours), their base offsets and leader epoch (of the era that the chunk was
written in) patched, and from
then on every fetch is a slice without a copy. Batches of a segment say their offsets themselves:
they are compared with the span's, and there may be holes between them, never behind the last.
Limits stop before a batch, never inside one (P7). A marker has no bytes anywhere: it becomes a
control batch when it is asked for. Pure.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import add, gt
from typing import Final, NamedTuple, Self

from crc32c import crc32c

from protocol import records
from protocol.errors import ProtocolError
from protocol.types import Buffer, Position, leader_epoch
from storage.formats.spans import MARKER_BYTES, Marker, ObjectKind, Span
from storage.stores.object_store import StoreRefusedError

_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
"""Place of the CRC-32C in a batch; it covers all that follows, so patching leaves it valid."""
_MARKER_ENDS: Final = array("I", [MARKER_BYTES])

assert MARKER_BYTES == records.CONTROL_BATCH_BYTES


class DamagedSpanError(StoreRefusedError):
    """The bytes of a span are not the batches that the log says are there."""


class Slice(NamedTuple):
    """Whole batches of a span."""

    views: list[memoryview]
    """Read-only, ascending in offsets; empty when the limit left room for no batch."""
    byte_count: int
    next_offset: int
    """The offset after the last batch in it; the one asked for when it is empty."""


class Batches:
    """All batches of one span, patched, or of a marker. Immutable."""

    __slots__ = ("_data", "_ends", "_nexts", "_offsets", "span")

    def __init__(
        self,
        span: Span | Marker,
        data: memoryview,
        *,
        ends: "array[int]",
        offsets: "array[int]",
        nexts: "array[int]",
    ) -> None:
        assert len(ends) == len(offsets) == len(nexts) > 0
        assert nexts[-1] == span.next_offset
        self.span = span
        self._data = data.toreadonly()
        self._ends = ends
        """Of each batch: the byte after it."""
        self._offsets = offsets
        """Of each batch: its base offset."""
        self._nexts = nexts
        """Of each batch: the offset after its last, at most the base offset of the next."""

    def __len__(self) -> int:
        """Bytes."""
        return len(self._data)

    @classmethod
    def of(cls, span: Span, data: Buffer | Sequence[Buffer]) -> Self:
        """Copy the span's bytes (whole, or in parts) and patch them.

        Raises DamagedSpanError when they are not the span's batches.
        """
        return cls._placed(span, memoryview(_joined(span, data)))

    @classmethod
    def _placed(cls, span: Span, data: memoryview) -> Self:
        """The batches, each at its offset; those of a chunk are patched where they are."""
        try:
            starts, counts = records.batch_positions(data)
        except ProtocolError as error:
            raise DamagedSpanError(f"{place_of(span)} holds no record batches: {error}") from error
        ends = array("I", starts[1:])
        ends.append(len(data))
        if span.object_id.kind == ObjectKind.SEGMENT:
            said = records.base_offsets(data, starts)
            after = list(map(add, said, counts))
            _check_ascending(span, said, after)
            offsets, nexts = array("q", said), array("q", after)
        else:
            offsets = cls._patch(span, data, starts, counts)
            nexts = offsets[1:]
            nexts.append(span.next_offset)
        return cls(span, data, ends=ends, offsets=offsets, nexts=nexts)

    @staticmethod
    def _patch(
        span: Span, patched: memoryview, starts: "array[int]", counts: "array[int]"
    ) -> "array[int]":
        offsets = array("q")
        offset = span.base_offset
        epoch = leader_epoch(Position(span.object_id.incarnation))
        for start, count in zip(starts, counts, strict=True):
            records.patch(patched, start, offset, epoch)
            offsets.append(offset)
            offset += count
        if offset != span.next_offset:
            raise DamagedSpanError(
                f"{place_of(span)} holds {offset - span.base_offset} records, not {span.records}"
            )
        return offsets

    @classmethod
    def of_marker(cls, marker: Marker) -> Self:
        """The control batch alone."""
        return cls(
            marker,
            memoryview(marker_batch(marker)),
            ends=_MARKER_ENDS,
            offsets=array("q", [marker.base_offset]),
            nexts=array("q", [marker.next_offset]),
        )

    @classmethod
    def checked(cls, span: Span, data: memoryview) -> Self:
        """As `of`, and the CRC of every batch is compared: for bytes that were away.

        Writable bytes must be the caller's own: they are patched where they are, not copied.
        Doing so again does no harm. Those of a segment are never copied.
        """
        if len(data) != span.length:
            raise DamagedSpanError(f"{place_of(span)} came with {len(data)} bytes")
        if data.readonly and span.object_id.kind != ObjectKind.SEGMENT:
            batches = cls.of(span, data)
        else:
            batches = cls._placed(span, data)
        batches.check()
        return batches

    def check(self) -> None:
        """Compare the CRC of every batch. Raises DamagedSpanError."""
        at = 0
        for end in self._ends:
            (crc,) = _CRC.unpack_from(self._data, at + _CRC_AT)
            if crc32c(self._data[at + _CRC_AT + _CRC.size : end]) != crc:
                raise DamagedSpanError(f"{place_of(self.span)}: the batch at byte {at} is damaged")
            at = end

    def view(self) -> memoryview:
        """All bytes, read-only."""
        return self._data

    def slice(
        self, offset: int, *, bytes_max: int, at_least_one: bool, before: int | None = None
    ) -> Slice:
        """Whole batches from the one that contains `offset`, as many as `bytes_max` allows; in a
        segment, from the first one that does not lie before it.

        With `at_least_one` the first comes whatever its size. None begins at `before` or later:
        it is behind `offset`, and transactions begin with a batch. The offset must be in the span.
        """
        assert self.span.base_offset <= offset < self.span.next_offset
        first = bisect_right(self._nexts, offset)
        begin = self._ends[first - 1] if first else 0
        # Batches before `last` end within the limit.
        last = bisect_right(self._ends, begin + max(0, bytes_max), first)
        if before is not None:
            assert before > offset
            last = min(last, bisect_left(self._offsets, before, first))
        if last == first:
            if not at_least_one:
                return Slice([], 0, offset)
            last = first + 1
        end = self._ends[last - 1]
        return Slice([self._data[begin:end]], end - begin, self._nexts[last - 1])


def marker_batch(marker: Marker) -> bytes:
    """The control batch that clients are given for the end of a transaction (KIP-98)."""
    return records.control_batch(
        records.CONTROL_COMMIT if marker.commit else records.CONTROL_ABORT,
        base_offset=marker.base_offset,
        timestamp=marker.timestamp,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def _check_ascending(span: Span, offsets: Sequence[int], nexts: Sequence[int]) -> None:
    """Batches of a segment, one or more, begin where none before reaches, and end with the span."""
    if not offsets or offsets[0] < span.base_offset or nexts[-1] != span.next_offset:
        at = f"{offsets[0]} to {nexts[-1]}" if offsets else "no offsets"
        raise DamagedSpanError(
            f"{place_of(span)} holds {at}, not {span.base_offset} to {span.next_offset}"
        )
    if any(map(gt, nexts, offsets[1:])):
        raise DamagedSpanError(f"{place_of(span)} holds batches that do not ascend")


def _joined(span: Span, data: Buffer | Sequence[Buffer]) -> bytearray:
    """The span's bytes in fresh memory, copied once."""
    parts = [data] if isinstance(data, Buffer) else data
    joined = bytearray().join(parts)
    if len(joined) != span.length:
        raise DamagedSpanError(f"{place_of(span)} came with {len(joined)} bytes")
    return joined


def place_of(span: Span | Marker) -> str:
    """For people: which bytes of which object."""
    if isinstance(span, Marker):
        return f"the marker at offset {span.base_offset}"
    return f"{span.object_id.key} bytes {span.start} to {span.start + span.length}"
