"""How far each table is behind its topic, partition by partition: as text, as JSON, and for the
loop that decides what is due. Needs an agent, the catalog, and no Spark."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyiceberg.table import Table

from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.errors import AgentError, CatalogError, ExportError
from iceberg_export.plan.agent_client import TableSource, Topic
from iceberg_export.plan.splits import PartitionPlan, TopicPlan, check_not_ahead
from iceberg_export.runs.failures import Failure
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.runs.table_choice import each_table
from iceberg_export.table import schema, topic_settings
from iceberg_export.table.catalog import Identifier, find_table, state_of
from iceberg_export.table.column_rules import NO_RULES, paths_without_column
from iceberg_export.table.state import Gap, LostOffsets, State, told_lost
from iceberg_export.units import show_duration

_COLUMNS = ("topic", "partition", "exported to", "log end", "lag", "seconds", "table", "commits",
            "last run")  # fmt: skip


class PartitionStatus(NamedTuple):
    partition: int
    exported: int
    """Next offset to be exported."""
    end: int
    """Last stable offset of the log."""
    oldest_ms: int = -1
    """About the timestamp of the oldest record that is not exported: the greatest one of the
    batches that begin with it. -1: there is none, or nobody knows."""
    byte_count: int = 0
    """What waits to be exported, as it lies in the log; as far as was asked for."""

    @property
    def lag(self) -> int:
        return self.end - self.exported

    def seconds(self, now_ms: int) -> int | None:
        """How long the oldest record has waited; None when nothing waits, or nobody knows."""
        if self.lag == 0 or self.oldest_ms < 0:
            return None
        return max(0, now_ms - self.oldest_ms) // 1000


class TopicStatus(NamedTuple):
    topic: str
    table: str
    commits: int
    """Data commits so far; -1 when there is no table yet."""
    run_id: str
    partitions: tuple[PartitionStatus, ...]
    problem: str = ""
    """Why the topic cannot be exported as things are, one sentence."""
    snapshot_id: int | None = None
    snapshot_ms: int | None = None
    """When the table last changed, whoever changed it."""
    rows: int | None = None
    """In the table, if its snapshot says."""
    dlq_rows: int = 0
    """In the table of records that could not be decoded."""
    dlq_by_code: Mapping[str, int] | None = None
    """How many of them have which reason; None when the rows cannot be read."""
    gaps: int = 0
    """Offsets that retention had removed before they could be exported."""
    skipped: int = 0
    """Offsets that a reset went ahead of."""
    lost: tuple[LostOffsets, ...] = ()
    """That were declared lost before they could be exported."""
    names_dead_letters: bool = False
    """The newest commit came with some, which a crash may have kept from their table."""
    rules_without_column: tuple[str, ...] = ()
    """Columns that are to be renamed or masked and that the table, which has rows, does not have."""
    failure: Failure | None = None
    """Of the last export, if whoever ran it has left word."""

    @property
    def lag(self) -> int:
        return sum(row.lag for row in self.partitions)

    @property
    def byte_count(self) -> int:
        return sum(row.byte_count for row in self.partitions)

    def seconds(self, now_ms: int) -> int | None:
        """The longest that a record has waited."""
        known = [row.seconds(now_ms) for row in self.partitions]
        return max((one for one in known if one is not None), default=None)


def topic_status(
    job: Job, topic: Topic, counts: LetterCounts, *, bytes_enough: int = 0
) -> TopicStatus:
    """Returns where the topic's export stands. `problem` says why a table cannot be used; then all
    that the log has is behind, since nobody knows what of it is in a table.

    What waits is counted as far as `bytes_enough` in each partition; dead letters by `counts`, which
    remembers them from one poll to the next.
    """
    name = "-"
    try:
        identifier = table_identifier(job, topic)
        name = ".".join(identifier)
        table = find_table(job.catalog, identifier)
        state = state_of(table)
        plan = job.client.plan(topic, state.offsets if state else {}, bytes_enough=bytes_enough)
        if state is not None:
            check_not_ahead(plan, state.offsets, state.position)
        without_column = _rules_without_column(table, topic) if _row_count(table) else ()
        by_code = _by_code(
            dead := find_table(job.catalog, dead_letter_identifier(identifier)), counts
        )
    except AgentError:
        raise
    except ExportError as error:
        behind = _all_of_the_log(job, topic, bytes_enough)
        return TopicStatus(topic.name, name, -1, "-", behind, str(error))
    gaps = state.gaps if state else ()
    found = TopicStatus(
        topic.name,
        name,
        commits=state.seq if state else -1,
        run_id=state.run_id if state else "-",
        partitions=_partitions(plan, state),
        rows=_row_count(table),
        dlq_rows=(_row_count(dead) or 0) if by_code is None else sum(by_code.values()),
        dlq_by_code=by_code,
        gaps=_offsets_of(gap for gap in gaps if not gap.skipped),
        skipped=_offsets_of(gap for gap in gaps if gap.skipped),
        lost=state.lost if state else (),
        names_dead_letters=bool(state and state.dead_letters),
        rules_without_column=without_column,
    )
    head = table.metadata.snapshot_by_name("main") if table is not None else None
    if head is None:
        return found
    return found._replace(snapshot_id=head.snapshot_id, snapshot_ms=head.timestamp_ms)


def table_offsets(job: Job, identifier: Identifier) -> dict[int, int]:
    """Returns the offsets in the table's state. Raises ExportError."""
    state = state_of(find_table(job.catalog, identifier))
    return dict(state.offsets) if state else {}


def offsets_of_all(job: Job, topic: Topic, offsets: Mapping[int, int]) -> dict[int, int]:
    """Returns up to where every table of the topic has its records, given `offsets` of this one.

    Raises ExportError."""
    found = dict(offsets)
    for other in each_table(topic):
        if other.route != topic.route:
            theirs = table_offsets(job, table_identifier(job, other))
            found = {number: min(at, theirs.get(number, 0)) for number, at in found.items()}
    return found


def table_source(job: Job, topic: Topic, offsets: Mapping[int, int]) -> TableSource | None:
    """Returns the snapshot of the topic's own table that has these offsets. None when that is ahead of
    them, or cannot be read: what is reported then names none."""
    try:
        identifier = table_identifier(job, topic._replace(route=""))
        table = find_table(job.catalog, identifier)
        state = state_of(table)
    except ExportError:
        return None
    head = table.metadata.snapshot_by_name("main") if table is not None else None
    if head is None or state is None or dict(state.offsets) != dict(offsets):
        return None
    return TableSource(".".join(identifier), head.snapshot_id)


def _rules_without_column(table: Table | None, topic: Topic) -> tuple[str, ...]:
    """What is dropped need not be in the table. Raises SettingsError, StateError."""
    rules = topic_settings.parse(topic.configs, topic.name).column_rules
    if table is None or rules == NO_RULES:
        return ()
    columns = schema.arrow_schema(schema.columns_view(table).columns)
    return paths_without_column(rules._replace(dropped=()).paths, columns)


def _all_of_the_log(job: Job, topic: Topic, bytes_enough: int) -> tuple[PartitionStatus, ...]:
    """Returns nothing when the agents do not tell of this topic either. Raises AgentError."""
    try:
        return _partitions(job.client.plan(topic, {}, bytes_enough=bytes_enough), None)
    except AgentError:
        raise
    except ExportError:
        return ()


def _partitions(plan: TopicPlan, state: State | None) -> tuple[PartitionStatus, ...]:
    return tuple(_partition(plan.partitions[one], state) for one in sorted(plan.partitions))


def _partition(part: PartitionPlan, state: State | None) -> PartitionStatus:
    exported = state.offsets.get(part.partition, part.log_start) if state else part.log_start
    waiting = [span for span in part.spans if span.next_offset > exported]
    oldest = min(waiting, key=lambda span: span.base_offset).timestamp_max if waiting else -1
    size = sum(span.length for span in waiting)
    return PartitionStatus(part.partition, exported, part.stable, oldest, size)


def _row_count(table: Table | None) -> int | None:
    head = table.metadata.snapshot_by_name("main") if table is not None else None
    if head is None or head.summary is None:
        return None
    row_count = head.summary.additional_properties.get("total-records", "")
    return int(row_count) if row_count.isdigit() else None


def _by_code(dead: Table | None, counts: LetterCounts) -> Mapping[str, int] | None:
    """Returns None when the rows cannot be read: lag and state are known all the same."""
    try:
        return {} if dead is None else counts.by_code(dead)
    except CatalogError:
        return None


def _line(status: TopicStatus, row: PartitionStatus, now_ms: int) -> tuple[str, ...]:
    seconds = row.seconds(now_ms)
    return (
        status.topic,
        str(row.partition),
        str(row.exported),
        str(row.end),
        str(row.lag),
        "-" if seconds is None else str(seconds),
        status.table,
        "-" if status.commits < 0 else str(status.commits),
        status.run_id,
    )


def _offsets_of(gaps: Iterable[Gap]) -> int:
    return sum(gap.end - gap.start for gap in gaps)


def render(statuses: Sequence[TopicStatus], now_ms: int) -> str:
    """Returns the statuses as a table of text, one line per partition."""
    lines: list[tuple[str, ...]] = [_COLUMNS]
    remarks = []
    for status in statuses:
        if status.problem:
            remarks.append(f"{status.topic}: {status.problem}")
        elif (failure := status.failure) is not None:
            ago = show_duration(max(0, now_ms - failure.at_ms))
            row = f", the last {failure.times} have" if failure.times > 1 else ""
            remarks.append(f"{status.topic}: the export failed {ago} ago{row}: {failure.reason}")
        if status.dlq_rows:
            by_code = (f"{count} {code}" for code, count in (status.dlq_by_code or {}).items())
            reasons = ", ".join(by_code) or "reasons unknown"
            remarks.append(
                f"{status.topic}: {status.dlq_rows} records in {status.table}__dlq ({reasons})"
            )
        if status.rules_without_column:
            paths = ", ".join(status.rules_without_column)
            remarks.append(
                f"{status.topic}: frazil.iceberg.columns.* has rules for what {status.table} has not: {paths}"
            )
        if status.gaps:
            remarks.append(f"{status.topic}: {status.gaps} offsets were deleted unexported")
        if status.skipped:
            remarks.append(f"{status.topic}: {status.skipped} offsets were skipped on purpose")
        remarks += [f"{status.topic}, {sentence}" for sentence in told_lost(status.lost)]
        lines += [_line(status, row, now_ms) for row in status.partitions]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join(text + remarks)


def render_json(statuses: Sequence[TopicStatus], now_ms: int) -> str:
    """Returns the statuses as JSON: one object, numbers that nobody knows are null."""
    topics: list[dict[str, Any]] = [
        {
            "topic": status.topic,
            "table": None if status.table == "-" else status.table,
            "problem": status.problem or None,
            "failure": status.failure._asdict() if status.failure else None,
            "lag": status.lag,
            "lag_seconds": status.seconds(now_ms),
            "seq": None if status.commits < 0 else status.commits,
            "run_id": None if status.run_id == "-" else status.run_id,
            "snapshot_id": status.snapshot_id,
            "snapshot_ms": status.snapshot_ms,
            "rows": status.rows,
            "dlq_rows": status.dlq_rows,
            "dlq_by_code": status.dlq_by_code,
            "deleted_unexported": status.gaps,
            "skipped": status.skipped,
            "declared_lost": [one._asdict() for one in status.lost],
            "rules_without_column": list(status.rules_without_column),
            "partitions": [
                {
                    "partition": row.partition,
                    "exported": row.exported,
                    "end": row.end,
                    "lag": row.lag,
                    "lag_seconds": row.seconds(now_ms),
                }
                for row in status.partitions
            ],
        }
        for status in statuses
    ]
    return json.dumps({"now_ms": now_ms, "topics": topics}, indent=2)
