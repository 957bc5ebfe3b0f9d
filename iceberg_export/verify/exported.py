"""What of a topic is exported, and can be compared: the table, its offsets, and the log's spans."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pyiceberg.table import Table

from iceberg_export.errors import PlanError, StateError
from iceberg_export.names import KEY, VALUE
from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import PlannedSpan, TopicPlan, check_not_ahead, clip
from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.table.catalog import find_table, state_of
from iceberg_export.table.state import Gap, State


class ComparedRange(NamedTuple):
    """What can be compared of one partition: offsets [start, end)."""

    start: int
    end: int
    compacted: bool


class Exported(NamedTuple):
    name: str
    """Of the table."""
    table: Table
    state: State
    plan: TopicPlan
    ranges: dict[int, ComparedRange]
    """By partition. What a gap policy stepped over, or retention removed later, nobody can compare."""
    spans: list[PlannedSpan]
    """Of the log, for these ranges, without what a reset skipped."""

    @property
    def gone(self) -> int:
        """Offsets that retention had removed before they could be exported."""
        return sum(gap.end - gap.start for gap in self.state.gaps if not gap.skipped)

    @property
    def passed_over(self) -> int:
        """Offsets that a reset skipped."""
        return sum(gap.end - gap.start for gap in self.state.gaps if gap.skipped)


def find_exported(job: Job, topic: Topic) -> Exported:
    """Raises StateError for a topic that was never exported, and other ExportErrors."""
    identifier = table_identifier(job, topic)
    table = find_table(job.catalog, identifier)
    state = state_of(table)
    if table is None or state is None:
        raise StateError(f"topic {topic.name} has not been exported yet; run `frazil export run`")
    check_columns(table, [name for name in ROW_SCHEMA.names if name not in {KEY, VALUE}])
    plan = job.client.plan(topic, {})
    check_not_ahead(plan, state.offsets, state.position)
    ranges: dict[int, ComparedRange] = {}
    spans: list[PlannedSpan] = []
    for number, end in state.offsets.items():
        part = plan.partitions.get(number)
        if part is None:
            raise PlanError(f"the plan of {topic.name} leaves out partition {number}")
        ranges[number] = ComparedRange(part.log_start, end, part.compacted)
        for first, last in _exported_parts(part.log_start, end, number, state.gaps):
            spans += clip(part, start=first, end=last, topic=topic.name).spans
    return Exported(".".join(identifier), table, state, plan, ranges, spans)


def check_columns(table: Table, columns: Iterable[str]) -> None:
    """Raises StateError when the table lacks a column: it was made for other settings, or somebody has dropped it."""
    there = table.schema().column_names
    if missing := [name for name in columns if name not in there]:
        raise StateError(
            f"table {'.'.join(table.name())} has no column {missing[0]}: it was made for other settings of the"
            " topic, or others have changed it, so it cannot be compared with the log"
        )


def _exported_parts(
    start: int, end: int, partition: int, gaps: Iterable[Gap]
) -> Iterator[tuple[int, int]]:
    """Yields the offsets of a partition that are to be in the table, in order."""
    for gap in sorted(gap for gap in gaps if gap.partition == partition):
        if start < min(gap.start, end):
            yield start, min(gap.start, end)
        start = max(start, gap.end)
    if start < end:
        yield start, end
