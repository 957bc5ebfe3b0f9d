"""Which rows leave the memory: old ones, oldest first, in pages. Pure.

Rows are spilled where a partition has very many, and everywhere while all partitions together
have more than the setting. What is left in memory are each partition's newest rows, those that
are young, and those above the last stable offset. Rows of a page are moved by no job before it is
recalled, so merging comes first (its age is less), and a page does not cross the place to which
its partition is compacted. Retention lets go of a page as a whole: one is at most a part of the
topic's limits wide.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.config.topic_configs import TopicSettings
from broker.jobs.kinds.walk import WIDTH_SHARE, data_bytes_of, timestamp_of, width_ms_max
from coordinator.tables.partition import Partition
from storage.formats.page import PAGE_ROWS_MAX
from storage.formats.spans import Marker, Page, Span

PAGE_ROWS_MIN: Final = 64
ROWS_LEFT: Final = 64
"""The newest rows of a partition stay in memory."""
PARTITION_ROWS_MAX: Final = 1000
"""More of one partition are spilled also while there is room."""


class Spill(NamedTuple):
    """Adjacent rows that become one page."""

    partition: Partition
    rows: tuple[Span | Marker, ...]


def has_many(partition: Partition, *, crowded: bool) -> bool:
    """Whether rows of the partition are to be spilled if they are old. `crowded`: all together
    have more than they should."""
    limit = ROWS_LEFT + PAGE_ROWS_MIN if crowded else PARTITION_ROWS_MAX + 1
    return partition.row_count - partition.page_count >= limit


def spills(
    partition: Partition,
    settings: TopicSettings,
    *,
    time_ms: int,
    age_ms: int,
    crowded: bool,
) -> list[Spill]:
    """Pages to make of the partition's rows, in order of offsets; at most ten of them."""
    if not has_many(partition, crowded=crowded):
        return []
    found: list[Spill] = []
    stretch: list[Span | Marker] = []
    first = partition.find(partition.log_start)
    for index in range(first, partition.row_count - ROWS_LEFT):
        row = partition.row(index)
        if len(found) == 10 or row.next_offset > partition.last_stable:
            break
        if isinstance(row, Page) or row.base_offset == partition.clean_to:
            _add(found, partition, stretch)
            stretch = []
        if isinstance(row, Page) or row.base_offset < partition.log_start:
            continue
        if timestamp_of(row) >= time_ms - age_ms:
            break
        if stretch and not _fits(stretch, row, settings):
            _add(found, partition, stretch)
            stretch = []
        stretch.append(row)
    _add(found, partition, stretch)
    return found


def _add(found: list[Spill], partition: Partition, rows: Sequence[Span | Marker]) -> None:
    if len(rows) >= PAGE_ROWS_MIN:
        found.append(Spill(partition, tuple(rows)))


def _fits(rows: Sequence[Span | Marker], row: Span | Marker, settings: TopicSettings) -> bool:
    """Whether one more row may come into the page; compared with its first one only, which is
    near enough, and cheap."""
    if len(rows) == PAGE_ROWS_MAX:
        return False
    if not settings.deleted:
        return True
    if settings.retention_bytes >= 0:
        length = data_bytes_of(row) * (len(rows) + 1)
        if length * WIDTH_SHARE > settings.retention_bytes:
            return False
    width_ms = width_ms_max(settings)
    return width_ms is None or timestamp_of(row) - timestamp_of(rows[0]) <= width_ms
