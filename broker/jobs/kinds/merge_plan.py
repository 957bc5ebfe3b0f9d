"""Which adjacent rows of a partition are to become one span of a segment. Pure.

Rows are looked at from the newest back to the first that is too big to be moved again, or a page:
what lies before has been looked at when it was new, and is again now and then. Among those that
are old enough and stable:

* A run is merged when none of its rows is more than a quarter of it. So every byte is moved about
  log4(n) times, and what cannot be merged grows so fast from row to row that there are O(log n)
  rows below the size that is not moved any more.
* What still lies in chunks after a while is moved whether or not that makes fewer rows: a chunk
  has batches of many partitions and goes with the last of them.
* So is what lies in objects of which little is used any more (`sparse_objects`).

A run is at most a segment's span in size, at most a part of the topic's time limits wide (a span
goes with its newest record), and does not cross the place to which the partition is compacted.

Age is that of timestamps by the machine's time; clients may say what they like there, so a row
is also old when a later one is, or when many came after it.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from broker.jobs.kinds.walk import moved_bytes_of, timestamp_of
from coordinator.tables.partition import Partition
from storage.formats.segment import FORMAT
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span

FANIN: Final = 4
"""A run is at least so many times its biggest row."""
RUN_ROWS_MAX: Final = 1000
NEW_ROWS_MAX: Final = 64
"""Rows with more than so many behind them are old, whatever their timestamps say."""
LOOK_ROWS_MAX: Final = 8192
SETTLED_AGES: Final = 5
"""After so many times the age of merging nothing stays in a chunk."""
GARBAGE_SHARE_MAX: Final = 0.08
"""Of the bytes that are used: objects may have so much more, all together."""


class Limits(NamedTuple):
    """What holds for one partition."""

    age_ms: int
    span_bytes_max: int
    width_ms_max: int | None = None
    """How far apart the newest timestamps of a run's rows may be."""


class Run(NamedTuple):
    """Adjacent rows that become one span."""

    partition: Partition
    rows: tuple[Span | Marker, ...]

    @property
    def base_offset(self) -> int:
        return self.rows[0].base_offset

    @property
    def next_offset(self) -> int:
        return self.rows[-1].next_offset

    @property
    def length(self) -> int:
        """Bytes in a segment, at most."""
        return sum([moved_bytes_of(row) for row in self.rows])


def runs(
    partition: Partition,
    limits: Limits,
    *,
    time_ms: int,
    sparse: Collection[ObjectId] = (),
    everything: bool = False,
) -> list[Run]:
    """What is to be merged now, in order of offsets; usually nothing. `everything`: also look at
    what lies before rows that are not moved any more."""
    if partition.row_count == 0:
        return []
    if not everything and partition.segment_bytes == partition.data_bytes:
        # Nothing is new: what may be merged was when the last of it came out of a chunk.
        return []
    found: list[Run] = []
    for rows in _stretches(partition, limits, everything=everything):
        old = _older(partition, rows, time_ms - limits.age_ms)
        settled = _older(partition, rows, time_ms - SETTLED_AGES * limits.age_ms)
        begin = 0
        for first, end in worth_merging(rows[:old], limits):
            found += _must_move(partition, rows[begin:first], settled - begin, sparse, limits)
            found.append(Run(partition, tuple(rows[first:end])))
            begin = end
        found += _must_move(partition, rows[begin:old], settled - begin, sparse, limits)
    return found


def _stretches(
    partition: Partition, limits: Limits, *, everything: bool
) -> list[list[Span | Marker]]:
    """Adjacent rows in memory that may be merged with each other, oldest first."""
    stretches: list[list[Span | Marker]] = [[]]
    looked_at = 0
    for index in range(partition.row_count - 1, -1, -1):
        row = partition.row(index)
        if row.next_offset <= partition.log_start or looked_at == LOOK_ROWS_MAX:
            break
        ends = isinstance(row, Page) or (
            row.length * FANIN > limits.span_bytes_max and row.object_id.kind is ObjectKind.SEGMENT
            if isinstance(row, Span)
            else False
        )
        if ends and not everything:
            break
        if isinstance(row, Page) or row.next_offset == partition.clean_to:
            stretches.append([])
        if not isinstance(row, Page):
            looked_at += 1
            if row.next_offset <= partition.last_stable:
                stretches[-1].append(row)
    return [stretch[::-1] for stretch in reversed(stretches) if stretch]


def _older(partition: Partition, rows: Sequence[Span | Marker], old_ms: int) -> int:
    """How many of the rows, from the first, are older than that."""
    behind = partition.row_count - partition.find(rows[-1].base_offset) - 1
    many = max(0, min(len(rows), len(rows) + behind - NEW_ROWS_MAX))
    for count in range(len(rows), many, -1):
        if timestamp_of(rows[count - 1]) < old_ms:
            return count
    return many


def worth_merging(rows: Sequence[Span | Marker], limits: Limits) -> list[tuple[int, int]]:
    """Runs [first, end) without a row of more than a quarter; they do not overlap."""
    sizes = [moved_bytes_of(row) for row in rows]
    stamps = [timestamp_of(row) for row in rows]
    found: list[tuple[int, int]] = []
    first = 0
    while first <= len(rows) - FANIN:
        end = _reach(sizes, stamps, first, limits)
        biggest = max(range(first, end), key=sizes.__getitem__)
        if sum(sizes[first:end]) >= FANIN * sizes[biggest]:
            found.append((first, end))
            first = end
            continue
        before = sizes[first:biggest]
        if before and sum(before) >= FANIN * max(before):
            found.append((first, biggest))
        first = biggest + 1
    return found


def _reach(sizes: Sequence[int], stamps: Sequence[int], first: int, limits: Limits) -> int:
    """How far a run from `first` may reach; one row it always has."""
    total = 0
    oldest = newest = -1
    for index in range(first, min(first + RUN_ROWS_MAX, len(sizes))):
        total += sizes[index]
        stamp = stamps[index]
        if stamp >= 0:
            oldest = stamp if oldest < 0 else min(oldest, stamp)
            newest = max(newest, stamp)
        wide = limits.width_ms_max is not None and newest - oldest > limits.width_ms_max
        if index > first and (total > limits.span_bytes_max or wide):
            return index
    return min(first + RUN_ROWS_MAX, len(sizes))


def _must_move(
    partition: Partition,
    rows: Sequence[Span | Marker],
    settled: int,
    sparse: Collection[ObjectId],
    limits: Limits,
) -> list[Run]:
    """Runs of rows that cannot stay where they are; `settled`: so many have lain long enough."""
    sizes = [moved_bytes_of(row) for row in rows]
    stamps = [timestamp_of(row) for row in rows]
    moving = [
        isinstance(row, Span)
        and (
            (index < settled and row.object_id.kind is ObjectKind.CHUNK) or row.object_id in sparse
        )
        for index, row in enumerate(rows)
    ]
    found: list[Run] = []
    first = 0
    while first < len(rows):
        if not moving[first]:
            first += 1
            continue
        reach = _reach(sizes, stamps, first, limits)
        end = first + 1
        while end < reach and (moving[end] or isinstance(rows[end], Marker)):
            end += 1
        found.append(Run(partition, tuple(rows[first:end])))
        first = end
    return found


class Use(NamedTuple):
    """The bytes of one object that rows point at."""

    data_bytes: int
    rows: int


def add_used(used: dict[ObjectId, Use], rows: Iterable[Span | Marker]) -> None:
    """Count what the rows use of segments. Chunks are left by all rows anyway."""
    for row in rows:
        if isinstance(row, Span) and row.object_id.kind is ObjectKind.SEGMENT:
            data_bytes, count = used.get(row.object_id, _UNUSED)
            used[row.object_id] = Use(data_bytes + row.length, count + 1)


def sparse_objects(
    used: Mapping[ObjectId, Use], lengths: Mapping[ObjectId, int]
) -> frozenset[ObjectId]:
    """Which segments are to be emptied, that all together hold little that nobody uses.

    `lengths`: of the objects in `used`. Those that give back most for what has to be moved come
    first. What an object needs beside its data is not counted: it would be the same in another.
    """
    garbage = {
        object_id: lengths[object_id] - FORMAT.length(data_bytes=data_bytes, pieces=rows)
        for object_id, (data_bytes, rows) in used.items()
    }
    spare = sum(garbage.values()) - round(
        GARBAGE_SHARE_MAX * sum([each.data_bytes for each in used.values()])
    )
    found: set[ObjectId] = set()
    for object_id in sorted(used, key=lambda one: (used[one].data_bytes / lengths[one], one)):
        if spare <= 0:
            break
        if garbage[object_id] > 0:
            found.add(object_id)
            spare -= garbage[object_id]
    return frozenset(found)


class PagedObjects:
    """Where the rows lie that are in pages: of each page four bytes an object, since such rows may be millions."""

    def __init__(self) -> None:
        self._numbers: dict[ObjectId, int] = {}
        """The objects, in the order in which they were met."""
        self._pages: list[tuple[Partition, Page, array[int]]] = []

    def add(self, partition: Partition, page: Page, inside: Iterable[Span | Marker]) -> None:
        """A page, and the rows in it."""
        numbers = self._numbers
        found = {row.object_id: None for row in inside if isinstance(row, Span)}
        of_page = array("I", [numbers.setdefault(each, len(numbers)) for each in found])
        self._pages.append((partition, page, of_page))

    def to_recall(
        self, sparse: Collection[ObjectId], *, rows_max: int
    ) -> Iterator[tuple[Partition, Page]]:
        """The pages with rows that are to leave their objects: chunks, and those that are sparse. At least one, if
        there is one, and not more rows than that."""
        leaving = {
            number
            for object_id, number in self._numbers.items()
            if object_id.kind is ObjectKind.CHUNK or object_id in sparse
        }
        rows = 0
        for partition, page, of_page in self._pages:
            if leaving.isdisjoint(of_page):
                continue
            if rows and rows + page.rows > rows_max:
                return
            rows += page.rows
            yield partition, page


_UNUSED: Final = Use(0, 0)
