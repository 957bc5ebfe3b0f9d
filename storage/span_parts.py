"""Where the batches of long spans lie, as far as somebody has read them.

A span of a segment may have 8 MiB, of which a reader wants 1 MiB at a time; nothing but its batches
says where offsets are in it. So it is read part by part, in order, and where each part ended is
noted: whoever reads on begins there, and whoever reads the same again reads the same parts. Who wants
an offset that lies behind all that is noted has the whole span read.

What is noted is bounded, least recently used out first. Pure.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from storage.fetch_plan import SpanPart
from storage.formats.batches import Batches
from storage.formats.spans import ObjectId, ObjectKind, Span

PART_BYTES: Final = 1 << 20
"""What consumers take of a partition at a time, if nobody told them otherwise."""
SPANS_MAX: Final = 4096
"""Whose parts are known, at most; each takes about 300 bytes."""


def is_long(span: Span) -> bool:
    """Whether it is worth being read in parts."""
    return span.length > PART_BYTES and span.object_id.kind is ObjectKind.SEGMENT


class _Parts:
    """Where the known parts of one span begin, and behind them what is not known."""

    __slots__ = ("is_whole", "offsets", "starts")

    def __init__(self, base_offset: int) -> None:
        self.offsets = array("q", [base_offset])
        self.starts = array("q", [0])
        self.is_whole = False
        """What is not known cannot be read in parts: a batch is longer."""


class SpanParts:
    """The known parts of long spans."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[ObjectId, int], _Parts] = OrderedDict()

    def from_offset(self, span: Span, offset: int) -> Iterator[Span | SpanPart]:
        """What to read for `offset` and what follows in the span: known parts, which are spans of
        their own, and what comes first of the rest; or the whole span."""
        known = self._of(span)
        index = bisect_right(known.offsets, offset) - 1
        last = len(known.offsets) - 1
        if index == last and (offset != known.offsets[last] or known.is_whole):
            yield span
            return
        for each in range(index, last):
            yield self._known(span, known, each)
        start, rest = known.starts[last], span.length - known.starts[last]
        if rest > PART_BYTES and not known.is_whole:
            yield SpanPart(span, span.start + start, PART_BYTES, known.offsets[last])
        else:
            yield _cut(span, start, span.length, known.offsets[last], span.next_offset)

    def _of(self, span: Span) -> _Parts:
        key = (span.object_id, span.start)
        known = self._parts.get(key)
        if known is None:
            known = self._parts[key] = _Parts(span.base_offset)
            if len(self._parts) > SPANS_MAX:
                self._parts.popitem(last=False)
        else:
            self._parts.move_to_end(key)
        return known

    @staticmethod
    def _known(span: Span, known: _Parts, index: int) -> Span:
        offsets, starts = known.offsets, known.starts
        return _cut(span, starts[index], starts[index + 1], offsets[index], offsets[index + 1])

    def read(self, part: SpanPart, data: memoryview) -> Batches | None:
        """The batches that the bytes of a part begin with; None when the first one is longer.

        Raises DamagedSpanError.
        """
        known = self._of(part.span)
        batches = Batches.leading(part.span, part.start, part.base_offset, data)
        if batches is None:
            known.is_whole = True
        elif known.offsets[-1] == part.base_offset:
            assert isinstance(batches.span, Span)
            known.offsets.append(batches.span.next_offset)
            known.starts.append(part.start - part.span.start + len(batches))
        return batches

    def note(self, span: Span, batches: Batches) -> None:
        """The whole span was read: it has parts from now on."""
        known = self._of(span)
        for offset, start in batches.places(PART_BYTES):
            if start > known.starts[-1] and offset > known.offsets[-1]:
                known.offsets.append(offset)
                known.starts.append(start)


def _cut(span: Span, start: int, end: int, base_offset: int, next_offset: int) -> Span:
    return Span(
        span.object_id,
        span.start + start,
        end - start,
        base_offset,
        next_offset - base_offset,
        span.timestamp_max,
    )
