"""One export of one topic, from plan to commit: the order of steps.

The steps: read the state, plan, split, run tasks, check that every offset is accounted for, commit.
A crash between any two steps leaves the table as it was, with files that nobody refers to at worst;
the next run begins with the table's own state. The chunks stay while the caller's pin lives.
"""

from typing import NamedTuple

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.dead_letters.dead_letter_table import PendingDeadLetters, encode_pending
from iceberg_export.errors import FencedError
from iceberg_export.files.rewrite import delete_files
from iceberg_export.files.target import target_of
from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import (
    CommitRange,
    TopicPlan,
    check_not_ahead,
    next_commit_range,
)
from iceberg_export.records import last_records
from iceberg_export.runs.job import (
    Committed,
    Job,
    TopicExport,
    begin_export,
    evolved_table,
    open_dead_letters,
    open_tables,
    timestamp_limits,
)
from iceberg_export.steps import Step
from iceberg_export.table import commit
from iceberg_export.table.catalog import (
    existing_table,
)
from iceberg_export.table.redactions import (
    Places,
    find_redactions,
    joined_places,
    redacted_places,
)
from iceberg_export.table.run_marks import RunMark
from iceberg_export.table.state import State, gaps_without, joined_lost
from iceberg_export.tasks.export_split import (
    BadRecords,
    NoDeadLettersError,
    SplitResult,
    TaskSetup,
    check_complete,
    export_task,
)
from iceberg_export.tasks.run_splits import run_splits
from iceberg_export.upsert.merge import MergeContext, merge_and_commit

TASKS_PER_CORE = 2


class ExportReport(NamedTuple):
    """What an export of one topic did."""

    topic: str
    table: str
    rows: int
    files: int
    commits: int
    dead: int = 0
    """Records in the table of dead letters."""
    left_out: int = 0
    """Records in no table: dropped, or dead letters since an earlier run."""
    first_reason: str = ""
    """Why the first bad record is one."""
    upserts: bool = False
    """The table has the newest record of each key alone."""
    rules_without_column: tuple[str, ...] = ()
    """Columns that the topic has rules for and that no schema has."""


def export_topic(job: Job, topic: Topic) -> ExportReport:
    """Exports a topic up to the log's end as it is now. Raises ExportError."""
    export = begin_export(job, topic)
    state, dead = open_tables(job, topic, export.types)
    export = export._replace(redacted=_redacted_ahead(export, state))
    job.hook(Step.INITIALISED)
    bytes_max = job.settings.number("commit.bytes.max")
    skip_gaps = job.settings["gap.policy"] == "skip"
    plan = _plan(job, topic, state, bytes_max)
    job.hook(Step.PLANNED)
    goal = {number: part.stable for number, part in plan.partitions.items()}
    report = ExportReport(
        topic.name, export.name, rows=0, files=0, commits=0, upserts=export.upsert
    )
    asked_again = False
    while True:
        commit_range = next_commit_range(
            plan, state.offsets, bytes_max=bytes_max, skip_gaps=skip_gaps
        )
        if commit_range.ends == state.offsets:
            if asked_again or all(commit_range.ends[number] >= end for number, end in goal.items()):
                return report
            # A plan has only so much; what has come since the first one is not waited for.
            plan = _plan(job, topic, state, bytes_max)
            asked_again = True
            continue
        asked_again = False
        if not report.commits:
            _check_last_records(job, plan, state)
        try:
            done = export_range(export, plan, commit_range, state, dead)
        except NoDeadLettersError:
            # Tables of raw records have none until a batch comes that nobody can read.
            state, dead = open_dead_letters(job, topic, export.identifier)
            continue
        state, dead = done.state, done.dead
        report = added_to_report(report, done)
        if export.types is not None:
            report = report._replace(rules_without_column=export.types.rules_without_column)
        if not job.after_commit(
            Committed(topic, state, done.rows, len(done.files), commit_range.byte_count)
        ):
            return report


def _redacted_ahead(export: TopicExport, state: State) -> Places:
    """Returns redacted records that may come again: the table was made anew, rolled back or reset."""
    table = existing_table(export.job.catalog, export.identifier)
    noted = find_redactions(table, export.topic.topic_id)
    partitions = range(export.topic.partition_count)
    first = min((state.offsets.get(number, 0) for number in partitions), default=0)
    return redacted_places(noted, first)


def check_log(job: Job, topic: Topic, state: State) -> None:
    """Raises AheadError when the log is not the one that the table was made from."""
    _check_last_records(job, _plan(job, topic, state, 0), state)


def _plan(job: Job, topic: Topic, state: State, bytes_max: int) -> TopicPlan:
    """Fetches the plan from the last records that the table has, by which it recognises the log."""
    starts = dict(state.offsets) | {p: record.offset for p, record in state.last_records.items()}
    plan = job.client.plan(topic, starts, bytes_enough=bytes_max, beyond=state.offsets)
    check_not_ahead(plan, state.offsets, state.position)
    return plan


def _check_last_records(job: Job, plan: TopicPlan, state: State) -> None:
    """Raises AheadError when the log is not the one that the table's last records came from."""
    spans = last_records.moved_records(plan, state.last_records)
    if not spans:
        return
    runner = job.runner()
    splits = job.splits(spans)
    options = job.settings.store_options
    found = runner.run(
        last_records.read_digests,
        [last_records.DigestTask(plan.store, options, split.spans) for split in splits],
        sizes=[split.byte_count for split in splits],
        title=f"{plan.topic}: the last records of {len(spans)} partitions",
    )
    digests = {number: digest for some in found for number, digest in some.items()}
    last_records.check_same_records(plan, state.last_records, spans, digests)


class CommitResult(NamedTuple):
    """One commit."""

    state: State
    dead: State | None
    rows: int
    files: list[DataFile]
    results: list[SplitResult]


def added_to_report(report: ExportReport, done: CommitResult) -> ExportReport:
    reasons = [result.first_reason for result in done.results if result.first_reason]
    dead_files = [file for result in done.results for file in result.dead_files]
    return report._replace(
        rows=report.rows + done.rows,
        files=report.files + len(done.files),
        commits=report.commits + 1,
        dead=report.dead + sum(file.record_count for file in dead_files),
        left_out=report.left_out + sum(result.left_out for result in done.results),
        first_reason=report.first_reason or (reasons[0] if reasons else ""),
    )


def export_range(
    export: TopicExport,
    plan: TopicPlan,
    commit_range: CommitRange,
    state: State,
    dead: State | None,
) -> CommitResult:
    """Makes one commit. Meanwhile the run has a mark, so that `maintain` leaves its files alone."""
    table = existing_table(export.job.catalog, export.identifier)
    if not commit_range.spans:
        return _export_into(table, export, plan, commit_range, state=state, dead=dead)
    with RunMark(table, export.job.run_id):
        return _export_into(table, export, plan, commit_range, state=state, dead=dead)


def _export_into(
    table: Table,
    export: TopicExport,
    plan: TopicPlan,
    commit_range: CommitRange,
    *,
    state: State,
    dead: State | None,
) -> CommitResult:
    job, identifier = export.job, export.identifier
    new = _state_after(job, plan, commit_range, state, dead)
    commit_input = _CommitInput(plan, commit_range, new, _bad_records(export, commit_range, dead))
    results = _run_tasks(export, table, commit_input)
    job.hook(Step.TASKS_DONE)
    rows = check_complete(commit_range, {result.number: result for result in results}, len(results))
    dead_files = [file for result in results for file in result.dead_files]
    paths = tuple(file.file_path for file in dead_files)
    pending = PendingDeadLetters(new.run_id, new.line, new.seq, paths)
    if not commit_range.fills:
        last = last_records.newest_of_each_partition(result.last_records for result in results)
        new = new._replace(last_records={**state.last_records, **last})
    new = new._replace(dead_letters=encode_pending(pending))
    job.hook(Step.CHECKED)
    try:
        files = _commit(export, results, state, new)
    except FencedError as error:
        if error.files_unused:
            unused = [file for result in results for file in result.files]
            delete_files(table, unused + dead_files)
        raise
    job.hook(Step.COMMITTED)
    if dead_files:
        assert dead is not None
        dead = dead_letter_table.add(
            job.catalog,
            identifier,
            dead_files,
            expected=dead,
            main=new,
            pause=job.pause,
            hook=job.hook,
        )
    return CommitResult(new, dead, rows, files, results)


def _state_after(
    job: Job, plan: TopicPlan, commit_range: CommitRange, state: State, dead: State | None
) -> State:
    """Returns the state that the commit brings the table to, but for its own dead letters and last records."""
    new = state._replace(
        seq=state.seq + 1,
        run_id=f"{job.run_id}-{state.seq + 1}",
        dead_letters="",
        dead_letters_mark=dead.mark if dead is not None else "",
        lost=joined_lost(state.lost, commit_range.lost_of(plan)),
    )
    if commit_range.fills:
        return new._replace(gaps=gaps_without(state.gaps, commit_range.starts, commit_range.ends))
    return new._replace(
        offsets=commit_range.ends, gaps=state.gaps + commit_range.gaps, position=plan.position
    )


def _commit(
    export: TopicExport, results: list[SplitResult], state: State, new: State
) -> list[DataFile]:
    """Commits what tasks wrote; returns the files that are new in the table."""
    job, identifier = export.job, export.identifier

    def send(files: list[DataFile], removed: list[DataFile], base_id: int | None) -> None:
        commit.commit(
            job.catalog,
            identifier,
            files,
            expected=state,
            new=new,
            pause=job.pause,
            removed=removed,
            base_id=base_id,
            hook=job.hook,
        )

    if not export.upsert:
        files = [file for result in results for file in result.files]
        send(files, [], None)
        return files
    shuffled = [file for result in results for file in result.shuffled]
    context = MergeContext(job.catalog, job.runner, job.settings.number("file.bytes.max"))
    merged = merge_and_commit(context, identifier, shuffled, new.run_id, send)
    return merged.added


def _bad_records(export: TopicExport, commit_range: CommitRange, dead: State | None) -> BadRecords:
    """Returns what tasks are to do with records that cannot be decoded."""
    job, settings = export.job, export.table_settings
    found = BadRecords(
        export.topic.name,
        settings.bad_records,
        already=export.redacted,
        withholds=bool(settings.columns_mask),
    )
    if dead is None:
        return found
    already = dead_letter_table.already_dead(
        job.catalog, export.identifier, dead, commit_range.starts
    )
    letters = dead_letter_table.load(job.catalog, export.identifier)
    return found._replace(
        target=target_of(letters, job.settings.number("file.bytes.max")),
        already=joined_places(already, export.redacted),
    )


class _CommitInput(NamedTuple):
    """What the tasks of one commit need."""

    plan: TopicPlan
    commit_range: CommitRange
    new: State
    bad: BadRecords


def _run_tasks(export: TopicExport, table: Table, commit_input: _CommitInput) -> list[SplitResult]:
    """Returns the results of all splits of a commit."""
    job = export.job
    # The state is that after this run's commit: the first one has 1.
    has_data = commit_input.new.seq > 1

    def setup() -> TaskSetup:
        nonlocal table
        table, typing = evolved_table(export, table, has_data=has_data)
        return TaskSetup(
            run_id=commit_input.new.run_id,
            store=commit_input.plan.store,
            store_options=job.settings.store_options,
            target=target_of(table, job.settings.number("file.bytes.max")),
            typing=typing,
            bad=commit_input.bad,
            timestamps=timestamp_limits(job),
            upsert=export.upsert,
            route=export.route,
        )

    if not commit_input.commit_range.spans:
        evolved_table(export, table, has_data=has_data)
        return []
    runner = job.runner()
    splits = job.splits(commit_input.commit_range.spans, tasks_per_core=TASKS_PER_CORE)
    return run_splits(
        runner,
        splits,
        task=export_task,
        setup=setup,
        fetch_schemas=export.fetch_schemas,
        title=f"{commit_input.plan.topic}: {commit_input.commit_range.offset_count:,} offsets",
    )
