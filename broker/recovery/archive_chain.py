"""Which archives lead on from a position, and how far. Pure.

An archive holds all entries from one position to another (`storage.formats.log_archive`). Ranges may overlap, and
those of an era that is over may lie beside those of the next one.
"""

from collections.abc import Iterable, Sequence
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


def furthest(ranges: Iterable[ArchiveRange], position: Position) -> ArchiveRange | None:
    """The one that leads on from the position and ends last; None: none leads on."""
    found = [each for each in ranges if each.after <= position < each.last]
    return max(found, key=lambda each: (each.last, -each.after), default=None)


def overlapping(
    ranges: Iterable[ArchiveRange], after: Position, last: Position
) -> list[ArchiveRange]:
    """Those that have positions in (after, last], in order."""
    return sorted([each for each in ranges if max(after, each.after) < min(last, each.last)])


def beyond(ranges: Sequence[ArchiveRange], reached: Position) -> list[ArchiveRange]:
    """Those that lie behind a hole: nothing leads to them from there."""
    return [each for each in sorted(ranges) if each.after > reached]
