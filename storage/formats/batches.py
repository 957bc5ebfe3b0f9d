"""The record batches of one span, with the offsets and bytes that clients get.

Chunks hold batches as producers sent them, with base offset 0. Here they are copied once (or not
at all, when the memory is ours), their base offsets and leader epoch (of the era that the chunk was
written in) patched, and from
then on every fetch is a slice without a copy. Batches of a segment say their offsets and epochs themselves, outside of
their CRC: they are compared with the span's offsets and the segment's era. There may be holes between them, never behind the
last; one that moved within a hole is found by a check that reads the segment's own checksums.
Limits stop before a batch, never inside one (P7). A marker has no bytes anywhere: it becomes a
control batch when it is asked for. Pure.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from crc32c import crc32c

from protocol import records
from protocol.fault_codes import FaultCode
from protocol.types import Buffer, Position, leader_epoch, leader_epoch_of_producer
from storage.formats.spans import MARKER_BYTES, Marker, ObjectKind, Span
from storage.stores.object_store import StoreRefusedError

_FRAME: Final = struct.Struct(">qiiBI2xi")
"""Of a batch: base offset, length, leader epoch, magic, CRC-32C, delta of its last offset."""
_PLACE: Final = struct.Struct(">qii")
"""Base offset, length, leader epoch."""
_LENGTH: Final = struct.Struct(">i")
_CRC_FROM: Final = 21
"""The CRC-32C covers all that follows this byte, so patching leaves it valid."""
_MARKER_ENDS: Final = (MARKER_BYTES,)

assert MARKER_BYTES == records.CONTROL_BATCH_BYTES


class DamagedSpanError(StoreRefusedError):
    """The bytes of a span are not the batches that the log says are there."""

    fault = FaultCode.OBJECT_LOST


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
        ends: Sequence[int],
        offsets: Sequence[int],
        nexts: Sequence[int],
    ) -> None:
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
        return cls._placed(span, memoryview(_joined(span, data)), checks=False)

    @classmethod
    def _placed(cls, span: Span, data: memoryview, *, checks: bool) -> Self:
        """The batches, each at its offset; those of a chunk are patched where they are. One look at
        each: `checks` compares its CRC."""
        incarnation, _, kind = span.object_id
        own = kind == ObjectKind.SEGMENT
        epoch = leader_epoch(Position(incarnation))
        if not own and len(data) >= records.HEADER_BYTES:
            # One batch alone, as most spans of chunks have: what follows costs twice as much.
            _, length, _, magic, crc, last_delta = _FRAME.unpack_from(data)
            if (
                length + records.LENGTH_OVERHEAD == len(data)
                and magic == records.MAGIC
                and last_delta + 1 == span.records
                and (not checks or crc32c(data[_CRC_FROM:]) == crc)
            ):
                offset = span.base_offset
                _PLACE.pack_into(data, 0, offset, length, epoch)
                one, base, following = (len(data),), (offset,), (offset + span.records,)
                return cls(span, data, ends=one, offsets=base, nexts=following)
        ends, offsets, nexts = array("I"), array("q"), array("q")
        unpack, patch = _FRAME.unpack_from, _PLACE.pack_into
        at, end, offset = 0, len(data), span.base_offset
        while at < end:
            if end - at < records.HEADER_BYTES:
                raise _damaged(span, f"{end - at} bytes are behind the last batch")
            said, length, said_epoch, magic, crc, last_delta = unpack(data, at)
            behind = at + length + records.LENGTH_OVERHEAD
            if (
                magic != records.MAGIC
                or not at + records.HEADER_BYTES <= behind <= end
                or last_delta < 0
            ):
                raise _damaged(span, f"no batch is at byte {at}")
            if checks and crc32c(data[at + _CRC_FROM : behind]) != crc:
                raise _damaged(span, f"the batch at byte {at} is damaged")
            if not own:
                patch(data, at, offset, length, epoch)
            elif said < offset:
                raise _damaged(span, f"the batch at byte {at} begins before {offset}")
            elif not -1 <= said_epoch <= epoch:
                raise _damaged(span, f"the batch at byte {at} is of leader epoch {said_epoch}")
            else:
                offset = said
            offsets.append(offset)
            offset += last_delta + 1
            if offset > span.next_offset:
                break
            nexts.append(offset)
            ends.append(behind)
            at = behind
        if offset != span.next_offset or not ends:
            held = offset - span.base_offset
            raise _damaged(span, f"it holds {held} records or more, not {span.records}")
        return cls(span, data, ends=ends, offsets=offsets, nexts=nexts)

    @classmethod
    def of_marker(cls, marker: Marker) -> Self:
        """The control batch alone."""
        return cls(
            marker,
            memoryview(marker_batch(marker)),
            ends=_MARKER_ENDS,
            offsets=(marker.base_offset,),
            nexts=(marker.next_offset,),
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
            data = memoryview(_joined(span, data))
        return cls._placed(span, data, checks=True)

    @classmethod
    def leading(cls, span: Span, start: int, base_offset: int, data: memoryview) -> Self | None:
        """The whole batches that `data` begins with, which lie in a segment's span from byte `start`
        of the object on, and there are more behind them; as `checked`, of a span of their own.

        `base_offset`: before none of them. None when the first one is longer than the data.
        """
        assert span.object_id.kind == ObjectKind.SEGMENT
        end, last = _whole_end(data)
        if end == 0:
            return None
        header = records.read_header(data, last)
        next_offset = header.last_offset + 1
        if not base_offset < next_offset < span.next_offset:
            raise DamagedSpanError(f"{place_of(span)} holds {next_offset} before its last batch")
        of = next_offset - base_offset
        part = Span(span.object_id, start, end, base_offset, of, span.timestamp_max)
        return cls.checked(part, data[:end])

    def places(self, step: int) -> list[tuple[int, int]]:
        """Where batches begin that are `step` bytes or less behind the one before in the list, or
        behind the first: base offset (or of the hole before it) and first byte."""
        found: list[tuple[int, int]] = []
        index, count = 0, len(self._ends)
        at = 0
        while True:
            index = max(bisect_right(self._ends, at + step), index + 1)
            if index >= count:
                return found
            at = self._ends[index - 1]
            found.append((self._nexts[index - 1], at))

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
    """The control batch that clients are given for the end of a transaction (KIP-98).

    A recovery aborts what the era before left open: such a marker has that era's epoch, and a consumer that
    checks its position there (KIP-320) reads it once more.
    """
    return records.control_batch(
        records.CONTROL_COMMIT if marker.commit else records.CONTROL_ABORT,
        base_offset=marker.base_offset,
        timestamp=marker.timestamp,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        leader_epoch=leader_epoch_of_producer(marker.producer_id),
    )


def _whole_end(data: memoryview) -> tuple[int, int]:
    """The byte behind the last whole batch, and its first byte."""
    at = last = 0
    unpack = _LENGTH.unpack_from
    while len(data) - at >= records.HEADER_BYTES:
        size = unpack(data, at + 8)[0] + records.LENGTH_OVERHEAD
        if not records.HEADER_BYTES <= size <= len(data) - at:
            break
        last, at = at, at + size
    return at, last


def _joined(span: Span, data: Buffer | Sequence[Buffer]) -> bytearray:
    """The span's bytes in fresh memory, copied once."""
    parts = [data] if isinstance(data, Buffer) else data
    joined = bytearray().join(parts)
    if len(joined) != span.length:
        raise DamagedSpanError(f"{place_of(span)} came with {len(joined)} bytes")
    return joined


def _damaged(span: Span, what: str) -> DamagedSpanError:
    return DamagedSpanError(f"{place_of(span)} is damaged: {what}")


def place_of(span: Span | Marker) -> str:
    """For people: which bytes of which object."""
    if isinstance(span, Marker):
        return f"the marker at offset {span.base_offset}"
    return f"{span.object_id.key} bytes {span.start} to {span.start + span.length}"
