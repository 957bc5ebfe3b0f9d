"""Plans the reads of the object store that bring a set of spans.

A recent chunk is read whole: other partitions of it will be asked for in a moment, by the same
consumers. Of older ones only ranges are read, as of segments and of pages; ranges of one object
that lie close together are merged, since a request costs more than the bytes between. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from storage.formats.spans import ObjectId, Page, Span

KiB: Final = 1024
GAP_BYTES_MAX: Final = 128 * KiB
"""Bytes that nobody asked for, read along to save a request (about 1 ms of a stream)."""
RANGE_BYTES_MAX: Final = 8 * 1024 * KiB
"""A merged range grows no further; a single span may be larger."""


class SpanRead(NamedTuple):
    """A span to be read, and what is known of its object."""

    span: Span
    object_length: int
    """Bytes of the whole object."""
    recent: bool
    """The whole object is worth reading."""


class SpanPart(NamedTuple):
    """The first bytes of the end of a segment's span: how many batches they hold is not known yet."""

    span: Span
    """The whole."""
    start: int
    """First byte in the object."""
    length: int
    """Bytes; there are more behind them."""
    base_offset: int
    """All before it lies before these bytes."""

    @property
    def object_id(self) -> ObjectId:
        return self.span.object_id

    @property
    def next_offset(self) -> int:
        """Of the span: nothing is known before."""
        return self.span.next_offset


Piece = TypeVar("Piece", Span, Page, SpanPart)


class Read(NamedTuple, Generic[Piece]):
    """One request to the object store and what it brings, by their first byte."""

    object_id: ObjectId
    start: int
    length: int
    pieces: tuple[Piece, ...]
    whole: bool

    @property
    def end(self) -> int:
        return self.start + self.length


def plan_reads(wanted: Iterable[SpanRead], *, whole_bytes_max: int) -> list[Read[Span]]:
    """Reads that together bring every wanted span, each span by one of them.

    Objects longer than `whole_bytes_max` are never read whole (a cache must be able to hold
    them). Objects come in the order in which they are first wanted, ranges by their start.
    """
    by_object: dict[ObjectId, list[SpanRead]] = {}
    for one in wanted:
        assert one.span.length > 0
        assert one.span.start + one.span.length <= one.object_length
        by_object.setdefault(one.span.object_id, []).append(one)
    reads: list[Read[Span]] = []
    for object_id, rows in by_object.items():
        length = rows[0].object_length
        spans = sorted(dict.fromkeys(row.span for row in rows), key=_by_start)
        if any(row.recent for row in rows) and length <= whole_bytes_max:
            reads.append(Read(object_id, 0, length, tuple(spans), whole=True))
        else:
            reads.extend(_ranges(object_id, spans))
    return reads


def plan_ranges(pieces: Iterable[Piece]) -> list[Read[Piece]]:
    """Reads that together bring every page, or part of a span, each by one of them."""
    by_object: dict[ObjectId, list[Piece]] = {}
    for piece in dict.fromkeys(pieces):
        by_object.setdefault(piece.object_id, []).append(piece)
    return [
        read
        for object_id, rows in by_object.items()
        for read in _ranges(object_id, sorted(rows, key=_by_start))
    ]


def _by_start(piece: Span | Page | SpanPart) -> int:
    return piece.start


def _ranges(object_id: ObjectId, pieces: Sequence[Piece]) -> Iterable[Read[Piece]]:
    """Merge pieces, sorted by their start, to ranges."""
    group: list[Piece] = []
    for piece in pieces:
        end = piece.start + piece.length
        if group:
            gap = piece.start - (group[-1].start + group[-1].length)
            if gap > GAP_BYTES_MAX or end - group[0].start > RANGE_BYTES_MAX:
                yield _range(object_id, group)
                group = []
        group.append(piece)
    if group:
        yield _range(object_id, group)


def _range(object_id: ObjectId, pieces: Sequence[Piece]) -> Read[Piece]:
    start = pieces[0].start
    length = pieces[-1].start + pieces[-1].length - start
    return Read(object_id, start, length, tuple(pieces), whole=False)
