"""Rows of one partition as bytes: what a page is made of, and what commands name rows by.

    head      version, how many spans, markers and writers
    writers   of the objects: kind, incarnation, the least number of an object of it here
    columns   of all rows: what they are; of spans: number of the object, start, length, records,
              newest timestamp; of markers: producer id, epoch, timestamp

All is little-endian. A column says its least value and the bytes that the differences from it
need, then has the lowest byte of all of them, the next of all, and so on: numbers that are near
each other cost a byte or two, and packing and unpacking need no loop in Python. Equal rows have
equal bytes, so a digest of the bytes is one of the rows; base offsets follow from where the rows
begin and are not in it. `apply` encodes and decodes, so nothing here may depend on a version of
a library: that is why nothing is compressed. Pure.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from protocol.types import Buffer, Incarnation
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Row, Span

PAGE_ROWS_MAX: Final = 1000
VERSION: Final = 1
DIGEST_BYTES: Final = 16

_HEAD: Final = struct.Struct("<BIII")
_WRITER: Final = struct.Struct("<BQI")
_COLUMN: Final = struct.Struct("<qB")
_PAGE: Final = struct.Struct("<QQ16s")
"""Base offset, next offset, digest of the body."""

_ABORT: Final = 0
_COMMIT: Final = 1
_SPAN: Final = 2
"""What a row is: these, the last plus the place of the writer of its object."""

_INT16: Final = (-(1 << 15), (1 << 15) - 1)
_INT64: Final = (-(1 << 63), (1 << 63) - 1)
_UINT32: Final = (0, (1 << 32) - 1)
_OFFSETS: Final = (0, _INT64[1])
_COUNTS: Final = (1, _INT64[1])


class PageFormatError(Exception):
    """The bytes are not rows of a version that is known here, or other rows than expected."""


def digest(body: Buffer) -> bytes:
    """The digest that bodies are compared by."""
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()


def digest_of_rows(rows: Sequence[Row]) -> bytes:
    """The digest of adjacent rows, pages among them: of those, what is in the log."""
    kept = [row for row in rows if not isinstance(row, Page)]
    pages = [row for row in rows if isinstance(row, Page)]
    parts = [encode_rows(kept)]
    parts += [_PAGE.pack(row.base_offset, row.next_offset, row.digest) for row in pages]
    return digest(b"".join(parts))


def encode_rows(rows: Sequence[Span | Marker]) -> bytes:
    """The body of a page; the rows are adjacent. A page has at most PAGE_ROWS_MAX of them."""
    spans = [row for row in rows if isinstance(row, Span)]
    markers = [row for row in rows if isinstance(row, Marker)]
    assert len(spans) + len(markers) == len(rows)
    writers: dict[tuple[int, int], int] = {}
    least: list[int] = []
    places = []
    for incarnation, number, kind in (span.object_id for span in spans):
        place = writers.setdefault((kind, incarnation), len(writers))
        places.append(place)
        if place == len(least):
            least.append(number)
        elif number < least[place]:
            least[place] = number
    place_of = iter(places)
    kinds = [
        _SPAN + next(place_of) if isinstance(row, Span) else _COMMIT if row.commit else _ABORT
        for row in rows
    ]
    parts = [_HEAD.pack(VERSION, len(spans), len(markers), len(writers))]
    for writer, number in zip(writers, least, strict=True):
        parts.append(_WRITER.pack(*writer, number))
    for values in (
        kinds,
        [span.object_id.number - least[at] for span, at in zip(spans, places, strict=True)],
        [span.start for span in spans],
        [span.length for span in spans],
        [span.records for span in spans],
        [span.timestamp_max for span in spans],
        [marker.producer_id for marker in markers],
        [marker.producer_epoch for marker in markers],
        [marker.timestamp for marker in markers],
    ):
        _add_column(parts, values)
    return b"".join(parts)


def _add_column(parts: list[bytes], values: list[int]) -> None:
    if not values:
        return
    least = min(values)
    width = ((max(values) - least).bit_length() + 7) // 8
    parts.append(_COLUMN.pack(least, width))
    if width:
        raw = struct.pack(f"<{len(values)}Q", *[value - least for value in values])
        parts.extend(raw[plane::8] for plane in range(width))


def decode_rows(body: Buffer, *, base_offset: int, next_offset: int) -> tuple[Span | Marker, ...]:
    """The rows again, which reach from `base_offset` to `next_offset`.

    Raises PageFormatError.
    """
    reader = _Reader(body)
    span_count, marker_count, writers = reader.head()
    kinds = reader.column(span_count + marker_count, (0, _SPAN + len(writers) - 1))
    numbers = reader.column(span_count, _UINT32)
    starts = reader.column(span_count, _OFFSETS)
    lengths = reader.column(span_count, _COUNTS)
    counts = reader.column(span_count, _COUNTS)
    timestamps = reader.column(span_count, _INT64)
    producer_ids = reader.column(marker_count, _INT64)
    epochs = reader.column(marker_count, _INT16)
    ends = reader.column(marker_count, _INT64)
    reader.end()
    places = [kind - _SPAN for kind in kinds if kind >= _SPAN]
    if len(places) != span_count:
        raise PageFormatError(f"{len(places)} rows with an object, but {span_count} spans")
    count_of = iter(counts)
    offsets = list(
        accumulate((next(count_of) if kind >= _SPAN else 1 for kind in kinds), initial=base_offset)
    )
    if offsets[-1] != next_offset:
        raise PageFormatError(f"rows from {base_offset} to {offsets[-1]}, not to {next_offset}")
    bases = [offset for offset, kind in zip(offsets, kinds, strict=False) if kind >= _SPAN]
    ids = _object_ids(writers, places, numbers)
    spans: Iterable[Span] = map(Span, ids, starts, lengths, bases, counts, timestamps)
    if not marker_count:
        return tuple(spans)
    span_of = iter(spans)
    marker_of = zip(producer_ids, epochs, ends, strict=True)
    rows: list[Span | Marker] = []
    for offset, kind in zip(offsets, kinds, strict=False):
        if kind >= _SPAN:
            rows.append(next(span_of))
        else:
            producer_id, epoch, timestamp = next(marker_of)
            rows.append(Marker(offset, producer_id, epoch, kind == _COMMIT, timestamp))
    return tuple(rows)


def _object_ids(
    writers: Sequence[tuple[ObjectKind, int, int]], places: Sequence[int], numbers: Sequence[int]
) -> list[ObjectId]:
    ids = []
    for place, above in zip(places, numbers, strict=True):
        kind, incarnation, least = writers[place]
        ids.append(ObjectId(Incarnation(incarnation), least + above, kind))
    return ids


class _Reader:
    def __init__(self, body: Buffer) -> None:
        self._body = memoryview(body)
        self._at = 0

    def _take(self, length: int) -> memoryview:
        taken = self._body[self._at : self._at + length]
        if len(taken) != length:
            raise PageFormatError("rows that end early")
        self._at += length
        return taken

    def head(self) -> tuple[int, int, list[tuple[ObjectKind, int, int]]]:
        version, spans, markers, writer_count = _HEAD.unpack(self._take(_HEAD.size))
        if version != VERSION:
            raise PageFormatError(f"page format {version} is not known here, only {VERSION}")
        if spans + markers > PAGE_ROWS_MAX or writer_count > spans:
            raise PageFormatError(f"{spans} spans, {markers} markers, {writer_count} writers")
        writers = []
        for _ in range(writer_count):
            kind, incarnation, least = _WRITER.unpack(self._take(_WRITER.size))
            if kind not in (ObjectKind.CHUNK, ObjectKind.SEGMENT):
                raise PageFormatError(f"spans in an object of kind {kind}")
            writers.append((ObjectKind(kind), incarnation, least))
        return spans, markers, writers

    def column(self, count: int, limits: tuple[int, int]) -> Sequence[int]:
        if not count:
            return ()
        least, width = _COLUMN.unpack(self._take(_COLUMN.size))
        if width > 8:
            raise PageFormatError(f"a column of {width} bytes")
        if not width:
            values: Sequence[int] = [least] * count
            most = least
        else:
            raw = bytearray(8 * count)
            for plane in range(width):
                raw[plane::8] = self._take(count)
            values = [least + above for above in struct.unpack(f"<{count}Q", raw)]
            most = max(values)
        if least < limits[0] or most > limits[1]:
            raise PageFormatError(f"a column with values from {least} to {most}")
        return values

    def end(self) -> None:
        if self._at != len(self._body):
            raise PageFormatError(f"{len(self._body) - self._at} bytes behind the last column")
