"""The topics that become Iceberg tables, and how far these are. Pure.

What is here was told to the cluster by exporters (`coordinator.tables.exports`) or set for topics; the tables
themselves are in a catalog that no agent knows.
"""

from typing import NamedTuple

from broker.config.table_configs import PREFIX
from broker.console.views.page_of_rows import Asked, PageOfRows, page_of
from broker.console.views.topics import Sums, sums_of
from coordinator.machine.machine import Machine
from coordinator.tables.topics import Topic


class TableRow(NamedTuple):
    """A topic with a table, or with configs for one."""

    topic: str
    configs: tuple[tuple[str, str], ...]
    """Of its table, that were set; without their prefix."""
    sums: Sums | None
    """None: too many partitions stand on the page before it."""
    reported_ms: int | None
    """Since an exporter last told something new; None: none has."""


def tables_view(machine: Machine, asked: Asked) -> PageOfRows[TableRow]:
    """A page of the list, by topic."""
    page = page_of((topic.name for topic in machine.topics if _is_told_of(machine, topic)), asked)
    found = list(filter(None, map(machine.topics.by_name, page.rows)))
    rows = [_row(machine, topic, sums) for topic, sums in sums_of(machine, found)]
    return PageOfRows(rows, page.asked, page.found, page.total)


def _is_told_of(machine: Machine, topic: Topic) -> bool:
    has_configs = any(name.startswith(PREFIX) for name in topic.configs)
    return has_configs or machine.exports.get(topic.topic_id) is not None


def _row(machine: Machine, topic: Topic, sums: Sums | None) -> TableRow:
    row = machine.exports.get(topic.topic_id)
    configs = [
        (name.removeprefix(PREFIX), value)
        for name, value in sorted(topic.configs.items())
        if name.startswith(PREFIX)
    ]
    since_ms = None if row is None else machine.time_ms - row.reported_ms
    return TableRow(topic.name, tuple(configs), sums, since_ms)
