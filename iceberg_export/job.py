"""One export of one topic, from plan to commit: the order of steps, and nothing else.

State, plan, splits, tasks, proof that every offset is accounted for, commit. A crash between any
two steps leaves the table as it was, with files that nobody refers to at worst; the next run
begins from the table's own state. The chunks stay while the caller's pin lives.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_export import commit, schema
from iceberg_export.agent_client import AgentClient, Topic
from iceberg_export.catalog import Identifier, find_table, table_name
from iceberg_export.commit import Pause, RecreatedError
from iceberg_export.errors import CatalogError, FencedError
from iceberg_export.partition_values import partition_columns
from iceberg_export.plan import TopicPlan, Work, make_splits, next_work
from iceberg_export.settings import Settings
from iceberg_export.state import State
from iceberg_export.steps import Hook, Step, pass_by
from iceberg_export.work import SplitResult, TaskSetup, check_complete, export_split
from iceberg_export.write_files import Target

TASKS_PER_CORE = 2
Result = TypeVar("Result")


class TaskRunner(Protocol):
    """Where tasks run: Spark (`iceberg_export.spark.Tasks`)."""

    @property
    def parallelism(self) -> int: ...

    def run(
        self,
        task: Callable[[Any, int], Result],
        payloads: Sequence[Any],
        *,
        sizes: Sequence[int],
        title: str,
    ) -> list[Result]: ...


class Report(NamedTuple):
    """What an export of one topic did."""

    topic: str
    table: str
    rows: int
    files: int
    commits: int


class Committed(NamedTuple):
    """One commit of an export that is in, for whoever watches it."""

    topic: Topic
    state: State
    rows: int
    files: int
    byte_count: int
    """Of the log."""


def go_on(_committed: Committed) -> bool:
    """Nobody watches: an export goes on to the log's end."""
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
    after_commit: Callable[[Committed], bool] = go_on
    """Is told of each commit; False ends the topic's export there, the next run goes on."""
    at: Hook = pass_by
    """Is told of each step; tests let an export die or race there."""


def new_run_id(rng: random.Random) -> str:
    """32 hex digits that no other run has."""
    return f"{rng.getrandbits(128):032x}"


def locate(job: Job, topic: Topic) -> Identifier:
    """The table of a topic, by settings; of a re-created topic a table of its own, if allowed.

    Raises RecreatedError when it is not.
    """
    settings = job.settings
    name = settings.table_names.get(topic.name, table_name(topic.name))
    identifier = (settings["table.namespace"], name)
    table = find_table(job.catalog, identifier)
    if table is None:
        return identifier
    try:
        commit.check_owner(
            table, topic=topic.name, topic_id=topic.topic_id, cluster_id=job.cluster_id
        )
    except RecreatedError:
        if settings["topic.recreated"] != "new-table":
            raise
        return (identifier[0], f"{name}_{topic.topic_id}")
    return identifier


def export_topic(job: Job, topic: Topic) -> Report:
    """Bring the topic's table up to the log's end as it is now. Raises ExportError."""
    identifier = locate(job, topic)
    state = commit.initialise(
        job.catalog,
        identifier,
        topic=topic.name,
        topic_id=topic.topic_id,
        cluster_id=job.cluster_id,
        partition_spec=schema.partition_spec(job.settings["table.partition.by"]),
        run_id=f"{job.run_id}-init",
        pause=job.pause,
        at=job.at,
    )
    job.at(Step.INITIALISED)
    bytes_max = job.settings.number("commit.bytes.max")
    skip_gaps = job.settings["gap.policy"] == "skip"
    plan = job.client.plan(topic, state.offsets, bytes_enough=bytes_max)
    job.at(Step.PLANNED)
    goal = {number: part.stable for number, part in plan.partitions.items()}
    report = Report(topic.name, ".".join(identifier), rows=0, files=0, commits=0)
    asked_again = False
    while True:
        work = next_work(plan, state.offsets, bytes_max=bytes_max, skip_gaps=skip_gaps)
        if work.ends == state.offsets:
            if asked_again or all(work.ends[number] >= end for number, end in goal.items()):
                return report
            # A plan has only so much; what has come since the first one is not waited for.
            plan = job.client.plan(topic, state.offsets, bytes_enough=bytes_max)
            asked_again = True
            continue
        asked_again = False
        state, rows, files = _export_work(job, identifier, plan, work, state)
        report = report._replace(
            rows=report.rows + rows, files=report.files + files, commits=report.commits + 1
        )
        if not job.after_commit(Committed(topic, state, rows, files, work.byte_count)):
            return report


def _export_work(
    job: Job, identifier: Identifier, plan: TopicPlan, work: Work, state: State
) -> tuple[State, int, int]:
    """One commit: (state after it, rows, files)."""
    table = find_table(job.catalog, identifier)
    if table is None:
        raise CatalogError(f"table {'.'.join(identifier)} was dropped while it was exported to")
    schema.check_schema(table.schema(), ".".join(identifier))
    partition_columns(table.metadata)
    new = State(
        topic_id=state.topic_id,
        offsets=work.ends,
        seq=state.seq + 1,
        run_id=f"{job.run_id}-{state.seq + 1}",
        gaps=state.gaps + work.gaps,
    )
    results = _run_tasks(job, table, plan, work, new.run_id)
    job.at(Step.TASKS_DONE)
    split_count = len(results)
    rows = check_complete(work, {result.number: result for result in results}, split_count)
    files = [file for result in results for file in result.files]
    job.at(Step.CHECKED)
    try:
        commit.commit(
            job.catalog, identifier, files, expected=state, new=new, pause=job.pause, at=job.at
        )
    except FencedError as error:
        if error.files_unused:
            for file in files:
                table.io.delete(file.file_path)
        raise
    job.at(Step.COMMITTED)
    return new, rows, len(files)


def _run_tasks(
    job: Job, table: Table, plan: TopicPlan, work: Work, run_id: str
) -> list[SplitResult]:
    if not work.spans:
        return []
    runner = job.runner()
    splits = make_splits(
        work.spans,
        bytes_max=job.settings.number("split.bytes.max"),
        parallelism=TASKS_PER_CORE * runner.parallelism,
    )
    setup = TaskSetup(
        run_id=run_id,
        store=plan.store,
        store_options={
            name: value for name, value in job.settings.values.items() if name.startswith("store.")
        },
        target=Target(
            table.metadata.model_dump_json(),
            dict(table.io.properties),
            job.settings.number("file.bytes.max"),
        ),
    )
    results = runner.run(
        _export_task,
        [(setup, split) for split in splits],
        sizes=[split.byte_count for split in splits],
        title=f"{plan.topic}: {work.offset_count:,} offsets",
    )
    if len(results) != len(splits):
        raise CatalogError(f"{len(splits)} tasks gave {len(results)} results")
    return results


def _export_task(payload: Any, attempt: int) -> SplitResult:
    setup, split = payload
    return export_split(setup, split, attempt)
