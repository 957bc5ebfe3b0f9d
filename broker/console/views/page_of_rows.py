"""A long list, cut into pages that can be searched. Pure.

What holds: a page has at most ROWS_MAX rows, and its number is one that there is.
"""

from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

ROWS_MAX: Final = 100
SEARCH_MAX: Final = 249
"""Characters; names of topics have no more."""

Item = TypeVar("Item")


class Asked(NamedTuple):
    """What somebody wants to see of a list."""

    search: str = ""
    """Part of a name, in upper or lower case; "": all."""
    number: int = 1
    """Of the page."""


class PageOfRows(NamedTuple, Generic[Item]):
    """One page of what was found."""

    rows: list[Item]
    asked: Asked
    """With the number of the page that this is."""
    found: int
    total: int
    """In the list, found or not."""

    @property
    def last(self) -> int:
        """Number of the last page."""
        return max(1, -(-self.found // ROWS_MAX))

    @property
    def first_row(self) -> int:
        """Its number among all that was found; 0: there is none."""
        return (self.asked.number - 1) * ROWS_MAX + 1 if self.rows else 0


def asked_of(search: str, number: str) -> Asked:
    """What a query says; a number that is none is the first page's."""
    is_number = number.isascii() and number.isdigit() and len(number) < 9
    return Asked(search.strip()[:SEARCH_MAX], max(1, int(number)) if is_number else 1)


def page_of(names: Iterable[str], asked: Asked) -> PageOfRows[str]:
    """The page that is asked for, or the last one, of names in their order."""
    names = list(names)
    word = asked.search.casefold()
    found = sorted(name for name in names if word in name.casefold()) if word else sorted(names)
    last = max(1, -(-len(found) // ROWS_MAX))
    number = min(asked.number, last)
    rows = found[(number - 1) * ROWS_MAX : number * ROWS_MAX]
    return PageOfRows(rows, asked._replace(number=number), len(found), len(names))
