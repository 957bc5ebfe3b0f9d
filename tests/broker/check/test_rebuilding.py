"""A page is made anew out of spans of segments, or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from broker.check.rebuilding import body_of
from protocol.types import Incarnation
from storage.formats.page import digest, encode_rows
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span

BASE = 100


def spans_over(counts: list[int], number: int) -> list[Span]:
    """Adjacent ones from BASE on, all in that segment."""
    found, offset = [], BASE
    for index, count in enumerate(counts):
        object_id = ObjectId(Incarnation(7), number, ObjectKind.SEGMENT)
        found.append(Span(object_id, 100 * index + 16, 90, offset, count, 1_000 + index))
        offset += count
    return found


def page_of(rows: list[Span | Marker]) -> Page:
    body = encode_rows(rows)
    return Page(
        ObjectId(Incarnation(7), 0, ObjectKind.INDEX),
        16,
        len(body),
        rows[0].base_offset,
        rows[-1].next_offset,
        len(rows),
        sum(row.length for row in rows if isinstance(row, Span)),
        0,
        digest(body),
    )


counts = st.lists(st.integers(1, 3), min_size=1, max_size=6)


@given(counts, st.lists(counts, max_size=3), st.randoms())
def test_the_rows_are_found_among_whatever_else_segments_say_of_the_offsets(chosen, others, rng):
    rows = spans_over(chosen, 5)
    there = [*rows]
    for number, each in enumerate(others):
        there += spans_over(each, number + (number >= 5))
    rng.shuffle(there)
    assert body_of(page_of(rows), there) == encode_rows(rows)


@given(st.lists(st.integers(1, 3), min_size=2, max_size=6), st.data())
def test_where_a_row_is_missing_nothing_is_made_up(chosen, data):
    rows = spans_over(chosen, 5)
    gone = data.draw(st.sampled_from(rows))
    there = [row for row in rows if row != gone]
    # Another segment has the offsets, too, and is not where the log had them.
    there.append(gone._replace(object_id=gone.object_id._replace(number=6)))
    assert body_of(page_of(rows), there) is None


def test_a_page_with_the_end_of_a_transaction_is_not_made_anew():
    first, last = spans_over([2, 2], 5)
    marker = Marker(BASE + 2, 1, 0, commit=True, timestamp=5)
    rows = [first, marker, last._replace(base_offset=BASE + 3)]
    assert body_of(page_of(rows), [first, rows[2]]) is None


def test_offsets_that_countless_segments_have_come_to_an_end():
    rows = spans_over([1] * 40, 99)
    there = [row for number in range(3) for row in spans_over([1] * 40, number)]
    assert body_of(page_of(rows), there) is None
