"""From options and filters to tasks that read chunks: one plan of an agent.

A pin keeps the objects of plans. Queries share one pin for a sixth of its lifetime: it is asked
for once, and a pin that lives keeps its position, so it also keeps what later queries read.
Tables are `tables`' business: who reads a topic alone needs no catalog, nor time to load one.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from iceberg_export.errors import PlanError, SettingsError
from iceberg_export.plan.agent_client import BEYOND_ALL, AgentClient
from iceberg_export.plan.splits import PartitionPlan, PlannedSpan, TopicPlan, clip, make_splits
from iceberg_export.source.filters import QueryRange
from iceberg_export.source.read_options import EARLIEST, LATEST, Bounds, ReadOptions
from iceberg_export.source.tasks import ChunkTask, Decoding, Task

PARALLELISM = 16
"""Tasks wanted when there is enough to do: who plans does not know how many cores there are."""
PINS_PER_LIFETIME = 6


class OffsetRanges(NamedTuple):
    """Offsets [start, end) by partition, of a plan that has the spans of all of them."""

    plan: TopicPlan
    by_partition: Mapping[int, tuple[int, int]]


RAW = Decoding()
Decide = Callable[[TopicPlan], Decoding]
"""Returns the decoding for a plan, which has the topic's settings."""


def no_decoding(_plan: TopicPlan) -> Decoding:
    return RAW


def pin(client: AgentClient, lifetime_ms: int, now_ms: int, pinned: dict[str, int]) -> None:
    """Pins what is reachable now for `lifetime_ms`; `pinned` is what this process has asked for."""
    share = now_ms * PINS_PER_LIFETIME // lifetime_ms
    name = f"spark-{lifetime_ms}-{share}"
    if name in pinned:
        return
    # Until the next one takes over, and then for as long as the last query may take.
    client.pin(name, lifetime_ms + lifetime_ms // PINS_PER_LIFETIME)
    pinned.clear()
    pinned[name] = now_ms


def plan_topic(
    options: ReadOptions, client: AgentClient, query: QueryRange, decide: Decide = no_decoding
) -> list[Task]:
    """Returns tasks that read a topic between the offsets of the options. Raises ExportError."""
    starting = options.starting or Bounds(EARLIEST)
    ending = options.ending or Bounds(LATEST)
    plan = fetch_plan(options.topic, client, query, starting, ending.at)
    ranges = {
        number: (starting.at(part), ending.at(part)) for number, part in plan.partitions.items()
    }
    check_partitions(options.topic, plan, (starting, ending))
    return chunk_tasks(options, OffsetRanges(plan, ranges), query, decide(plan))


def fetch_plan(
    topic: str,
    client: AgentClient,
    query: QueryRange,
    starting: Bounds,
    end: Callable[[PartitionPlan], int],
) -> TopicPlan:
    """Fetches the plan of what lies in the query's range, and little more."""
    places = {EARLIEST: 0, LATEST: BEYOND_ALL}
    offsets = {
        number: max(places.get(offset, offset), query.offset_from)
        for number, offset in starting.named.items()
    }

    def goal(part: PartitionPlan) -> int:
        return min(end(part), query.offset_to) if query.has(part.partition) else 0

    others = max(places.get(starting.everywhere, starting.everywhere), query.offset_from)
    try:
        return client.plan_by_name(
            topic,
            {number: min(offset, BEYOND_ALL) for number, offset in offsets.items()},
            others=min(others, BEYOND_ALL),
            goal=goal,
        )
    except PlanError as error:
        raise PlanError(f"{error} (while {topic} was planned)") from error


def check_partitions(topic: str, plan: TopicPlan, bounds: tuple[Bounds, ...]) -> None:
    for one in bounds:
        if missing := sorted(one.named.keys() - plan.partitions.keys()):
            raise SettingsError(
                f"topic {topic} has no partition {missing[0]}, which the offsets name"
            )


def chunk_tasks(
    options: ReadOptions, ranges: OffsetRanges, query: QueryRange, decoding: Decoding = RAW
) -> list[Task]:
    """Returns tasks for the records of `ranges` in the query's range. Raises PlanError at lost records."""
    plan = ranges.plan
    spans: list[PlannedSpan] = []
    for number, (start, end) in sorted(ranges.by_partition.items()):
        part = plan.partitions[number]
        first = _first_present_offset(options, plan, part, start, end)
        first, last = max(first, query.offset_from), min(end, query.offset_to)
        if not query.has(number) or first >= last:
            continue
        if part.end < last:
            raise PlanError(
                f"{plan.topic} partition {number}: records were deleted while they were planned; "
                "run the query again"
            )
        clipped = clip(part, start=first, end=last, topic=plan.topic)
        spans += [span for span in clipped.spans if not _too_old(span, query)]
    splits = make_splits(
        spans,
        bytes_max=options.settings.number("split.bytes.max"),
        parallelism=PARALLELISM,
    )
    return [ChunkTask(plan.store, options.store_options, split, decoding) for split in splits]


def _first_present_offset(
    options: ReadOptions, plan: TopicPlan, part: PartitionPlan, start: int, end: int
) -> int:
    """Returns `start`, or where the log starts now if records that were asked for are gone."""
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


def _too_old(span: PlannedSpan, query: QueryRange) -> bool:
    """Tells whether all records of a segment's span are too old. Timestamps in chunks are the producers' word."""
    if query.micros_from is None or span.timestamp_max < 0 or not span.is_absolute:
        return False
    return span.timestamp_max * 1000 < query.micros_from
