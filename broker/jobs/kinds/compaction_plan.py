"""Which partitions of compacted topics are due for compaction, and how far. Pure.

Kafka's rules (`LogToClean`, `LogCleanerManager.grabFilthiestCompactedLog`) with rows for segments.
What lies between the place to which a partition is compacted and the bound is dirty; the bound is
the last stable offset, or the first row with a record younger than min.compaction.lag.ms. A
partition is due when more than min.cleanable.dirty.ratio of its bytes below the bound is dirty, or
when its first dirty row is older than max.compaction.lag.ms. The dirtiest comes first.

Kafka leaves the newest segment alone, and so need not say what follows: little that is young
waits, else a topic that is written now and then would be rewritten each time.
"""

from typing import Final, NamedTuple

from broker.config.config_row import LONG_MAX
from broker.config.topic_configs import TopicSettings
from broker.jobs.kinds.walk import WIDTH_SHARE, data_bytes_of, timestamp_of
from coordinator.tables.partition import Partition

LITTLE_BYTES: Final = 1 << 20
YOUNG_MS: Final = 600_000
"""Less than LITTLE_BYTES of which the first row is not so old wait."""
WINDOW_ROWS_MAX: Final = 1000


class Cleaning(NamedTuple):
    """The range of one partition that is to be compacted."""

    partition: Partition
    dirty_from: int
    """Records from here on have not been compared with what is before."""
    bound: int
    """A row begins there, or the log ends."""
    dirty_bytes: int
    ratio: float


def cleaning(
    partition: Partition, settings: TopicSettings, *, time_ms: int, requested: bool = False
) -> Cleaning | None:
    """What is to be done; None when the partition is not due. `requested`: also if little."""
    if not settings.compacted or partition.row_count == 0:
        return None
    first = partition.find(max(partition.clean_to, partition.log_start))
    if first == partition.row_count:
        return None
    dirty_from = max(partition.row(first).base_offset, partition.log_start)
    bound = dirty_from
    dirty = behind = 0
    for index in range(first, partition.row_count):
        row = partition.row(index)
        length = data_bytes_of(row)
        if behind == 0 and _may_be_cleaned(partition, index, settings, time_ms):
            dirty += length
            bound = row.next_offset
        else:
            behind += max(length, 1)
    if bound == dirty_from or dirty == 0:
        return None
    below = max(partition.data_bytes - behind, dirty)
    ratio = dirty / below
    first_ms = timestamp_of(partition.row(first))
    late = (
        settings.max_compaction_lag_ms < LONG_MAX
        and 0 <= first_ms < time_ms - settings.max_compaction_lag_ms
    )
    if not late and ratio <= settings.min_cleanable_dirty_ratio:
        return None
    waits = dirty < LITTLE_BYTES and first_ms > time_ms - YOUNG_MS
    if waits and not late and not requested:
        return None
    return Cleaning(partition, dirty_from, bound, dirty, ratio)


def _may_be_cleaned(
    partition: Partition, index: int, settings: TopicSettings, time_ms: int
) -> bool:
    row = partition.row(index)
    if row.next_offset > partition.last_stable:
        return False
    lag_ms = settings.min_compaction_lag_ms
    return lag_ms == 0 or timestamp_of(row) <= time_ms - lag_ms


def window_end(
    partition: Partition,
    offset: int,
    bound: int,
    *,
    bytes_max: int,
    width_ms_max: int | None = None,
) -> int:
    """Where the rows end that are rewritten together, from the row at `offset` on; at least one
    row, at most up to `bound`."""
    total = 0
    end = offset
    oldest = newest = -1
    first = partition.find(offset)
    for index in range(first, min(first + WINDOW_ROWS_MAX, partition.row_count)):
        row = partition.row(index)
        total += data_bytes_of(row)
        stamp = timestamp_of(row)
        if stamp >= 0:
            oldest = stamp if oldest < 0 else min(oldest, stamp)
            newest = max(newest, stamp)
        wide = width_ms_max is not None and newest - oldest > width_ms_max
        if row.next_offset > bound or (end > offset and (wide or total > bytes_max)):
            break
        end = row.next_offset
    return end


def window_width_ms_max(settings: TopicSettings) -> int | None:
    """How far apart the timestamps in a window may be: where records also go by their age, what
    is put together goes with the newest of it."""
    if settings.deleted and settings.retention_ms >= 0:
        return settings.retention_ms // WIDTH_SHARE
    return None
