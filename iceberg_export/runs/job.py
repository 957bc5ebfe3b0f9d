"""One export of one topic, from plan to commit: the order of steps.

The steps: read the state, plan, split, run tasks, check that every offset is accounted for, commit.
A crash between any two steps leaves the table as it was, with files that nobody refers to at worst;
the next run begins with the table's own state. The chunks stay while the caller's pin lives.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.dead_letters.dead_letter_table import PendingDeadLetters, encode_pending
from iceberg_export.dead_letters.reconcile import reconcile
from iceberg_export.errors import CatalogError, FencedError
from iceberg_export.files.partition_values import decimal_truncations, partition_columns
from iceberg_export.files.rewrite import delete_files
from iceberg_export.files.target import target_of
from iceberg_export.names import TIMESTAMP_AHEAD_MS_MAX, TIMESTAMP_MS_MIN
from iceberg_export.plan.agent_client import AgentClient, Topic
from iceberg_export.plan.splits import (
    CommitRange,
    PlannedSpan,
    Split,
    TopicPlan,
    check_not_ahead,
    make_splits,
    next_commit_range,
)
from iceberg_export.plan.trust import told_registry
from iceberg_export.records import last_records
from iceberg_export.records.decode import Ints
from iceberg_export.records.rows import TimestampLimits
from iceberg_export.runs.partitioning import new_spec
from iceberg_export.runs.schema_notes import keep_notes
from iceberg_export.runs.table_choice import choose_table
from iceberg_export.settings import Settings
from iceberg_export.steps import Hook, Step, no_hook
from iceberg_export.table import commit, schema, topic_settings
from iceberg_export.table.catalog import (
    Identifier,
    existing_table,
    find_table,
    state_of,
)
from iceberg_export.table.column_rules import rules_properties
from iceberg_export.table.commit import Pause
from iceberg_export.table.envelope_kept import ENVELOPE, keep_envelope
from iceberg_export.table.file_size import file_size_properties, keep_file_size
from iceberg_export.table.redactions import (
    Places,
    find_redactions,
    joined_places,
    redacted_places,
)
from iceberg_export.table.repartition import PARTITIONED_BY, repartition, setting_of
from iceberg_export.table.rules_kept import keep_rules
from iceberg_export.table.run_marks import RunMark
from iceberg_export.table.state import State
from iceberg_export.table.topic_settings import TopicTable
from iceberg_export.tasks.export_split import (
    BadRecords,
    NoDeadLettersError,
    SplitResult,
    TaskSetup,
    check_complete,
    export_task,
)
from iceberg_export.tasks.run_splits import TaskRunner, run_splits
from iceberg_export.typed.decode_values import Message
from iceberg_export.typed.inline import missing_notes
from iceberg_export.typed.registry_client import RegistryClient
from iceberg_export.typed.topic_types import TopicTypes
from iceberg_export.typed.typed_rows import RowTyping
from iceberg_export.upsert.buckets import MODE, bucket_columns, check_key
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


class Committed(NamedTuple):
    """A commit of an export, once it is in."""

    topic: Topic
    state: State
    rows: int
    files: int
    byte_count: int
    """Of the log."""


def always_continue(_committed: Committed) -> bool:
    """Lets every export go on to the log's end."""
    return True


class Job(NamedTuple):
    """What all topics of a run share. `runner` is called when there is work for the first time,
    so that an export with nothing to do starts no JVM."""

    settings: Settings
    client: AgentClient
    catalog: Catalog
    cluster_id: str
    run_id: str
    runner: Callable[[], TaskRunner]
    pause: Pause
    after_commit: Callable[[Committed], bool] = always_continue
    """Is called after each commit; False ends the topic's export, the next run goes on."""
    hook: Hook = no_hook
    """Is called at each step; tests let an export die or race there."""
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """Wall clock: timestamps far ahead of it are not believed."""

    def splits(self, spans: Sequence[PlannedSpan], tasks_per_core: int = 1) -> tuple[Split, ...]:
        """Shares spans out to tasks, by the settings and the cores that there are."""
        return make_splits(
            spans,
            bytes_max=self.settings.number("split.bytes.max"),
            parallelism=tasks_per_core * self.runner().parallelism,
        )


class TopicExport(NamedTuple):
    """One topic of a job."""

    job: Job
    topic: Topic
    identifier: Identifier
    table_settings: TopicTable
    types: TopicTypes | None
    """None when keys and values stay as they are."""
    redacted: Mapping[int, Ints] = {}
    """Records at or after the table's offsets that are to stay away."""

    @property
    def name(self) -> str:
        return ".".join(self.identifier)

    @property
    def upsert(self) -> bool:
        return self.table_settings.mode == "upsert"

    def fetch_schemas(self, unknown: Mapping[str, set[Message]], seen: Mapping[str, str]) -> None:
        """Asks the registry for schemas that tasks met, and takes note of what has no place in inferred
        types. Raises ExportError."""
        assert self.types is not None
        self.types.fetch_schemas(unknown)
        self.types.take_seen(seen)


def new_run_id(rng: random.Random) -> str:
    """32 hex digits that no other run has."""
    return f"{rng.getrandbits(128):032x}"


def table_identifier(job: Job, topic: Topic) -> Identifier:
    """Returns the table of a topic, as `table_choice.choose_table`, and raises as it does."""
    return choose_table(job.settings, job.catalog, job.cluster_id, topic)


def load_topic_types(job: Job, topic: Topic) -> TopicTypes | None:
    """Reads the topic's schemas from the registry. Returns None when keys and values stay bytes."""
    topic_table = topic_settings.parse(topic.configs, topic.name)
    if not topic_table.typed:
        return None
    settings = job.settings
    told = partial(told_registry, settings.values, settings.agents, topic.name, topic.registry)
    registry = RegistryClient(settings.values, told=told, sleep=job.pause.sleep)
    return TopicTypes(topic_table, registry)


def open_tables(job: Job, topic: Topic, types: TopicTypes | None) -> tuple[State, State | None]:
    """Makes the topic's table and dead-letter table where they are missing; returns their states.

    What a crash left undone between the two is done. Raises ExportError.
    """
    identifier = table_identifier(job, topic)
    topic_table = topic_settings.parse(topic.configs, topic.name)
    columns = schema.TABLE_SCHEMA if types is None else schema.table_schema(types.columns())
    chosen = topic_table.partition_by
    table = find_table(job.catalog, identifier)
    # Of a table that exists its own spec counts: it may have been made from other columns.
    spec: PartitionSpec | None = PartitionSpec()
    if table is None:
        spec = new_spec(
            topic_table,
            columns,
            job.settings["table.partition.by"],
            missing=[] if types is None else types.subjects_without_schema,
            more_to_come=_waits(types),
        )
    more = {MODE: topic_table.mode, ENVELOPE: topic_table.envelope}
    more |= file_size_properties(topic_table.target_file_size)
    more |= rules_properties(topic_table.column_rules)
    if chosen is not None and spec is not None:
        more[PARTITIONED_BY] = setting_of(chosen)
    if types is not None:
        more |= missing_notes(types.notes, {}, has_rows=False)
    state = commit.initialise(
        job.catalog,
        identifier,
        topic=topic.name,
        topic_id=topic.topic_id,
        cluster_id=job.cluster_id,
        partition_spec=PartitionSpec() if spec is None else spec,
        table_schema=columns,
        more=more,
        run_id=f"{job.run_id}-init",
        pause=job.pause,
        hook=job.hook,
    )
    if table is not None:
        envelope, has_data = topic_table.envelope, any(state.offsets.values())
        keep_envelope(job.catalog, identifier, table, envelope, has_data=has_data, pause=job.pause)
        rules = topic_table.column_rules
        keep_rules(job.catalog, identifier, table, rules, has_data=has_data, pause=job.pause)
        _repartition(job, identifier, table, topic_table, None if _waits(types) else columns)
        keep_file_size(job.catalog, identifier, table, topic_table.target_file_size, job.pause)
        if types is not None:
            keep_notes(job.catalog, identifier, table, types.notes, job.pause)
    may_be_bad = types is not None or topic_table.mode == "upsert"
    wanted = (may_be_bad and topic_table.bad_records == "dlq") or bool(state.dead_letters)
    # Dead letters of another time count as well: a rollback may lead back to their records.
    if not wanted and not dead_letter_table.exists(job.catalog, identifier, topic.topic_id):
        return state, None
    return _open_dead_letters(job, topic, identifier)


def _open_dead_letters(job: Job, topic: Topic, identifier: Identifier) -> tuple[State, State]:
    """Returns the states of the table and of its dead letters, which are consistent then."""
    table = existing_table(job.catalog, identifier)
    main = state_of(table)
    if main is None:
        raise CatalogError(f"table {'.'.join(identifier)} was dropped while it was exported to")
    # Their state is read last: a commit that adds dead letters later is refused by what follows.
    dead = dead_letter_table.initialise(
        job.catalog,
        identifier,
        topic=topic.name,
        topic_id=topic.topic_id,
        cluster_id=job.cluster_id,
        main=main,
        run_id=f"{job.run_id}-init",
        pause=job.pause,
    )
    return main, reconcile(
        job.catalog, table, main, dead, run_id=job.run_id, pause=job.pause, hook=job.hook
    )


def _waits(types: TopicTypes | None) -> bool:
    return types is not None and types.waits_for_messages


def _repartition(
    job: Job, identifier: Identifier, table: Table, topic_table: TopicTable, to_be: Schema | None
) -> Table:
    """Returns the table with the partitions that its topic chooses, if it does."""
    terms, upserts = topic_table.partition_by, topic_table.mode == "upsert"
    if terms is None:
        return table
    return repartition(
        job.catalog, identifier, table, terms, to_be=to_be, upserts=upserts, pause=job.pause
    )


def begin_export(job: Job, topic: Topic) -> TopicExport:
    """Reads what the topic says of its table, and its schemas. Raises ExportError."""
    topic_table = topic_settings.parse(topic.configs, topic.name)
    types = load_topic_types(job, topic)
    return TopicExport(job, topic, table_identifier(job, topic), topic_table, types)


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
            done = _export_range(export, plan, commit_range, state, dead)
        except NoDeadLettersError:
            # Tables of raw records have none until a batch comes that nobody can read.
            state, dead = _open_dead_letters(job, topic, export.identifier)
            continue
        state, dead = done.state, done.dead
        report = _added_to_report(report, done)
        if not job.after_commit(
            Committed(topic, state, done.rows, len(done.files), commit_range.byte_count)
        ):
            return report


def _redacted_ahead(export: TopicExport, state: State) -> Places:
    """Returns redacted records that may come again: the table was made anew, rolled back or reset."""
    noted = find_redactions(export.job.catalog, export.identifier, export.topic.topic_id)
    partitions = range(export.topic.partition_count)
    first = min((state.offsets.get(number, 0) for number in partitions), default=0)
    return redacted_places(noted, first)


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


class _CommitResult(NamedTuple):
    """One commit."""

    state: State
    dead: State | None
    rows: int
    files: list[DataFile]
    results: list[SplitResult]


def _added_to_report(report: ExportReport, done: _CommitResult) -> ExportReport:
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


def _export_range(
    export: TopicExport,
    plan: TopicPlan,
    commit_range: CommitRange,
    state: State,
    dead: State | None,
) -> _CommitResult:
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
) -> _CommitResult:
    job, identifier = export.job, export.identifier
    new = State(
        topic_id=state.topic_id,
        offsets=commit_range.ends,
        seq=state.seq + 1,
        run_id=f"{job.run_id}-{state.seq + 1}",
        gaps=state.gaps + commit_range.gaps,
        line=state.line,
        dead_letters_mark=dead.mark if dead is not None else "",
        position=plan.position,
        replays=state.replays,
    )
    commit_input = _CommitInput(plan, commit_range, new, _bad_records(export, commit_range, dead))
    results = _run_tasks(export, table, commit_input)
    job.hook(Step.TASKS_DONE)
    rows = check_complete(commit_range, {result.number: result for result in results}, len(results))
    dead_files = [file for result in results for file in result.dead_files]
    paths = tuple(file.file_path for file in dead_files)
    pending = PendingDeadLetters(new.run_id, new.line, new.seq, paths)
    last = last_records.newest_of_each_partition(result.last_records for result in results)
    new = new._replace(
        dead_letters=encode_pending(pending), last_records={**state.last_records, **last}
    )
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
    return _CommitResult(new, dead, rows, files, results)


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


def evolved_table(export: TopicExport, table: Table, *, has_data: bool) -> tuple[Table, RowTyping]:
    """Returns the table with the columns that the schemas need, and what tasks need to know of them."""
    typing, typed = RowTyping(), set[str]()
    if export.types is not None:
        table, typing = export.types.evolve_table(
            export.job.catalog,
            export.identifier,
            table,
            has_data=has_data,
            pause=export.job.pause,
        )
        # The columns that it names may have come just now.
        table = _repartition(export.job, export.identifier, table, export.table_settings, None)
        typed = {side.source for side in (typing.key, typing.value) if side.mode != "raw"}
        typing = typing._replace(truncations=decimal_truncations(table.metadata))
    schema.check_schema(table.schema(), export.name, typed=typed)
    if export.upsert:
        seen = schema.columns_view(table)
        check_key(export.name, seen.edits, seen.added_again)
        bucket_columns(table.metadata)
    else:
        partition_columns(table.metadata)
    return table, typing


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


def timestamp_limits(job: Job) -> TimestampLimits | None:
    """Returns the timestamps that are believed now; None: all that a table can hold."""
    if job.settings["timestamp.sanity"] == "false":
        return None
    return TimestampLimits(TIMESTAMP_MS_MIN, job.clock_ms() + TIMESTAMP_AHEAD_MS_MAX)
