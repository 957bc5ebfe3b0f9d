"""Where `frazil consume` begins and ends in partitions, as it is asked for and as offsets. Pure."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Partition = tuple[str, int]


class Place(NamedTuple):
    """A place in every partition."""

    word: str = ""
    """`earliest` or `latest`, else ""."""
    offset: int | None = None
    last: int | None = None
    """So many offsets before the end."""
    time_ms: int | None = None


class Bounds(NamedTuple):
    """Offsets of one partition."""

    first: int
    next: int


def offsets_at(
    place: Place,
    bounds: Mapping[Partition, Bounds],
    at_time: Callable[[int], Mapping[Partition, int | None]],
) -> dict[Partition, int]:
    """Returns the offset that a place is in each partition. `at_time`: the first offset from a time on, None when
    no record is that new."""
    if place.time_ms is not None:
        found = at_time(place.time_ms)
        return {one: bounds[one].next if found[one] is None else found[one] or 0 for one in bounds}
    return {one: _offset_in(place, known) for one, known in bounds.items()}


def _offset_in(place: Place, bounds: Bounds) -> int:
    if place.offset is not None:
        return min(max(place.offset, bounds.first), bounds.next)
    if place.last is not None:
        return max(bounds.next - place.last, bounds.first)
    return bounds.first if place.word == EARLIEST else bounds.next
