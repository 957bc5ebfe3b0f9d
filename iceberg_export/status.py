"""How far each table is behind its topic, partition by partition. Needs an agent, the catalog,
and no Spark."""

from collections.abc import Sequence
from typing import NamedTuple

from iceberg_export.agent_client import Topic
from iceberg_export.catalog import find_table, view_of
from iceberg_export.errors import AgentError, ExportError
from iceberg_export.job import Job, locate
from iceberg_export.state import read_state

_COLUMNS = ("topic", "partition", "exported to", "log end", "lag", "table", "commits", "last run")


class PartitionStatus(NamedTuple):
    partition: int
    exported: int
    """Next offset to be exported."""
    end: int
    """Last stable offset of the log."""

    @property
    def lag(self) -> int:
        return self.end - self.exported


class TopicStatus(NamedTuple):
    topic: str
    table: str
    commits: int
    """Data commits so far; -1 when there is no table yet."""
    run_id: str
    partitions: tuple[PartitionStatus, ...]
    problem: str = ""
    """Why the topic cannot be exported as things are, one sentence."""


def topic_status(job: Job, topic: Topic) -> TopicStatus:
    """Where the topic's export stands. A table that cannot be used is told, not raised."""
    name = "-"
    try:
        identifier = locate(job, topic)
        name = ".".join(identifier)
        table = find_table(job.catalog, identifier)
        state = read_state(view_of(table)) if table is not None else None
        plan = job.client.plan(topic, state.offsets if state else {}, bytes_enough=0)
    except AgentError:
        raise
    except ExportError as error:
        return TopicStatus(topic.name, name, -1, "-", (), str(error))
    rows = []
    for number in sorted(plan.partitions):
        part = plan.partitions[number]
        exported = state.offsets.get(number, part.log_start) if state else part.log_start
        rows.append(PartitionStatus(number, exported, part.stable))
    if state is None:
        return TopicStatus(topic.name, name, -1, "-", tuple(rows))
    return TopicStatus(topic.name, name, state.seq, state.run_id, tuple(rows))


def _line(status: TopicStatus, row: PartitionStatus) -> tuple[str, ...]:
    return (
        status.topic,
        str(row.partition),
        str(row.exported),
        str(row.end),
        str(row.lag),
        status.table,
        "-" if status.commits < 0 else str(status.commits),
        status.run_id,
    )


def render(statuses: Sequence[TopicStatus]) -> str:
    """The statuses as a table of text, one line per partition."""
    lines: list[tuple[str, ...]] = [_COLUMNS]
    problems = []
    for status in statuses:
        if status.problem:
            problems.append(f"{status.topic}: {status.problem}")
        lines += [_line(status, row) for row in status.partitions]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join(text + problems)
