"""Tables of text: whole where nobody says how wide they may be, and cut for a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.reports.tables import CUT, NARROWEST, TableLine, table

HEADS = ("TOPIC", "OFFSET", "CONFIG")
ROWS = [("orders", 12_345, "retention.ms=86400000"), ("x", 7, None)]


def within(lines: list[str], width: int) -> list[str]:
    return [line.within(width) for line in lines if isinstance(line, TableLine)]


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_flush_right() -> None:
    assert table(HEADS, ROWS) == [
        "TOPIC   OFFSET  CONFIG",
        "orders   12345  retention.ms=86400000",
        "x            7  -",
    ]


def test_on_a_narrow_terminal_the_widest_text_gives_way_and_no_number() -> None:
    assert within(table(HEADS, ROWS), 30) == [
        "TOPIC   OFFSET  CONFIG",
        "orders   12345  retention.ms=…",
        "x            7  -",
    ]


def test_a_table_that_fits_is_as_it_was() -> None:
    lines = table(HEADS, ROWS)
    assert within(lines, 37) == lines


def test_what_cannot_be_narrower_runs_over() -> None:
    lines = table(("A", "B"), [("a" * 20, 10**30)])
    assert within(lines, 10)[1] == f"{'a' * (NARROWEST - 1)}{CUT}  {10**30}"


cells = st.one_of(st.text("abc", max_size=40), st.integers(0, 10**12), st.none())


@pytest.mark.parametrize("width", [20, 40, 80])
@given(rows=st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=5))
def test_lines_are_no_wider_than_asked_where_columns_can_give_way(
    rows: list[tuple[str | int | None, ...]], width: int
) -> None:
    lines = table(HEADS, rows)
    numbers = [
        max([len(str(row[index])) for row in rows] + [len(HEADS[index])])
        for index in range(3)
        if any(isinstance(row[index], int) for row in rows)
    ]
    least = sum(numbers) + NARROWEST * (3 - len(numbers)) + 4
    assert all(len(line) <= max(width, least) for line in within(lines, width))
