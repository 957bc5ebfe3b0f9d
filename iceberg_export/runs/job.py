"""A job: what all topics of a run share; and a topic's table made ready for it, with its dead letters.

A table is made, or brought to what its topic's settings say, before anything is exported into it; what a
crash left undone between the two tables is done. `export` has the steps of an export.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.dead_letters.reconcile import reconcile
from iceberg_export.errors import CatalogError
from iceberg_export.files.partition_values import decimal_truncations, partition_columns
from iceberg_export.names import TIMESTAMP_AHEAD_MS_MAX, TIMESTAMP_MS_MIN
from iceberg_export.plan.agent_client import AgentClient, Topic
from iceberg_export.plan.registry_address import RegistryAddress
from iceberg_export.plan.splits import (
    PlannedSpan,
    Split,
    make_splits,
)
from iceberg_export.records.decode import Ints
from iceberg_export.records.rows import TimestampLimits
from iceberg_export.routes import ROUTE, Route, route_text
from iceberg_export.runs.partitioning import new_spec
from iceberg_export.runs.schema_notes import keep_notes
from iceberg_export.runs.table_choice import choose_table
from iceberg_export.settings import Settings
from iceberg_export.steps import Hook, no_hook
from iceberg_export.table import commit, schema, topic_settings
from iceberg_export.table.catalog import (
    Identifier,
    existing_table,
    find_table,
    state_of,
)
from iceberg_export.table.column_rules import rules_properties
from iceberg_export.table.commit import Pause
from iceberg_export.table.file_size import file_size_properties, keep_file_size
from iceberg_export.table.redactions import REDACTIONS_OF
from iceberg_export.table.repartition import PARTITIONED_BY, repartition, setting_of
from iceberg_export.table.rules_kept import keep_rules
from iceberg_export.table.settings_kept import (
    ENVELOPE,
    MODE,
    envelope_setting,
    keep_setting,
    mode_setting,
    route_setting,
)
from iceberg_export.table.sort_order import check_sort_columns, keep_sort_order
from iceberg_export.table.state import State
from iceberg_export.table.topic_settings import TopicTable
from iceberg_export.tasks.run_splits import TaskRunner
from iceberg_export.typed.decode_values import Message
from iceberg_export.typed.inline import missing_notes
from iceberg_export.typed.registry_client import RegistryClient
from iceberg_export.typed.topic_types import TopicTypes
from iceberg_export.typed.typed_rows import RowTyping
from iceberg_export.upsert.buckets import bucket_columns, check_key


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

    @property
    def route(self) -> Route | None:
        """Which of the topic's records are the table's; None: all."""
        return self.table_settings.route(self.topic.route)

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
    told = RegistryAddress(settings, lambda: job.client, topic=topic.name, told=topic.registry)
    registry = RegistryClient(settings.values, told=told, sleep=job.pause.sleep)
    return TopicTypes(topic_table, registry)


def open_tables(job: Job, topic: Topic, types: TopicTypes | None) -> tuple[State, State | None]:
    """Makes the topic's table and dead-letter table where they are missing; returns their states.

    What a crash left undone between the two is done. Raises ExportError.
    """
    identifier = table_identifier(job, topic)
    topic_table = topic_settings.parse(topic.configs, topic.name)
    columns = schema.TABLE_SCHEMA if types is None else schema.table_schema(types.columns())
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
    if types is None or not (types.waits_for_messages or types.subjects_without_schema):
        there = table.schema().column_names if table is not None else []
        check_sort_columns(topic_table.sort_order or (), [*columns.column_names, *there])
    state = commit.initialise(
        job.catalog,
        identifier,
        topic=topic.name,
        topic_id=topic.topic_id,
        cluster_id=job.cluster_id,
        partition_spec=PartitionSpec() if spec is None else spec,
        table_schema=columns,
        more={
            **(_route_properties(job, topic, topic_table) if table is None else {}),
            **_properties(topic_table, types, is_partitioned=spec is not None),
        },
        run_id=f"{job.run_id}-init",
        pause=job.pause,
        hook=job.hook,
    )
    if table is not None:
        export = TopicExport(job, topic, identifier, topic_table, types)
        to_be = None if _waits(types) else columns
        _keep_settings(export, table, to_be, has_data=any(state.offsets.values()))
    may_be_bad = types is not None or topic_table.mode == "upsert"
    wanted = (may_be_bad and topic_table.bad_records == "dlq") or bool(state.dead_letters)
    # Dead letters of another time count as well: a rollback may lead back to their records.
    if not wanted and not dead_letter_table.exists(job.catalog, identifier, topic.topic_id):
        return state, None
    return open_dead_letters(job, topic, identifier)


def _properties(
    topic_table: TopicTable, types: TopicTypes | None, *, is_partitioned: bool
) -> dict[str, str]:
    """Returns what a new table notes of its topic's settings."""
    found = {MODE: topic_table.mode, ENVELOPE: topic_table.envelope_form}
    found |= file_size_properties(topic_table.target_file_size)
    found |= rules_properties(topic_table.column_rules)
    if topic_table.partition_by is not None and is_partitioned:
        found[PARTITIONED_BY] = setting_of(topic_table.partition_by)
    return found if types is None else found | missing_notes(types.notes, {}, has_rows=False)


def _route_properties(job: Job, topic: Topic, topic_table: TopicTable) -> dict[str, str]:
    found = {ROUTE: route_text(topic_table.route(topic.route))}
    if topic.route:
        found[REDACTIONS_OF] = ".".join(table_identifier(job, topic._replace(route="")))
    return found


def _keep_settings(
    export: TopicExport, table: Table, to_be: Schema | None, *, has_data: bool
) -> None:
    """Brings a table that is there to its topic's settings; `to_be`: the columns of a new one, if they are
    known. Each change is a commit of its own."""
    job, identifier, settings = export.job, export.identifier, export.table_settings
    catalog, pause, rules = job.catalog, job.pause, settings.column_rules
    for kept in (
        mode_setting(settings.mode),
        envelope_setting(settings.envelope_form),
        route_setting(export.route),
    ):
        table = keep_setting(catalog, identifier, table, kept, has_data=has_data, pause=pause)
    table = keep_rules(catalog, identifier, table, rules, has_data=has_data, pause=pause)
    table = _repartition(job, identifier, table, settings, to_be)
    keep_file_size(catalog, identifier, table, settings.target_file_size, pause)
    if export.types is not None:
        keep_notes(catalog, identifier, table, export.types.notes, pause)


def open_dead_letters(job: Job, topic: Topic, identifier: Identifier) -> tuple[State, State]:
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
    table = keep_sort_order(
        export.job.catalog,
        export.identifier,
        table,
        export.table_settings.sort_order,
        pause=export.job.pause,
    )
    if export.upsert:
        seen = schema.columns_view(table)
        check_key(export.name, seen.edits, seen.added_again)
        bucket_columns(table.metadata)
    else:
        partition_columns(table.metadata)
    return table, typing


def timestamp_limits(job: Job) -> TimestampLimits | None:
    """Returns the timestamps that are believed now; None: all that a table can hold."""
    if job.settings["timestamp.sanity"] == "false":
        return None
    return TimestampLimits(TIMESTAMP_MS_MIN, job.clock_ms() + TIMESTAMP_AHEAD_MS_MAX)
