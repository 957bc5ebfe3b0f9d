"""Which archives lead on from a snapshot, and how far. Pure.

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


def chain(ranges: Iterable[ArchiveRange], position: Position) -> list[ArchiveRange]:
    """As few as possible that reach on from the position without a hole, in order."""
    found: list[ArchiveRange] = []
    reached = position
    best: ArchiveRange | None = None
    for each in sorted(ranges):
        if each.after > reached:
            if best is None or each.after > best.last:
                break
            found.append(best)
            reached, best = best.last, None
        if each.last > (reached if best is None else best.last):
            best = each
    return found if best is None else [*found, best]


def beyond(ranges: Sequence[ArchiveRange], reached: Position) -> list[ArchiveRange]:
    """Those that lie behind a hole: nothing leads to them from there."""
    return [each for each in sorted(ranges) if each.after > reached]
