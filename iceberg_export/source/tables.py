"""Tables, and what is not in them yet: one snapshot, and chunks from its offsets on.

Everything before the offsets of the table's snapshot is in its files, everything from there to
the last stable offset in chunks: each record is there once. The table is looked at first, so what
is exported in between is still read from chunks.
"""

import time
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import BinaryType
from pyiceberg.utils.datetime import to_human_timestamptz

from iceberg_export import names
from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.errors import CatalogError, SettingsError, StateError
from iceberg_export.files.partition_values import decimal_truncations
from iceberg_export.files.read import group_files, read_rows
from iceberg_export.files.target import Target
from iceberg_export.plan.agent_client import BEYOND_ALL, AgentClient
from iceberg_export.plan.splits import TopicPlan, check_not_ahead
from iceberg_export.records.decode import Ints
from iceberg_export.routes import read_route
from iceberg_export.source.filters import OFFSET_END, QueryRange
from iceberg_export.source.planning import (
    OffsetRanges,
    check_partitions,
    chunk_tasks,
    fetch_plan,
)
from iceberg_export.source.read_options import EARLIEST, Bounds, ReadOptions
from iceberg_export.source.tasks import Decoding, TableTask, Task
from iceberg_export.source.topics import registry
from iceberg_export.table import schema, topic_settings
from iceberg_export.table.catalog import (
    find_table,
    guarded,
    io_properties,
    missing_warehouse,
    open_catalog,
    state_of,
)
from iceberg_export.table.commit import check_owner
from iceberg_export.table.edits import field_as_in_table
from iceberg_export.table.redactions import find_redactions, joined_places, redacted_places
from iceberg_export.table.settings_kept import MODE
from iceberg_export.table.state import TOPIC, State
from iceberg_export.table.topic_settings import TopicTable
from iceberg_export.typed.topic_types import TopicTypes

TABLE_TASK_BYTES = 128 * 1024 * 1024


def open_table(options: ReadOptions, catalog: Catalog) -> Table:
    """Returns the table that the options name. Raises CatalogError."""
    before, dot, name = options.table.rpartition(".")
    identifier = (before if dot else options.settings["table.namespace"], name)
    table = find_table(catalog, identifier)
    if table is None:
        raise CatalogError(f"there is no table {'.'.join(identifier)}; export the topic first")
    return table


def table_state(table: Table) -> State:
    """Returns the state of the snapshot that is read. Raises StateError."""
    state = state_of(table)
    if state is None or TOPIC not in table.metadata.properties:
        raise StateError(f"table {'.'.join(table.name())} is not one that the exporter made")
    return state


def is_typed(table: Table) -> bool:
    """Tells whether keys or values are decoded in the table."""
    raw = {names.KEY, names.VALUE}
    plain = {
        field.name for field in table.schema().fields if isinstance(field.field_type, BinaryType)
    }
    return not raw <= plain


def columns_of(options: ReadOptions, table: Table, client: Callable[[], AgentClient]) -> pa.Schema:
    """Returns the table's columns; of a typed one also those that it will get for what is not in it."""
    columns = schema.columns_of(table)
    if not is_typed(table):
        return columns
    topic = table.metadata.properties.get(TOPIC, "")
    plan = client().plan_by_name(topic, {}, others=BEYOND_ALL)
    topic_table = topic_settings.parse(plan.configs, topic)
    seen = schema.columns_view(table)
    types = _types(options, topic_table, plan, client)
    grown, _typing = types.read_typing(
        schema.arrow_schema(seen.columns), seen.edits, table.metadata.properties
    )
    to_be = [field_as_in_table(field, seen.edits) for field in grown]
    return pa.schema({field.name: field for field in (*columns, *to_be)}.values())


def _types(
    options: ReadOptions,
    topic_table: TopicTable,
    plan: TopicPlan,
    agents: Callable[[], AgentClient],
) -> TopicTypes:
    return TopicTypes(topic_table, registry(options, plan, agents), assumes_first=True)


def open_options(options: ReadOptions) -> Table:
    """Opens the table, in the catalog that the options name. Raises CatalogError.

    A reader makes no warehouse: an empty one would hide that the folder is the wrong one.
    """
    settings = options.settings
    if (missing := missing_warehouse(settings.catalog, settings.data)) is not None:
        raise CatalogError(
            f'there is no warehouse {missing}; say option("data", folder), or catalog.* options'
        )
    return open_table(options, open_catalog(settings.catalog, settings.data))


def plan_table(
    options: ReadOptions, client: AgentClient, table: Table, query: QueryRange
) -> list[Task]:
    """Returns tasks that read a table and what is not in it yet. Raises ExportError."""
    state = table_state(table)
    topic = table.metadata.properties[TOPIC]
    if options.topic not in ("", topic):
        raise SettingsError(f"table {options.table} is that of topic {topic}, say topic or table")
    starting = Bounds(EARLIEST, state.offsets)
    plan = fetch_plan(topic, client, query, starting, lambda part: part.stable)
    check_owner(table, topic=topic, topic_id=plan.topic_id, cluster_id=plan.cluster_id)
    check_not_ahead(plan, state.offsets, state.position)
    topic_table = topic_settings.parse(plan.configs, topic)
    # The table's own mode, whatever the topic says by now.
    if table.metadata.properties.get(MODE, topic_table.mode) == "upsert":
        raise SettingsError(
            f"table {options.table} holds the newest record of each key; read it alone, or the "
            "topic alone"
        )
    fails = topic_table.bad_records == "fail"
    route = read_route(options.table, table.metadata.properties)
    decoding = Decoding(fails=fails, timestamps=_timestamp_range(options), route=route)
    if topic_table.typed != is_typed(table):
        # Raw rows beside decoded ones would look like records without any fields.
        raise SettingsError(
            f"the modes of topic {topic} are not those that table {options.table} was made with"
        )
    if topic_table.typed:
        seen = schema.columns_view(table)
        columns = schema.arrow_schema(seen.columns)
        _columns, typing = _types(options, topic_table, plan, lambda: client).read_typing(
            columns, seen.edits, table.metadata.properties
        )
        typing = typing._replace(truncations=decimal_truncations(table.metadata))
        decoding = decoding._replace(typing=typing)
    check_partitions(topic, plan, (starting,))
    ranges = {number: (starting.at(part), part.stable) for number, part in plan.partitions.items()}
    starts = {number: start for number, (start, _) in ranges.items()}
    decoding = decoding._replace(left_out=_left_out_ahead(table, state.topic_id, starts))
    return [
        *_table_tasks(options, table, query),
        *chunk_tasks(options, OffsetRanges(plan, ranges), query, decoding),
    ]


def _left_out_ahead(table: Table, topic_id: str, starts: Mapping[int, int]) -> Mapping[int, Ints]:
    """Returns dead letters and redacted records at or above the table's offsets: the export leaves them
    out after a rollback."""
    if not starts:
        return {}
    namespace, name = table.name()[-2:]
    identifier = (namespace, name)
    noted = find_redactions(table, topic_id)
    redacted = redacted_places(noted, min(starts.values()))
    if not dead_letter_table.exists(table.catalog, identifier, topic_id):
        return redacted
    state = state_of(dead_letter_table.load(table.catalog, identifier))
    if state is None:
        return redacted
    dead = dead_letter_table.already_dead(table.catalog, identifier, state, starts)
    return joined_places(dead, redacted)


def _timestamp_range(options: ReadOptions) -> tuple[int, int] | None:
    """Returns the milliseconds that an export would put into the table's timestamp column."""
    if options.settings["timestamp.sanity"] == "false":
        return None
    now_ms = time.time_ns() // 1_000_000
    return names.TIMESTAMP_MS_MIN, now_ms + names.TIMESTAMP_AHEAD_MS_MAX


def _table_tasks(options: ReadOptions, table: Table, query: QueryRange) -> list[Task]:
    head = table.metadata.snapshot_by_name("main")
    assert head is not None  # Who has a state has a snapshot.
    files: list[FileScanTask] = guarded(
        f"plan the files of table {options.table}",
        lambda: list(
            table.scan(row_filter=_row_filter(query), snapshot_id=head.snapshot_id).plan_files()
        ),
    )
    # Tasks need to know columns and defaults; history would travel with each of them.
    slim = table.metadata.model_copy(
        update={"snapshots": [head], "snapshot_log": [], "metadata_log": [], "statistics": []}
    )
    text = slim.model_dump_json()
    return [
        TableTask(text, io_properties(table), tuple(group))
        for group in group_files(files, TABLE_TASK_BYTES)
    ]


def _row_filter(query: QueryRange) -> str | BooleanExpression:
    """Returns the range as Iceberg's filter, which leaves out files and table partitions."""
    terms = []
    if query.partitions is not None:
        # Iceberg's own words for "none of these" are other ones.
        numbers = ", ".join(map(str, sorted(query.partitions))) or "-1"
        terms.append(f"{names.PARTITION} in ({numbers})")
    if query.offset_from > 0:
        terms.append(f"{names.OFFSET} >= {query.offset_from}")
    if query.offset_to < OFFSET_END:
        terms.append(f"{names.OFFSET} < {query.offset_to}")
    if query.micros_from is not None:
        terms.append(f"{names.TIMESTAMP} >= '{to_human_timestamptz(query.micros_from)}'")
    if query.micros_to is not None:
        terms.append(f"{names.TIMESTAMP} < '{to_human_timestamptz(query.micros_to)}'")
    return " and ".join(terms) if terms else AlwaysTrue()


def table_rows(task: TableTask, columns: pa.Schema, query: QueryRange) -> Iterator[pa.Table]:
    """Yields rows of a task, in the table's own columns where `columns` has them, and little more."""
    metadata, io = Target(task.metadata_json, task.io_properties).open()
    needed = [*columns.names, names.PARTITION, names.TIMESTAMP]
    here = [field.name for field in metadata.schema().fields if field.name in needed]
    for rows in read_rows(task.files, metadata, io, metadata.schema().select(*here)):
        if query.partitions is not None:
            partitions = pa.array(sorted(query.partitions), rows.schema.field(names.PARTITION).type)
            yield rows.filter(pc.is_in(rows.column(names.PARTITION), partitions))
        else:
            yield rows
