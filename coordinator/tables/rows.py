"""Rows of a partition as a packed column: 32 bytes each, and 48 more for a page.

A row is a span, a marker (its length is 0) or a page (the slot is that of an index object). What
does not fit into a page's row is in the column of pages, in the order of their base offsets.

Functions over the two columns; where the last row ends, they say nothing about. Pure.
"""

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

from coordinator.tables.objects import KIND_MASK
from storage.formats.spans import ObjectKind

# Writer's slot, number of the object, start, length; base offset; newest timestamp.
SPAN: Final = Struct("=IIIIqq")
ROW_BYTES: Final = SPAN.size
assert ROW_BYTES <= 32

# Producer id; epoch and whether it commits; length (0); base offset; the writer's clock.
MARKER: Final = Struct("=qIIqq")
assert MARKER.size == ROW_BYTES

# Base offset; rows; nothing; bytes of the spans; those in segments; digest of the body.
_PAGE: Final = Struct("=qIIQQ16s")
PAGE_BYTES: Final = _PAGE.size
_PAGE_WORDS: Final = PAGE_BYTES // 8

_PLACE: Final = Struct("=IIII")
_LENGTH: Final = Struct("=I")
_LENGTH_AT: Final = 12
_OFFSET: Final = Struct("=q")
_OFFSET_AT: Final = 16
_TIMESTAMP_AT: Final = 24

# The same as eight-byte words, to search in columns without unpacking.
_WORDS: Final = ROW_BYTES // 8
_OFFSET_WORD: Final = 2
_TIMESTAMP_WORD: Final = 3


class PageSums(NamedTuple):
    """The counts that a partition keeps of a page, besides the page's row."""

    rows: int
    data_bytes: int
    segment_bytes: int
    digest: bytes


def base_offset(rows: bytearray, index: int) -> int:
    offset: int = _OFFSET.unpack_from(rows, index * ROW_BYTES + _OFFSET_AT)[0]
    return offset


def timestamp(rows: bytearray, index: int) -> int:
    newest: int = _OFFSET.unpack_from(rows, index * ROW_BYTES + _TIMESTAMP_AT)[0]
    return newest


def length(rows: bytearray, index: int) -> int:
    """Bytes in the object: of a span, or of a page's body; 0 for a marker."""
    found: int = _LENGTH.unpack_from(rows, index * ROW_BYTES + _LENGTH_AT)[0]
    return found


def kind(rows: bytearray, index: int) -> ObjectKind | None:
    """Of the object in which the row lies; None for a marker. Index -1: of the last row."""
    slot, _, _, bytes_in_object = _PLACE.unpack_from(rows, index * ROW_BYTES)
    return ObjectKind(slot & KIND_MASK) if bytes_in_object else None


def offsets(rows: bytearray) -> memoryview:
    """The base offsets. Not to be kept: rows cannot grow while it exists."""
    return memoryview(rows).cast("q")[_OFFSET_WORD::_WORDS]


def timestamps(rows: bytearray) -> memoryview:
    """The newest timestamps. Not to be kept, as `offsets`."""
    return memoryview(rows).cast("q")[_TIMESTAMP_WORD::_WORDS]


def page_count(pages: bytearray | None) -> int:
    return len(pages or b"") // PAGE_BYTES


def page(pages: bytearray | None, at_offset: int) -> PageSums:
    """The sums of the page that begins there."""
    assert pages is not None
    place = _page_place(pages, at_offset)
    found, rows, _, data_bytes, segment_bytes, digest = _PAGE.unpack_from(pages, place)
    assert found == at_offset
    return PageSums(rows, data_bytes, segment_bytes, digest)


def paged_rows(pages: bytearray | None) -> int:
    """Spans and markers in all pages."""
    return sum([row[1] for row in _PAGE.iter_unpack(bytes(pages or b""))])


def add_page(pages: bytearray, at_offset: int, sums: PageSums) -> None:
    place = _page_place(pages, at_offset)
    rows, data_bytes, segment_bytes, digest = sums
    pages[place:place] = _PAGE.pack(at_offset, rows, 0, data_bytes, segment_bytes, digest)


def remove_page(pages: bytearray, at_offset: int) -> None:
    place = _page_place(pages, at_offset)
    del pages[place : place + PAGE_BYTES]


def _page_place(pages: bytearray, at_offset: int) -> int:
    """Where the page that begins there is in the column, or belongs."""
    return bisect_left(memoryview(pages).cast("q")[::_PAGE_WORDS], at_offset) * PAGE_BYTES
