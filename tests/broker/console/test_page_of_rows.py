"""A list is cut into pages that can be searched, and no query of a client breaks it."""

import pytest

from broker.console.views.page_of_rows import ROWS_MAX, SEARCH_MAX, Asked, asked_of, page_of

NAMES = [f"topic-{number:04}" for number in reversed(range(2 * ROWS_MAX + 1))]


def test_pages_follow_each_other_by_name_without_a_gap() -> None:
    pages = [page_of(NAMES, Asked(number=number)) for number in (1, 2, 3)]
    assert [len(page.rows) for page in pages] == [ROWS_MAX, ROWS_MAX, 1]
    assert [name for page in pages for name in page.rows] == sorted(NAMES)
    assert [page.first_row for page in pages] == [1, ROWS_MAX + 1, 2 * ROWS_MAX + 1]
    assert {(page.found, page.total, page.last) for page in pages} == {(len(NAMES), len(NAMES), 3)}


def test_a_page_behind_the_last_is_the_last() -> None:
    assert page_of(NAMES, Asked(number=99)).asked.number == 3
    nothing = page_of([], Asked(number=99))
    assert (nothing.asked.number, nothing.rows, nothing.last, nothing.first_row) == (1, [], 1, 0)


def test_a_search_finds_parts_of_names_in_upper_and_lower_case() -> None:
    page = page_of(["Orders", "payments", "reorders"], Asked("oRDer"))
    assert (page.rows, page.found, page.total) == (["Orders", "reorders"], 2, 3)


@pytest.mark.parametrize("number", ["", "0", "-1", "x", "²", "9" * 40, "1.5"])
def test_a_number_that_is_none_is_the_first_pages(number: str) -> None:
    assert asked_of("a", number) == Asked("a", 1)


def test_a_search_is_as_long_as_a_name() -> None:
    assert asked_of(f"  {'a' * 1000} ", "2") == Asked("a" * SEARCH_MAX, 2)
