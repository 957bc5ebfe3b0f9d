"""Rows as bytes: pinned, equal for equal rows, and refused when damaged."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.types import Incarnation
from storage.formats import page
from storage.formats.spans import Marker, ObjectId, ObjectKind, Row, Span
from tests.storage.rows import UNHURRIED

CHUNK = ObjectId(Incarnation((1 << 40) + 5), 7)
SEGMENT = ObjectId(Incarnation((1 << 40) + 9), 300, ObjectKind.SEGMENT)

ROWS = (
    Span(CHUNK, 16, 61, 100, 3, 1_700_000_000_000),
    Span(CHUNK._replace(number=9), 5000, 70_000, 103, 1, 1_700_000_000_300),
    Marker(104, 77, 2, True, 1_700_000_000_400),
    Span(SEGMENT, 16, 900, 105, 95, -1),
    Marker(200, 78, 0, False, 1_700_000_000_500),
)

GOLDEN = bytes.fromhex(
    "01030000000200000002000000000500000000010000070000000109000000000100002c0100000000000000"
    "0000000102020103000000000000000000010002001000000000000000020078000013003d00000000000000"
    "0300334700110300010001000000000000000102005effffffffffffffff06012d00686900e5e500cfcf008b"
    "8b000101004d0000000000000001000100000000000000000102009069e5cf8b010000010064"
)


def rows_from(kinds: list[tuple[object, ...]], base_offset: int) -> tuple[Span | Marker, ...]:
    rows: list[Span | Marker] = []
    for kind in kinds:
        if len(kind) == 4:
            rows.append(Marker(base_offset, *kind))
        else:
            object_id, start, length, records, timestamp = kind
            rows.append(Span(object_id, start, length, base_offset, records, timestamp))
        base_offset = rows[-1].next_offset
    return tuple(rows)


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
OBJECTS = st.builds(
    ObjectId,
    st.one_of(st.integers(1, 3), st.integers(0, (1 << 64) - 1)),
    st.integers(0, (1 << 32) - 1),
    st.sampled_from([ObjectKind.CHUNK, ObjectKind.SEGMENT]),
)
SPANS = st.tuples(
    OBJECTS,
    st.integers(0, 1 << 40),
    st.integers(1, 1 << 32),
    st.integers(1, 1 << 31),
    st.one_of(st.integers(-1, 100), INT64),
)
MARKERS = st.tuples(INT64, st.integers(-(1 << 15), (1 << 15) - 1), st.booleans(), INT64)
ROW_LISTS = st.builds(
    rows_from, st.lists(st.one_of(SPANS, MARKERS), max_size=20), st.integers(0, 1 << 40)
)


def bounds(rows: tuple[Span | Marker, ...]) -> dict[str, int]:
    if not rows:
        return {"base_offset": 0, "next_offset": 0}
    return {"base_offset": rows[0].base_offset, "next_offset": rows[-1].next_offset}


def test_the_format_is_pinned() -> None:
    assert page.encode_rows(ROWS) == GOLDEN
    assert page.decode_rows(GOLDEN, **bounds(ROWS)) == ROWS
    assert page.digest(GOLDEN).hex() == "359503de85c2ea4842a35a2949e16014"


@UNHURRIED
@given(ROW_LISTS)
def test_rows_that_were_encoded_are_decoded_again(rows: tuple[Span | Marker, ...]) -> None:
    decoded = page.decode_rows(page.encode_rows(rows), **bounds(rows))
    assert decoded == rows
    assert [type(row) for row in decoded] == [type(row) for row in rows]
    kinds = [row.object_id.kind for row in decoded if isinstance(row, Span)]
    assert all(type(kind) is ObjectKind for kind in kinds)


@UNHURRIED
@given(ROW_LISTS, ROW_LISTS)
def test_bytes_are_equal_only_if_rows_are_but_for_where_they_begin(
    one: tuple[Span | Marker, ...], other: tuple[Span | Marker, ...]
) -> None:
    moved = rows_from([content(row) for row in other], one[0].base_offset if one else 0)
    assert (page.encode_rows(one) == page.encode_rows(other)) == (one == moved)


def content(row: Row) -> tuple[object, ...]:
    if isinstance(row, Marker):
        return row[1:]
    return (*row[:3], *row[4:])


def test_many_spans_of_like_chunks_need_less_than_fourteen_bytes_each() -> None:
    rows = []
    offset = 5_000_000
    for n in range(1000):
        chunk = ObjectId(Incarnation(500 + n % 3), 1000 + n * 2)
        rows.append(
            Span(
                chunk,
                n * 7919 % 8_000_000,
                900 + n % 60_000,
                offset,
                40,
                1_700_000_000_000 + n * 250,
            )
        )
        offset += 40
    assert len(page.encode_rows(rows)) < 14_000


def test_more_rows_than_a_page_may_have_are_not_decoded() -> None:
    rows = [Marker(n, 1, 1, True, 5) for n in range(page.PAGE_ROWS_MAX + 1)]
    most = tuple(rows[:-1])
    assert page.decode_rows(page.encode_rows(most), **bounds(most)) == most
    with pytest.raises(page.PageFormatError, match="markers"):
        page.decode_rows(page.encode_rows(rows), **bounds(tuple(rows)))


def test_rows_that_end_elsewhere_than_expected_are_refused() -> None:
    with pytest.raises(page.PageFormatError, match="to 201"):
        page.decode_rows(page.encode_rows(ROWS), base_offset=100, next_offset=202)


@pytest.mark.parametrize("length", range(len(page.encode_rows(ROWS))))
def test_a_body_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(page.PageFormatError):
        page.decode_rows(page.encode_rows(ROWS)[:length], **bounds(ROWS))


def test_bytes_behind_the_rows_are_refused() -> None:
    with pytest.raises(page.PageFormatError, match="behind"):
        page.decode_rows(page.encode_rows(ROWS) + b"\0", **bounds(ROWS))


@UNHURRIED
@given(st.integers(0, len(page.encode_rows(ROWS)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_gives_other_rows_and_always_another_digest(
    at: int, change: int
) -> None:
    body = bytearray(page.encode_rows(ROWS))
    body[at] ^= change
    assert page.digest(body) != page.digest(page.encode_rows(ROWS))
    with contextlib.suppress(page.PageFormatError):
        assert page.decode_rows(body, **bounds(ROWS)) != ROWS
