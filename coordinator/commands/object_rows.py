"""Objects, and rows that move into objects, by hand: where one lies goes on from the one before.

    objects       runs of one incarnation and kind: these, how many, and of each the distance of its
                  number from the one that would follow
    replacements  base offset, offsets, how many rows, digest, spans, clean to + 1; per span:
                  distance of its start from the end of the one before, length, distance of its base
                  offset from that of the one before, newest timestamp likewise
    pages         base offset, offsets, how many rows, distance of the start from the end of the page
                  before, length, digest

Of replacements and pages, `runs.rows_of` writes the topic and the partition.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Annotated, Any, Final

from coordinator.commands.encoding import (
    U32,
    U63,
    CodecError,
    put_number,
    put_varint,
    put_zigzag,
    read_number,
    read_zigzag,
)
from coordinator.commands.layout import Layout, fixed, member_of, number
from protocol.types import Incarnation
from storage.formats.page import DIGEST_BYTES
from storage.formats.spans import ObjectId, ObjectKind

_DIGEST: Final = fixed(DIGEST_BYTES, "a digest")
_KIND: Final = member_of(ObjectKind)
_CLEAN_TO: Final = number(U63 - 1, least=-1)


# Objects.


def _put_objects(out: bytearray, objects: tuple[ObjectId, ...]) -> None:
    runs = [(key, [*run]) for key, run in groupby(objects, lambda each: (each[0], each[2]))]
    put_varint(out, len(runs))
    for (incarnation, kind), run in runs:
        put_number(out, incarnation, U63)
        _KIND.put(out, kind)
        put_varint(out, len(run))
        following = 0
        for each in run:
            put_zigzag(out, _within(each.number, U32, "object") - following)
            following = each.number + 1


def _read_objects(data: bytes, at: int) -> tuple[tuple[ObjectId, ...], int]:
    run_count, at = read_number(data, at, len(data))
    objects = []
    for _ in range(run_count):
        incarnation, at = read_number(data, at, U63)
        kind, at = _KIND.read(data, at)
        count, at = read_number(data, at, len(data))
        following = 0
        for _ in range(count):
            distance, at = read_zigzag(data, at)
            found = _within(following + distance, U32, "object")
            objects.append(ObjectId(Incarnation(incarnation), found, kind))
            following = found + 1
    return tuple(objects), at


Objects = Annotated[tuple[ObjectId, ...], Layout(_put_objects, _read_objects)]


# Rows that move.


class _Replacements:
    """Of one command."""

    def __init__(self, span: Callable[[int, int, int, int], tuple[int, int, int, int]]) -> None:
        self._span = span
        self._end = 0

    def put(self, out: bytearray, row: Any) -> None:
        _put_named(out, row)
        _DIGEST.put(out, row.digest)
        put_varint(out, len(row.spans))
        offset, timestamp = row.base_offset, 0
        for span in row.spans:
            self._end = _put_place(out, span.start, span.length, self._end)
            put_zigzag(out, _within(span.base_offset, U63, "a span at offset") - offset)
            put_zigzag(out, _timestamp(span.timestamp_max) - timestamp)
            offset, timestamp = span.base_offset, span.timestamp_max
        _CLEAN_TO.put(out, row.clean_to)

    def read(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        base_offset, next_offset, rows, at = _read_named(data, at)
        digest, at = _DIGEST.read(data, at)
        count, at = read_number(data, at, len(data))
        spans = []
        offset, timestamp = base_offset, 0
        for _ in range(count):
            start, length, at = _read_place(data, at, self._end)
            self._end = start + length
            distance, at = read_zigzag(data, at)
            offset = _within(offset + distance, U63, "a span at offset")
            later, at = read_zigzag(data, at)
            timestamp = _timestamp(timestamp + later)
            spans.append(self._span(start, length, offset, timestamp))
        clean_to, at = _CLEAN_TO.read(data, at)
        return (base_offset, next_offset, rows, digest, tuple(spans), clean_to), at


class _Pages:
    """Of one command."""

    def __init__(self) -> None:
        self._end = 0

    def put(self, out: bytearray, row: Any) -> None:
        _put_named(out, row)
        self._end = _put_place(out, row.start, row.length, self._end)
        _DIGEST.put(out, row.digest)

    def read(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        base_offset, next_offset, rows, at = _read_named(data, at)
        start, length, at = _read_place(data, at, self._end)
        self._end = start + length
        digest, at = _DIGEST.read(data, at)
        return (base_offset, next_offset, rows, start, length, digest), at


def replacements_of(
    span: Callable[[int, int, int, int], tuple[int, int, int, int]],
) -> Callable[[], Layout[Any]]:
    """For `rows_of`: rows of offsets, how many, digest, spans and clean to."""

    def of_a_command() -> Layout[Any]:
        rows = _Replacements(span)
        return Layout(rows.put, rows.read)

    return of_a_command


def pages() -> Layout[Any]:
    """For `rows_of`: rows of offsets, how many, start, length and digest."""
    rows = _Pages()
    return Layout(rows.put, rows.read)


def _put_named(out: bytearray, row: Any) -> None:
    if not 0 <= row.base_offset < row.next_offset <= U63:
        raise CodecError(f"rows from {row.base_offset} to {row.next_offset}")
    put_varint(out, row.base_offset)
    put_varint(out, row.next_offset - row.base_offset)
    put_number(out, row.rows, U32)


def _read_named(data: bytes, at: int) -> tuple[int, int, int, int]:
    base_offset, at = read_number(data, at, U63)
    count, at = read_number(data, at, U63)
    next_offset = base_offset + count
    if not base_offset < next_offset <= U63:
        raise CodecError(f"rows from {base_offset} to {next_offset}")
    rows, at = read_number(data, at, U32)
    return base_offset, next_offset, rows, at


def _put_place(out: bytearray, start: int, length: int, end: int) -> int:
    """Writes bytes of an object, behind those that end at `end`. Returns where they end."""
    if not (0 <= start <= U32 and 0 < length <= U32):
        raise CodecError(f"{length} bytes at {start}")
    put_zigzag(out, start - end)
    put_varint(out, length)
    return start + length


def _read_place(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    distance, at = read_zigzag(data, at)
    length, at = read_number(data, at, U32)
    start = end + distance
    if not (0 <= start <= U32 and length > 0):
        raise CodecError(f"{length} bytes at {start}")
    return start, length, at


def _within(value: int, most: int, what: str) -> int:
    if not 0 <= value <= most:
        raise CodecError(f"{what} {value}")
    return value


def _timestamp(timestamp: int) -> int:
    if not -U63 - 1 <= timestamp <= U63:
        raise CodecError(f"timestamp {timestamp}")
    return timestamp
