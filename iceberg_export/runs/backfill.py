"""A backfill exports offsets that a reset, or a beginning in the middle, has skipped: once, and for good.

Each commit brings records of some skipped offsets and takes these offsets out of the table's gaps; its own
offsets stay where they are. So a crash leaves what is not filled yet as gaps, for the same command again, and
a rollback of the table brings the gaps back with it. What retention has removed since stays a gap. Tables of
mode append alone: in mode upsert an old record would stand over newer ones of its key.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from iceberg_export.errors import SettingsError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import TopicPlan, fill_range
from iceberg_export.runs.export import (
    ExportReport,
    added_to_report,
    check_log,
    export_range,
)
from iceberg_export.runs.job import Job, TopicExport, begin_export, open_dead_letters, open_tables
from iceberg_export.table.catalog import existing_table
from iceberg_export.table.redactions import find_redactions, redacted_places
from iceberg_export.table.state import Gap, State
from iceberg_export.tasks.export_split import NoDeadLettersError

Bounds = Mapping[int, tuple[int, int]]
"""Offsets [from, to) by partition."""


class BackfillReport(NamedTuple):
    exported: ExportReport
    offsets: int
    """Skipped offsets that are filled now."""
    gone: int
    """Those that were asked for and that the log does not have any more."""
    left: int
    """Skipped offsets of the table that nobody asked for."""


def backfill(job: Job, topic: Topic, bounds: Bounds) -> BackfillReport:
    """Fills the skipped offsets within `bounds`; partitions that are not named stay as they are.

    Raises ExportError; what is committed by then is in the table.
    """
    export = begin_export(job, topic)
    if export.upsert:
        raise SettingsError(
            f"table {export.name} has the newest record of each key (mode upsert), and an old one would "
            "stand over it; reset its offsets to make it anew"
        )
    state, dead = open_tables(job, topic, export.types)
    skipped_before = _skipped(state.gaps)
    report = ExportReport(topic.name, export.name, rows=0, files=0, commits=0)
    if not within(state.gaps, bounds):
        return BackfillReport(report, 0, 0, skipped_before)
    check_log(job, topic, state)
    export = _with_redactions(export)
    while True:
        wanted = within(state.gaps, bounds)
        plan = _plan(job, topic, state, wanted)
        pieces = _first_pieces(wanted, plan)
        if not pieces:
            break
        commit_range = fill_range(plan, pieces, bytes_max=job.settings.number("commit.bytes.max"))
        try:
            done = export_range(export, plan, commit_range, state, dead)
        except NoDeadLettersError:
            state, dead = open_dead_letters(job, topic, export.identifier)
            continue
        state, dead = done.state, done.dead
        report = added_to_report(report, done)
    gone = sum(gap.end - gap.start for gap in within(state.gaps, bounds))
    left = _skipped(state.gaps)
    return BackfillReport(report, skipped_before - left, gone, left - gone)


def within(gaps: Sequence[Gap], bounds: Bounds) -> list[Gap]:
    """Returns the skipped offsets within the bounds, in order."""
    found = []
    for gap in sorted(gaps):
        first, end = bounds.get(gap.partition, (0, 0))
        part = gap._replace(start=max(gap.start, first), end=min(gap.end, end))
        if gap.skipped and part.start < part.end:
            found.append(part)
    return found


def _skipped(gaps: Sequence[Gap]) -> int:
    return sum(gap.end - gap.start for gap in gaps if gap.skipped)


def _with_redactions(export: TopicExport) -> TopicExport:
    table = existing_table(export.job.catalog, export.identifier)
    noted = find_redactions(table, export.topic.topic_id)
    return export._replace(redacted=redacted_places(noted))


def _plan(job: Job, topic: Topic, state: State, wanted: Sequence[Gap]) -> TopicPlan:
    """Fetches the plan from the first wanted offset of each partition on; of the others next to nothing."""
    starts = dict(state.offsets)
    for gap in reversed(wanted):
        starts[gap.partition] = gap.start
    return job.client.plan(topic, starts, bytes_enough=job.settings.number("commit.bytes.max"))


def _first_pieces(wanted: Sequence[Gap], plan: TopicPlan) -> dict[int, tuple[int, int]]:
    """Returns the first wanted offsets of each partition, as far as the log still has them."""
    found: dict[int, tuple[int, int]] = {}
    for gap in wanted:
        part = plan.partitions[gap.partition]
        start = max(gap.start, part.log_start)
        if gap.partition not in found and start < gap.end:
            found[gap.partition] = start, gap.end
    return found
