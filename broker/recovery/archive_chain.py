"""Which archives lead on from a position, and how far. Pure.

An archive holds all entries from one position to another (`storage.formats.log_archive`). Ranges may overlap, and
those of an era that is over may lie beside those of the next one.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from protocol.types import Position
from storage.formats.log_archive import archive_key


class ArchiveRange(NamedTuple):
    """All entries behind `after`, up to and with `last`."""

    after: Position
    last: Position

    @property
    def key(self) -> str:
        return archive_key(self.after, self.last)


class FurthestFirst:
    """Gives out archives that lead on, of those that do the one that ends last. Positions ascend from call to call."""

    def __init__(self, ranges: Iterable[ArchiveRange]) -> None:
        self._left = sorted(ranges, reverse=True)
        self._reached: list[tuple[int, Position]] = []
        """A heap of those that begin before: less their end, their beginning."""

    def next(self, position: Position) -> ArchiveRange | None:
        """Each is given out once. None: none leads on from the position."""
        while self._left and self._left[-1].after <= position:
            after, last = self._left.pop()
            heappush(self._reached, (-last, after))
        if not self._reached or -self._reached[0][0] <= position:
            return None
        less, after = heappop(self._reached)
        return ArchiveRange(after, Position(-less))


def overlapping(
    ranges: Iterable[ArchiveRange], after: Position, last: Position
) -> list[ArchiveRange]:
    """Those that have positions in (after, last], in order."""
    return sorted([each for each in ranges if max(after, each.after) < min(last, each.last)])


def beyond(ranges: Sequence[ArchiveRange], reached: Position) -> list[ArchiveRange]:
    """Those that lie behind a hole: nothing leads to them from there."""
    return [each for each in sorted(ranges) if each.after > reached]
