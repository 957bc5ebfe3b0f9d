"""`frazil export plan`: what the next run of a topic would read, without doing it.

Asks an agent and the catalog, reads no chunk (but for `--infer`), starts no Spark. What is counted is what the next
run would do with the same settings, commit by commit; a run that begins later finds more.
"""

from typing import NamedTuple

from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import (
    CommitRange,
    Split,
    check_not_ahead,
    make_splits,
    next_commit_range,
)
from iceberg_export.records.read_chunks import merge_reads
from iceberg_export.runs.export import TASKS_PER_CORE
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.runs.type_sample import TypeSample
from iceberg_export.table.catalog import find_table, state_of
from iceberg_export.table.evolve import iceberg_type
from iceberg_export.units import show_bytes


class RangePreview(NamedTuple):
    """Offsets [start, end) of one partition, and what lies there."""

    partition: int
    start: int
    end: int
    markers: int
    """Ends of transactions among them, which are no records."""
    spans: int
    byte_count: int


class CommitPreview(NamedTuple):
    ranges: tuple[RangePreview, ...]
    gaps: int
    """Offsets that retention has already removed."""
    tasks: int
    requests: int
    """GETs of all tasks."""
    byte_count: int
    """Those the requests bring, with what lies between wanted spans."""


class Preview(NamedTuple):
    topic: str
    table: str
    exists: bool
    parallelism: int
    """Tasks at the same time that the count of tasks is for."""
    commits: tuple[CommitPreview, ...]


def preview_topic(job: Job, topic: Topic, *, parallelism: int) -> Preview:
    """Returns what a run begun now would do, with so many tasks at a time. Raises ExportError for what would stop it."""
    identifier = table_identifier(job, topic)
    table = find_table(job.catalog, identifier)
    state = state_of(table)
    offsets = dict(state.offsets) if state else {}
    plan = job.client.plan(topic, offsets)
    check_not_ahead(plan, offsets, state.position if state else 0)
    commits = []
    while True:
        commit_range = next_commit_range(
            plan,
            offsets,
            bytes_max=job.settings.number("commit.bytes.max"),
            skip_gaps=job.settings["gap.policy"] == "skip",
        )
        if commit_range.ends == offsets or (not offsets and commit_range.offset_count == 0):
            break
        splits = make_splits(
            commit_range.spans,
            bytes_max=job.settings.number("split.bytes.max"),
            parallelism=TASKS_PER_CORE * parallelism,
        )
        commits.append(_commit(commit_range, splits))
        offsets = commit_range.ends
    return Preview(topic.name, ".".join(identifier), state is not None, parallelism, tuple(commits))


def _commit(commit_range: CommitRange, splits: tuple[Split, ...]) -> CommitPreview:
    ranges = []
    for partition, end in commit_range.ends.items():
        spans = [span for span in commit_range.spans if span.partition == partition]
        if end > commit_range.starts[partition]:
            ranges.append(
                RangePreview(
                    partition,
                    commit_range.starts[partition],
                    end,
                    commit_range.markers.get(partition, 0),
                    len(spans),
                    sum(span.length for span in spans),
                )
            )
    reads = [read for split in splits for read in merge_reads(split.spans)]
    return CommitPreview(
        tuple(ranges),
        sum(gap.end - gap.start for gap in commit_range.gaps),
        len(splits),
        len(reads),
        sum(read.length for read in reads),
    )


def render_preview(preview: Preview) -> str:
    """Returns the preview as text: the ranges of every commit, and one line of totals."""
    table = preview.table if preview.exists else f"{preview.table} (which it would make)"
    if not preview.commits:
        return f"{preview.topic}: nothing new for table {table}"
    lines = []
    for number, commit in enumerate(preview.commits, 1):
        lines.append(
            f"commit {number} of {len(preview.commits)}: {commit.tasks} tasks, "
            f"{commit.requests} GETs, {show_bytes(commit.byte_count)}"
            + (f", {commit.gaps} offsets are gone already" if commit.gaps else "")
        )
        lines += [
            f"  partition {one.partition}: offsets {one.start} to {one.end - 1}, "
            f"{one.spans} spans, {show_bytes(one.byte_count)}"
            + (f", {one.markers} of them ends of transactions" if one.markers else "")
            for one in commit.ranges
        ]
    offsets = sum(one.end - one.start for commit in preview.commits for one in commit.ranges)
    requests = sum(commit.requests for commit in preview.commits)
    size = sum(commit.byte_count for commit in preview.commits)
    lines.append(
        f"{preview.topic}: {offsets} offsets into table {table}, "
        f"{len(preview.commits)} commits, {requests} GETs, {show_bytes(size)}; "
        f"tasks as for {preview.parallelism} at a time"
    )
    return "\n".join(lines)


def render_sample(topic: str, sample: TypeSample) -> str:
    """Returns the columns that would be drawn, a line each."""
    if not sample.records:
        return f"{topic}: no values to draw columns from"
    lines = [
        f"{topic}: columns with frazil.iceberg.value.mode=json and value.schema=infer, from "
        f"{sample.records} values"
        + (f", {sample.undecodable} of which are no JSON" if sample.undecodable else "")
    ]
    width = max((len(field.name) for field in sample.columns), default=0)
    lines += [
        f"  {field.name:{width}}  {iceberg_type(field.type)}"
        + ("" if field.name in sample.there or not sample.there else "  (new)")
        for field in sample.columns
    ]
    return "\n".join(lines)
