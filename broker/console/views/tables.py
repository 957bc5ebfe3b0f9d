"""The topics that become Iceberg tables: how far these are, what they lack, and their dead letters. Pure.

What is here was told to the cluster by exporters (`coordinator.tables.exports`), declared lost, or set for topics; which
table it is, and how many dead letters there are, exporters tell the agent that they happen to ask, so only that one
knows. The tables themselves are in a catalog that no agent knows.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from broker.config.table_configs import PREFIX
from broker.console.views.page_of_rows import Asked, PageOfRows, page_of
from broker.console.views.topics import Sums, sums_of
from broker.reports.export_report import TableSource
from coordinator.machine.machine import Machine
from coordinator.tables.topics import Topic
from protocol.types import TopicId

LOSSES_SHOWN_MAX: Final = 5
"""Of a topic."""
PARTITIONS_SEARCHED_MAX: Final = 20_000
"""For losses, on one page."""
DEAD_LETTERS: Final = "__dlq"
"""Ends the name of the table of a table's dead letters."""


class Told(NamedTuple):
    """What exporters told this agent."""

    sources: Mapping[TopicId, TableSource]
    dead_letters: Mapping[TopicId, Mapping[str, int]]


class LossRow(NamedTuple):
    """Offsets that are in no object any more, and come into no table."""

    partition: int
    first: int
    last: int
    age_ms: int
    """Since that was declared."""


class TableRow(NamedTuple):
    """A topic with a table, or with configs for one."""

    topic: str
    configs: tuple[tuple[str, str], ...]
    """Of its table, that were set; without their prefix."""
    sums: Sums | None
    """None: too many partitions stand on the page before it."""
    reported_ms: int | None
    """Since an exporter last told something new; None: none has."""
    table: str
    """"": this agent was not told."""
    snapshot_id: int | None
    losses: tuple[LossRow, ...]
    """The first LOSSES_SHOWN_MAX."""
    dead_letters: tuple[tuple[str, int], ...] | None
    """By reason, the most frequent first; None: this agent was not told."""

    @property
    def dead_letter_count(self) -> int:
        return sum(count for _, count in self.dead_letters or ())

    @property
    def dead_letter_table(self) -> str:
        return f"{self.table}{DEAD_LETTERS}" if self.table else ""


def tables_view(machine: Machine, asked: Asked, told: Told) -> PageOfRows[TableRow]:
    """A page of the list, by topic."""
    page = page_of((topic.name for topic in machine.topics if _is_told_of(machine, topic)), asked)
    found = list(filter(None, map(machine.topics.by_name, page.rows)))
    left, rows = PARTITIONS_SEARCHED_MAX, list[TableRow]()
    for topic, sums in sums_of(machine, found):
        left -= topic.partition_count
        rows.append(_row(machine, topic, sums, told, with_losses=left >= 0))
    return PageOfRows(rows, page.asked, page.found, page.total)


def _is_told_of(machine: Machine, topic: Topic) -> bool:
    has_configs = any(name.startswith(PREFIX) for name in topic.configs)
    return has_configs or machine.exports.get(topic.topic_id) is not None


def _row(
    machine: Machine, topic: Topic, sums: Sums | None, told: Told, *, with_losses: bool
) -> TableRow:
    row = machine.exports.get(topic.topic_id)
    configs = [
        (name.removeprefix(PREFIX), value)
        for name, value in sorted(topic.configs.items())
        if name.startswith(PREFIX)
    ]
    source = told.sources.get(topic.topic_id)
    letters = told.dead_letters.get(topic.topic_id)
    return TableRow(
        topic=topic.name,
        configs=tuple(configs),
        sums=sums,
        reported_ms=None if row is None else machine.time_ms - row.reported_ms,
        table="" if source is None else source.table,
        snapshot_id=None if source is None else source.snapshot_id,
        losses=_losses(machine, topic) if with_losses else (),
        dead_letters=None if letters is None else tuple(letters.items()),
    )


def _losses(machine: Machine, topic: Topic) -> tuple[LossRow, ...]:
    if not machine.losses.rows:
        return ()
    found = (
        LossRow(number, each.base_offset, each.next_offset - 1, machine.time_ms - each.declared_ms)
        for number in range(topic.partition_count)
        for each in machine.losses.rows.get((topic.topic_id, number), ())
    )
    return tuple(islice(found, LOSSES_SHOWN_MAX))
