"""How much of a table some records may take, whatever they say. Pure.

A *cell* is one value of one column, null or not. Records take cells without taking bytes: each has
one of every column, and an element of a list one of every column in it. So rows are decoded so many
together that their columns are bounded (`rows_max`), and what lists and maps hold is counted before
memory is taken for it (`Cells`).
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

CELLS_MAX: Final = 1 << 22
"""Of rows decoded together, in lists and maps, and beside them; decoding takes some 40 bytes for each."""


class TooManyCellsError(Exception):
    """The records hold more together than is decoded together."""


class Cells:
    """What lists and maps may still hold."""

    __slots__ = ("_left",)

    def __init__(self, count: int = CELLS_MAX) -> None:
        self._left = count

    def take(self, count: int) -> None:
        """Raises TooManyCellsError."""
        self._left -= count
        if self._left < 0:
            raise TooManyCellsError


def rows_max(columns: Iterable[pa.Field], hidden: int = 0) -> int:
    """How many rows of such columns, and so many others, are decoded together."""
    return max(1, CELLS_MAX // max(1, hidden + sum(_width(one.type) for one in columns)))


def _width(kind: pa.DataType) -> int:
    """Columns that a value takes; those of lists and maps are counted with their elements."""
    if pa.types.is_struct(kind):
        return 1 + sum(_width(one.type) for one in kind)
    return 1
