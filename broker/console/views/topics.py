"""Topics in a list, and one topic with its partitions. Pure.

What holds: sums are made for the rows of one page alone, of at most PARTITIONS_SUMMED_MAX partitions, and a page of
partitions has at most `page_of_rows.ROWS_MAX`, so a page of a cluster of 100,000 partitions costs milliseconds.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.console.views.page_of_rows import ROWS_MAX, Asked, PageOfRows, page_of
from coordinator.commands.group_commands import GROUP_SHARDS
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from coordinator.tables.topics import Topic


class TopicRow(NamedTuple):
    """A topic in the list."""

    name: str
    partitions: int
    configs: int
    """That differ from the defaults."""
    sums: "Sums | None"
    """None: too many partitions stand on the page before it."""


class Sums(NamedTuple):
    """Of all partitions of a topic."""

    offsets: int
    """Between start and end: records, markers, and what was compacted away."""
    size: int
    """Bytes in chunks and segments."""
    waits_for_export: int | None
    """Offsets that are in no table yet; None: no exporter has said anything."""


class PartitionRow(NamedTuple):
    """A partition of a topic."""

    partition: int
    log_start: int
    last_stable: int
    end: int
    size: int
    exported: int | None
    open_transactions: int


class TopicView(NamedTuple):
    """One topic, and a page of its partitions."""

    row: TopicRow
    topic_id: str
    """As hexadecimal digits, as everywhere in Frazil."""
    configs: tuple[tuple[str, str], ...]
    partitions: PageOfRows[PartitionRow]
    groups: tuple[str, ...] | None
    """That have committed offsets of it; None: there are too many groups to look through."""


PARTITIONS_SUMMED_MAX: Final = 20_000
"""On one page."""
GROUPS_SEARCHED_MAX: Final = 5_000


def topics_view(machine: Machine, asked: Asked) -> PageOfRows[TopicRow]:
    """A page of the list, by name."""
    page = page_of((topic.name for topic in machine.topics), asked)
    found = filter(None, map(machine.topics.by_name, page.rows))
    rows = [_row(topic, sums) for topic, sums in sums_of(machine, found)]
    return PageOfRows(rows, page.asked, page.found, page.total)


def sums_of(machine: Machine, topics: Iterable[Topic]) -> Iterator[tuple[Topic, Sums | None]]:
    """Sums for topics that stand on one page, as long as they have not too many partitions together."""
    left = PARTITIONS_SUMMED_MAX
    for topic in topics:
        left -= topic.partition_count
        yield topic, _sums(machine, topic) if left >= 0 else None


def topic_view(machine: Machine, topic: Topic, number: int) -> TopicView:
    """`number`: of the page of its partitions, or the last if there are fewer."""
    last = max(1, -(-topic.partition_count // ROWS_MAX))
    asked = Asked(number=min(number, last))
    first = (asked.number - 1) * ROWS_MAX
    numbers = range(first, min(first + ROWS_MAX, topic.partition_count))
    shown = [machine.partitions.get(topic.topic_id, each) for each in numbers]
    rows = [_partition(machine, each) for each in shown if each is not None]
    return TopicView(
        row=_row(topic, _sums(machine, topic)),
        topic_id=topic.topic_id.hex(),
        configs=tuple(sorted(topic.configs.items())),
        partitions=PageOfRows(rows, asked, topic.partition_count, topic.partition_count),
        groups=_groups_of(machine, topic),
    )


def _row(topic: Topic, sums: Sums | None) -> TopicRow:
    return TopicRow(topic.name, topic.partition_count, len(topic.configs), sums)


def _sums(machine: Machine, topic: Topic) -> Sums:
    offsets = size = waits = 0
    exports = machine.exports.get(topic.topic_id)
    exported = {} if exports is None else exports.offsets
    for partition in _partitions(machine, topic):
        offsets += partition.end_offset - partition.log_start
        size += partition.data_bytes
        done = max(exported.get(partition.partition, 0), partition.log_start)
        waits += max(0, partition.last_stable - done)
    return Sums(offsets, size, None if exports is None else waits)


def _partitions(machine: Machine, topic: Topic) -> Iterable[Partition]:
    for number in range(topic.partition_count):
        partition = machine.partitions.find(topic.topic_id, number)
        if partition is not None:
            yield partition


def _partition(machine: Machine, partition: Partition) -> PartitionRow:
    exports = machine.exports.get(partition.topic_id)
    return PartitionRow(
        partition=partition.partition,
        log_start=partition.log_start,
        last_stable=partition.last_stable,
        end=partition.end_offset,
        size=partition.data_bytes,
        exported=None if exports is None else exports.offsets.get(partition.partition),
        open_transactions=len(partition.open_transactions),
    )


def _groups_of(machine: Machine, topic: Topic) -> tuple[str, ...] | None:
    if len(machine.groups) > GROUPS_SEARCHED_MAX:
        return None
    found = [
        group.group_id
        for shard in range(GROUP_SHARDS)
        for group in machine.groups.of_shard(shard)
        if topic.topic_id in group.offsets.topics()
    ]
    return tuple(sorted(found))
