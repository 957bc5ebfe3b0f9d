"""Plans which records expire, and which rows are dropped. Pure.

Kafka's rules (`UnifiedLog.deleteOldSegments`) with rows for segments: leading rows go whose newest
record is older than retention.ms by the machine's time (and the wall clock: `JobContext.time_ms`), and leading rows without which there are
still retention.bytes. A row without any timestamp goes with a later one. A page counts as one
row. Both hold only where cleanup.policy has delete; what a client deleted goes anywhere.

Rows of chunks say of their age what producers said. Merging has usually found out what is so; those
that would go before it came are read first (`unread`), and only ever found to be younger.

Rows of a topic that holds them for its export (`frazil.iceberg.retention.hold`) go only when they
are exported, or older than retention.ms and the time of the hold together.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.config.topic_configs import TopicSettings
from broker.jobs.kinds.walk import data_bytes_of, timestamp_of
from coordinator.commands.job_commands import Expiry
from coordinator.commands.table_commands import HeldExpiry
from coordinator.tables.partition import Partition
from storage.formats.spans import ObjectKind, Page, Row, Span

ROWS_PER_COMMAND_MAX: Final = 1000
PARTITIONS_PER_COMMAND_MAX: Final = 500

Read = Mapping[Span, int]
"""Of rows of chunks that were read: the newest timestamp of their records."""
NOTHING: Final[Read] = {}


class Due(NamedTuple):
    """The part of a partition that one command may expire."""

    expiry: Expiry | HeldExpiry
    rows: int


class Hold(NamedTuple):
    """The records that wait for their export."""

    exported: int
    """Everything before is."""
    held_ms: int
    """What is older does not wait any more."""
    old_ms: int
    """In the machine's time, when that began."""
    read: Read

    def keeps(self, row: Row) -> bool:
        return row.next_offset > self.exported and _newest(row, self.read) >= self.old_ms

    def may_end_with(self, row: Row) -> bool:
        """Of a row without a timestamp that is not exported nobody knows how old it is; it goes
        with a later one, as by age."""
        return row.next_offset <= self.exported or timestamp_of(row) >= 0


def due(
    partition: Partition,
    settings: TopicSettings,
    *,
    time_ms: int,
    exported: int = 0,
    read: Read = NOTHING,
) -> Due | None:
    """What is over its topic's limits; None when nothing is. Dead rows are dropped before.

    `exported`: everything before is, as far as is known.
    """
    if not settings.deleted or partition.row_count == 0 or has_dead_rows(partition):
        return None
    aged = sized = (partition.log_start, 0)
    hold = _hold(settings, exported, time_ms, read)
    if settings.retention_ms >= 0:
        aged = _aged(partition, hold, old_ms=time_ms - settings.retention_ms, read=read)
    if settings.retention_bytes >= 0:
        sized = _sized(partition, hold, bytes_max=settings.retention_bytes)
    offset, rows = max(aged, sized)
    if offset <= partition.log_start:
        return None
    expiry = Expiry(
        partition.topic_id,
        partition.partition,
        offset,
        settings.retention_ms if offset == aged[0] else -1,
        settings.retention_bytes if offset == sized[0] else -1,
    )
    return Due(expiry if hold is None else HeldExpiry(*expiry, hold.held_ms), rows)


def holds(found: Due, settings: TopicSettings) -> bool:
    """Whether it is by these settings that the rows are over their limits."""
    expiry = found.expiry
    hold_ms = expiry.held_ms if isinstance(expiry, HeldExpiry) else -1
    return (
        settings.deleted
        and expiry.retention_ms in (-1, settings.retention_ms)
        and expiry.retention_bytes in (-1, settings.retention_bytes)
        and hold_ms == (held_ms(settings) if settings.hold_ms >= 0 else -1)
    )


def unread(partition: Partition, found: Due, read: Read) -> list[Span]:
    """Of the rows that may go for their age, those of which only producers said how old they are,
    in order of offsets."""
    if found.expiry.retention_bytes >= 0 and isinstance(found.expiry, Expiry):
        return []  # There is too much without them.
    rows = map(partition.row, range(found.rows))
    return [
        row
        for row in rows
        if isinstance(row, Span) and row.object_id.kind is ObjectKind.CHUNK and row not in read
    ]


def _newest(row: Row, read: Read) -> int:
    """What apply knows is the row's word; so reading can keep a row, and never let it go."""
    said = timestamp_of(row)
    return max(said, read.get(row, said)) if isinstance(row, Span) else said


def held_ms(settings: TopicSettings) -> int:
    """How old records become that are not exported, when they are held for it."""
    return max(settings.retention_ms, 0) + settings.hold_ms


def _hold(settings: TopicSettings, exported: int, time_ms: int, read: Read) -> Hold | None:
    if settings.hold_ms < 0:
        return None
    return Hold(exported, held_ms(settings), time_ms - held_ms(settings), read)


def _stable_rows(partition: Partition, hold: Hold | None) -> Iterator[Row]:
    """Rows from the log start on that may go now, as many as one command may name."""
    for index in range(min(ROWS_PER_COMMAND_MAX, partition.row_count)):
        row = partition.row(index)
        if row.next_offset > partition.last_stable or (hold is not None and hold.keeps(row)):
            return
        yield row


def _aged(partition: Partition, hold: Hold | None, *, old_ms: int, read: Read) -> tuple[int, int]:
    """Behind the last of the leading rows that are older, and how many they are."""
    found = (partition.log_start, 0)
    for count, row in enumerate(_stable_rows(partition, hold), start=1):
        if _newest(row, read) >= old_ms:
            break
        if timestamp_of(row) >= 0 and (not isinstance(row, Span) or read.get(row, 0) >= 0):
            found = (row.next_offset, count)
    return found


def _sized(partition: Partition, hold: Hold | None, *, bytes_max: int) -> tuple[int, int]:
    """Behind the last of the leading rows that are too much, and how many they are."""
    found = (partition.log_start, 0)
    if partition.data_bytes <= bytes_max:
        return found
    left = partition.data_bytes
    for count, row in enumerate(_stable_rows(partition, hold), start=1):
        left -= data_bytes_of(row)
        if left < bytes_max:
            break
        if hold is None or hold.may_end_with(row):
            found = (row.next_offset, count)
    return found


def first_page(partition: Partition) -> Page | None:
    """The page that must come back before rows in front can be dropped; None when none must."""
    if not has_dead_rows(partition):
        return None
    row = partition.row(0)
    return row if isinstance(row, Page) else None


def has_dead_rows(partition: Partition) -> bool:
    """Whether rows lie wholly before the log start."""
    return partition.row_count > 0 and partition.row(0).next_offset <= partition.log_start
