"""A span that is cut into pieces: they are read as the span was."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from protocol.records import read_header
from storage.formats.spans import Span
from storage.formats.walk import cut
from tests.storage.rows import HISTORIES, UNHURRIED, History, Row, batches_of
from tests.storage.test_cleaner import clean_once


def assert_same_when_cut(made: History, *, records_max: int) -> None:
    data = iter(made.data)
    rows: list[Row] = []
    contents: list[bytes] = []
    for row in made.rows:
        if not isinstance(row, Span):
            rows.append(row)
            continue
        content = next(data)
        pieces = cut(row, memoryview(content), records_max=records_max)
        assert (pieces[0].base_offset, pieces[-1].next_offset) == (row.base_offset, row.next_offset)
        for before, after in pairwise(pieces):
            assert before.next_offset == after.base_offset
            assert before.start + before.length == after.start
        for piece in pieces:
            start = piece.start - row.start
            contents.append(bytes(content[start : start + piece.length]))
            counts = [read_header(each).record_count for each in batches_of([piece], contents[-1:])]
            assert sum(counts) <= records_max or sorted(counts)[-2:-1] in ([], [0])
        rows += pieces
    assert batches_of(rows, contents) == batches_of(made.rows, made.data)


@UNHURRIED
@given(HISTORIES, st.integers(1, 12))
def test_a_span_that_is_cut_has_the_same_batches_in_pieces_of_few_records(
    made: History, records_max: int
) -> None:
    assert_same_when_cut(made, records_max=records_max)
    assert_same_when_cut(clean_once(made), records_max=records_max)
