"""From options and filters to tasks: one plan of an agent, and for a table one snapshot.

Everything before the offsets of the table's snapshot is in its files, everything from there to
the last stable offset in chunks: each record is there once. The table is looked at first, so what
is exported in between is still read from chunks.

A pin keeps the objects of plans. Queries share one pin for a sixth of its lifetime: it is asked
for once, and a pin that lives keeps its position, so it also keeps what later queries read.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import FileScanTask, Table
from pyiceberg.utils.datetime import to_human_timestamptz

from iceberg_export import names, topic_settings
from iceberg_export.agent_client import AgentClient
from iceberg_export.catalog import find_table, guarded, view_of
from iceberg_export.commit import check_owner
from iceberg_export.errors import CatalogError, PlanError, SettingsError, StateError
from iceberg_export.plan import PartitionPlan, PlannedSpan, TopicPlan, clip, make_splits
from iceberg_export.source.filters import OFFSET_END, Wanted
from iceberg_export.source.read_options import EARLIEST, LATEST, Bounds, ReadOptions
from iceberg_export.source.reading import ChunkTask, TableTask, Task
from iceberg_export.state import TOPIC, State, read_state

PARALLELISM = 16
"""Tasks wanted when there is enough to do: who plans does not know how many cores there are."""
BEYOND_ALL = 1 << 62
"""No log is so long: a plan from there on has no rows, only where the log starts and ends."""
PINS_PER_LIFETIME = 6
TABLE_TASK_BYTES = 128 * 1024 * 1024


class Ranges(NamedTuple):
    """Offsets [start, end) by partition, of a plan that has the spans of all of them."""

    plan: TopicPlan
    by_partition: Mapping[int, tuple[int, int]]


def pin(client: AgentClient, lifetime_ms: int, now_ms: int, pinned: dict[str, int]) -> None:
    """Keep what is reachable now for `lifetime_ms`; `pinned` is what this process has asked for."""
    share = now_ms * PINS_PER_LIFETIME // lifetime_ms
    name = f"spark-{lifetime_ms}-{share}"
    if name in pinned:
        return
    # Until the next one takes over, and then for as long as the last query may take.
    client.pin(name, lifetime_ms + lifetime_ms // PINS_PER_LIFETIME)
    pinned.clear()
    pinned[name] = now_ms


def plan_topic(options: ReadOptions, client: AgentClient, wanted: Wanted) -> list[Task]:
    """Tasks that read a topic between the offsets of the options. Raises ExportError."""
    starting = options.starting or Bounds(EARLIEST)
    ending = options.ending or Bounds(LATEST)
    plan = _ask(options.topic, client, wanted, starting, ending.at)
    ranges = {
        number: (starting.at(part), ending.at(part)) for number, part in plan.partitions.items()
    }
    _check_named(options.topic, plan, (starting, ending))
    return chunk_tasks(options, Ranges(plan, ranges), wanted)


def _ask(
    topic: str,
    client: AgentClient,
    wanted: Wanted,
    starting: Bounds,
    end: Callable[[PartitionPlan], int],
) -> TopicPlan:
    """The plan of what lies in the box, and little more."""
    places = {EARLIEST: 0, LATEST: BEYOND_ALL}
    offsets = {
        number: max(places.get(offset, offset), wanted.offset_from)
        for number, offset in starting.named.items()
    }

    def goal(part: PartitionPlan) -> int:
        return min(end(part), wanted.offset_to) if wanted.has(part.partition) else 0

    others = max(places.get(starting.everywhere, starting.everywhere), wanted.offset_from)
    try:
        return client.plan_by_name(
            topic,
            {number: min(offset, BEYOND_ALL) for number, offset in offsets.items()},
            others=min(others, BEYOND_ALL),
            goal=goal,
        )
    except PlanError as error:
        raise PlanError(f"{error} (while {topic} was planned)") from error


def _check_named(topic: str, plan: TopicPlan, bounds: tuple[Bounds, ...]) -> None:
    for one in bounds:
        if missing := sorted(one.named.keys() - plan.partitions.keys()):
            raise SettingsError(
                f"topic {topic} has no partition {missing[0]}, which the offsets name"
            )


def chunk_tasks(options: ReadOptions, ranges: Ranges, wanted: Wanted) -> list[Task]:
    """Tasks for the records of `ranges` that lie in the box. Raises PlanError at lost records."""
    plan = ranges.plan
    spans: list[PlannedSpan] = []
    for number, (start, end) in sorted(ranges.by_partition.items()):
        part = plan.partitions[number]
        first = _present(options, plan, part, start, end)
        first, last = max(first, wanted.offset_from), min(end, wanted.offset_to)
        if not wanted.has(number) or first >= last:
            continue
        if part.end < last:
            raise PlanError(
                f"{plan.topic} partition {number}: records were deleted while they were planned; "
                "run the query again"
            )
        clipped = clip(part, start=first, end=last, topic=plan.topic)
        spans += [span for span in clipped.spans if not _too_old(span, wanted)]
    splits = make_splits(
        spans,
        bytes_max=options.settings.number("split.bytes.max"),
        parallelism=PARALLELISM,
    )
    return [ChunkTask(plan.store, options.store_options, split) for split in splits]


def _present(
    options: ReadOptions, plan: TopicPlan, part: PartitionPlan, start: int, end: int
) -> int:
    """`start`, or where the log starts now if records that were asked for are gone."""
    where = f"{plan.topic} partition {part.partition}"
    if max(start, end) > part.stable:
        raise PlanError(
            f"{where}: offset {max(start, end)} is not there yet, committed records end at "
            f"{part.stable}; is it the cluster that the offsets are from?"
        )
    if start >= part.log_start:
        return start
    if options.fail_on_data_loss and start < end:
        raise PlanError(
            f"{where}: offsets {start} to {part.log_start - 1} are deleted; "
            "with failOnDataLoss=false the read begins behind them"
        )
    return part.log_start


def _too_old(span: PlannedSpan, wanted: Wanted) -> bool:
    """No record of the span is as new as wanted."""
    if wanted.micros_from is None or span.timestamp_max < 0:
        return False
    return span.timestamp_max * 1000 < wanted.micros_from


def open_table(options: ReadOptions, catalog: Catalog) -> Table:
    """The table that the options name. Raises CatalogError."""
    before, dot, name = options.table.rpartition(".")
    identifier = (before if dot else options.settings["table.namespace"], name)
    table = find_table(catalog, identifier)
    if table is None:
        raise CatalogError(f"there is no table {'.'.join(identifier)}; export the topic first")
    return table


def table_state(table: Table) -> State:
    """Where the export of the snapshot that is read stands. Raises StateError."""
    state = read_state(view_of(table))
    if state is None or TOPIC not in table.metadata.properties:
        raise StateError(f"table {'.'.join(table.name())} is not one that the exporter made")
    return state


def plan_table(
    options: ReadOptions, client: AgentClient, table: Table, wanted: Wanted
) -> list[Task]:
    """Tasks that read a table and what is not in it yet. Raises ExportError."""
    state = table_state(table)
    topic = table.metadata.properties[TOPIC]
    if options.topic not in ("", topic):
        raise SettingsError(f"table {options.table} is that of topic {topic}, say topic or table")
    starting = Bounds(EARLIEST, state.offsets)
    plan = _ask(topic, client, wanted, starting, lambda part: part.stable)
    check_owner(table, topic=topic, topic_id=plan.topic_id, cluster_id=plan.cluster_id)
    if topic_settings.parse(plan.configs, topic).mode == "upsert":
        raise SettingsError(
            f"table {options.table} holds the newest record of each key; read it alone, or the "
            "topic alone"
        )
    _check_named(topic, plan, (starting,))
    ranges = {number: (starting.at(part), part.stable) for number, part in plan.partitions.items()}
    return [
        *_table_tasks(options, table, wanted),
        *chunk_tasks(options, Ranges(plan, ranges), wanted),
    ]


def _table_tasks(options: ReadOptions, table: Table, wanted: Wanted) -> list[Task]:
    head = table.metadata.snapshot_by_name("main")
    assert head is not None  # Who has a state has a snapshot.
    files: list[FileScanTask] = guarded(
        f"plan the files of table {options.table}",
        lambda: list(
            table.scan(row_filter=_row_filter(wanted), snapshot_id=head.snapshot_id).plan_files()
        ),
    )
    groups: list[list[FileScanTask]] = []
    room = 0
    for file in files:
        if room < file.file.file_size_in_bytes:
            groups.append([])
            room = TABLE_TASK_BYTES
        groups[-1].append(file)
        room -= file.file.file_size_in_bytes
    # Tasks need to know columns and defaults; history would travel with each of them.
    slim = table.metadata.model_copy(
        update={"snapshots": [head], "snapshot_log": [], "metadata_log": [], "statistics": []}
    )
    text = slim.model_dump_json()
    return [TableTask(text, dict(table.io.properties), tuple(group)) for group in groups]


def _row_filter(wanted: Wanted) -> str | BooleanExpression:
    """The box for Iceberg, which leaves out files and table partitions by it."""
    terms = []
    if wanted.partitions is not None:
        # Iceberg's own words for "none of these" are other ones.
        numbers = ", ".join(map(str, sorted(wanted.partitions))) or "-1"
        terms.append(f"{names.PARTITION} in ({numbers})")
    if wanted.offset_from > 0:
        terms.append(f"{names.OFFSET} >= {wanted.offset_from}")
    if wanted.offset_to < OFFSET_END:
        terms.append(f"{names.OFFSET} < {wanted.offset_to}")
    if wanted.micros_from is not None:
        terms.append(f"{names.TIMESTAMP} >= '{to_human_timestamptz(wanted.micros_from)}'")
    if wanted.micros_to is not None:
        terms.append(f"{names.TIMESTAMP} < '{to_human_timestamptz(wanted.micros_to)}'")
    return " and ".join(terms) if terms else AlwaysTrue()
