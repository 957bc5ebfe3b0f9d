"""Which offsets are to be read for a page of records, and what the page is once they were. Pure.

Onwards a partition is read from its place to its end. Back it is read window by window, each from its low end, since
fetches go onwards; a window is as long as its bytes allow, and counts when all of it was read, so nothing newer is left
out. Records of several partitions are merged by their timestamps; those of one keep their order.

What holds: places of the next page are such that no record is left out and none is there twice, wherever reading was
stopped (`RecordSearch.further`).
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.console.views.record_batches import FoundRecord, Kept

WINDOW_GROWS: Final = 4
"""By so much, where a window had nothing to show."""
PARTITION_BYTES_MIN: Final = 64 * 1024

BytesBetween = Callable[[int, int, int], int]
"""Of the records between two offsets, about, and not much more than is enough."""


class RangeToRead(NamedTuple):
    """What is to be fetched of a partition."""

    partition: int
    offset: int
    first: int
    """Records before it are of no use, though they come in the same batch."""
    stop: int
    """Nor are those from here on."""
    most: int
    """So many are kept (`record_batches.Kept`)."""


class Range(NamedTuple):
    """What was looked at of a partition."""

    partition: int
    first: int
    stop: int


class Place:
    """One partition: how far it was read."""

    def __init__(
        self, partition: int, low: int, high: int, at: int, bytes_between: BytesBetween
    ) -> None:
        """There is something in [low, high); reading begins at `at`."""
        self.partition = partition
        self.low = low
        self.high = high
        self.begun = self.at = min(max(at, low), high)
        """`at`: onwards the next offset to be read; back, all from it on was read."""
        self.bytes_between = bytes_between
        self.found: list[FoundRecord] = []
        """In the order of reading."""
        self.is_stuck = False
        """It cannot be read on; a note says why."""


class _Window:
    """A stretch that is read for what is before a place."""

    def __init__(self, first: int, stop: int) -> None:
        self.first = first
        self.stop = stop
        self.at = first
        self.is_new = True
        self.found: list[FoundRecord] = []


class RecordSearch:
    """Of one page."""

    def __init__(
        self,
        places: Sequence[Place],
        *,
        goes_back: bool,
        limit: int,
        window: int,
        window_max: int,
        bytes_max: int,
    ) -> None:
        """`limit`: records of the page; `window`: offsets that are read at once, going back, at first; `bytes_max`: of
        the page, about."""
        self.places = places
        self.goes_back = goes_back
        self._limit = limit
        self._window = window
        self._window_max = window_max
        self._bytes_each = max(bytes_max // (2 * max(1, len(places))), PARTITION_BYTES_MIN)
        self._windows: dict[int, _Window] = {}

    def wanted(self, *, begins: bool) -> list[RangeToRead]:
        """What is to be read next; none: the page has all that it shows, or there is no more. Not `begins`: only what
        was begun, and is of no use unless it is ended."""
        if not self.goes_back:
            return [
                RangeToRead(
                    each.partition, each.at, each.at, each.high, self._limit - len(each.found)
                )
                for each in self.places
                if begins
                and each.at < each.high
                and len(each.found) < self._limit
                and not each.is_stuck
            ]
        if (
            begins
            and not self._windows
            and sum(len(each.found) for each in self.places) < self._limit
        ):
            for each in self.places:
                if each.at > each.low and not each.is_stuck:
                    self._windows[each.partition] = _Window(self._begin(each), each.at)
            self._window = min(self._window * WINDOW_GROWS, self._window_max)
        lows = {each.partition: each.low for each in self.places}
        return [
            # What comes in the same batch as the window's beginning need not be read again.
            RangeToRead(
                number,
                window.at,
                lows[number] if window.is_new else window.at,
                window.stop,
                self._limit,
            )
            for number, window in self._windows.items()
        ]

    def _begin(self, place: Place) -> int:
        """Where a window begins that ends at the place: some offsets before it, of not too many bytes."""
        stop, most = place.at, self._bytes_each
        first = max(place.low, stop - self._window)
        if place.bytes_between(first, stop, most + 1) <= most:
            return first
        last = stop - 1
        while first < last:
            middle = (first + last) // 2
            if place.bytes_between(middle, stop, most + 1) <= most:
                last = middle
            else:
                first = middle + 1
        return first

    def took(self, partition: int, kept: Kept) -> None:
        """Records were found in a stretch that begins at or before what was wanted, or was cut."""
        place = next(each for each in self.places if each.partition == partition)
        if not self.goes_back:
            place.found += kept.found
            place.at = max(place.at, kept.reached)
            return
        window = self._windows[partition]
        if kept.is_cut:
            window.first = kept.first
            window.found.clear()
        window.first = max(place.low, min(window.first, kept.first))
        window.found += kept.found
        window.at = max(window.at, kept.reached)
        window.is_new = False
        if window.at >= window.stop:
            place.found += reversed(window.found)
            place.at = window.first
            del self._windows[partition]

    def give_up(self, partition: int) -> None:
        """The partition cannot be read on."""
        self._windows.pop(partition, None)
        next(each for each in self.places if each.partition == partition).is_stuck = True

    @property
    def unfinished(self) -> list[int]:
        """Partitions of which something was begun that does not count, since its end was not reached."""
        return list(self._windows)

    # What the page is.

    def page(self) -> list[FoundRecord]:
        """What is shown, in the order of reading."""
        queues = {each.partition: list(each.found) for each in self.places if each.found}
        for queue in queues.values():
            queue.reverse()  # Their first is taken at the end.
        shown: list[FoundRecord] = []
        sign = -1 if self.goes_back else 1
        while queues and len(shown) < self._limit:
            number = min(queues, key=lambda each: (sign * queues[each][-1].record.timestamp, each))
            shown.append(queues[number].pop())
            if not queues[number]:
                del queues[number]
        return shown

    def further(self, shown: Sequence[FoundRecord]) -> dict[int, int]:
        """Where reading goes on behind a page; none: there is no more."""
        taken: dict[int, int] = {}
        for each in shown:
            taken[each.partition] = taken.get(each.partition, 0) + 1
        places: dict[int, int] = {}
        is_more = False
        for place in self.places:
            left = place.found[taken.get(place.partition, 0) :]
            at = place.at
            if left:
                at = left[0].record.offset + (1 if self.goes_back else 0)
            places[place.partition] = at
            is_more |= at > place.low if self.goes_back else at < place.high
        return places if is_more else {}

    def before(self) -> dict[int, int]:
        """Where the other way begins; none: there is nothing."""
        places = {each.partition: each.begun for each in self.places}
        if self.goes_back:
            is_more = any(each.begun < each.high for each in self.places)
        else:
            is_more = any(each.begun > each.low for each in self.places)
        return places if is_more else {}

    def ranges(self) -> list[Range]:
        """What was looked at."""
        return [
            Range(each.partition, min(each.begun, each.at), max(each.begun, each.at))
            for each in self.places
        ]
