"""Tables of text. Pure.

What holds: a column is as wide as its widest cell, numbers are flush right. A line knows how it is said within a width, as
a terminal has it: the widest columns of text give way first, and what is cut ends in "…". Nothing is cut elsewhere, and
nothing of a number ever.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, Self

Cell = str | int | None
"""None is printed as a dash."""
GAP: Final = "  "
NARROWEST: Final = 8
"""Of a column that gives way."""
CUT: Final = "…"


class _Columns:
    """How wide the columns of one table are, and which have numbers."""

    def __init__(self, texts: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
        self.numeric = numeric
        self._widths = tuple(max(map(len, column)) for column in zip(*texts, strict=True))
        self.widths = cache(self._within)

    def _within(self, width: int | None) -> tuple[int, ...]:
        """The widths of columns that take no more than `width` together, if that can be."""
        widths = [*self._widths]
        if width is None:
            return self._widths
        over = sum(widths) + len(GAP) * (len(widths) - 1) - width
        while over > 0:
            wide = [
                index
                for index, right in enumerate(self.numeric)
                if not right and widths[index] > NARROWEST
            ]
            if not wide:
                break
            widest = max(wide, key=widths.__getitem__)
            widths[widest] -= 1
            over -= 1
        return tuple(widths)


class TableLine(str):
    """A line of a table."""

    __slots__ = ("_cells", "_columns")
    _cells: Sequence[str]
    _columns: _Columns

    def __new__(cls, cells: Sequence[str], columns: _Columns) -> Self:
        line = super().__new__(cls, _joined(cells, columns, None))
        line._cells = cells
        line._columns = columns
        return line

    def within(self, width: int) -> str:
        """The line for a terminal with so many columns."""
        return _joined(self._cells, self._columns, width)


def _joined(cells: Sequence[str], columns: _Columns, width: int | None) -> str:
    widths = columns.widths(width)
    parts = [
        cell.rjust(wide) if right else _cut(cell, wide).ljust(wide)
        for cell, wide, right in zip(cells, widths, columns.numeric, strict=True)
    ]
    return GAP.join(parts).rstrip()


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - len(CUT)] + CUT


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Lines with aligned columns, the first of them the headers."""
    numeric = [any(isinstance(row[index], int) for row in rows) for index in range(len(headers))]
    texts = [list(headers)]
    texts += [["-" if cell is None else str(cell) for cell in row] for row in rows]
    columns = _Columns(texts, numeric)
    return [TableLine(cells, columns) for cells in texts]
