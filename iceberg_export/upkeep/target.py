"""Where an export is to begin, or to go on: offsets, an end of the log, or a time.

A time becomes offsets before anything is changed: of each partition that of the first record at or after
it, and where there is none the end of what is committed. The log is read for it in parts, in tasks, so
memory is bounded and a time long ago is found soon.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from iceberg_export.errors import SettingsError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import PartitionPlan, TopicPlan, clip
from iceberg_export.records.seek import SeekTask, first_offsets, lowest, may_have
from iceberg_export.runs.job import Job


class End(Enum):
    """An end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Time(NamedTuple):
    """The first record at or after it."""

    timestamp_ms: int


Target = End | Time | Mapping[int, int]
"""Offsets are by partition; partitions that are not named stay where they are."""


def parse_target(text: str) -> Target:
    """`earliest`, `latest`, or `{partition: offset, ...}`, braces optional. Raises SettingsError."""
    for end in End:
        if text.strip() == end.value:
            return end
    found: dict[int, int] = {}
    for part in text.strip().removeprefix("{").removesuffix("}").split(","):
        number, colon, offset = (piece.strip().strip("'\"") for piece in part.partition(":"))
        if not (colon and _is_digits(number) and _is_digits(offset)):
            raise SettingsError(
                f"--to {text}: say earliest, latest, or partition:offset pairs like {{0:120,1:80}}"
            )
        if int(number) in found:
            raise SettingsError(f"--to {text}: partition {number} is named twice")
        found[int(number)] = int(offset)
    return found


def parse_time(text: str) -> Time:
    """An ISO 8601 time; UTC when it names no zone, as in Kafka's tools. Raises SettingsError."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise SettingsError(f"{text!r} is not a time like 2026-01-31T08:00:00") from error
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return Time(int(at.timestamp() * 1000))


def find_offsets(job: Job, topic: Topic, target: Target) -> Mapping[int, int] | None:
    """Returns the offsets of a target, by partition; None: each log's start. Raises ExportError."""
    if isinstance(target, Mapping):
        return target
    if target is End.EARLIEST:
        return None
    if isinstance(target, Time):
        return _first_at(job, topic, target.timestamp_ms)
    plan = job.client.plan(topic, {}, bytes_enough=0)
    return {number: part.stable for number, part in plan.partitions.items()}


def _first_at(job: Job, topic: Topic, timestamp_ms: int) -> dict[int, int]:
    bytes_max = job.settings.number("commit.bytes.max")
    starts: dict[int, int] = {}
    found: dict[int, int] = {}
    while True:
        plan = job.client.plan(topic, starts, bytes_enough=bytes_max)
        left = [part for number, part in plan.partitions.items() if number not in found]
        found |= _first_in(job, plan, left, starts, timestamp_ms)
        starts = {number: part.end for number, part in plan.partitions.items()}
        for part in left:
            if part.partition not in found and part.end >= part.stable:
                found[part.partition] = part.stable
        if found.keys() == plan.partitions.keys():
            return found
        # Of partitions that are done no more is asked for.
        starts |= {number: plan.partitions[number].stable for number in found}


def _first_in(
    job: Job,
    plan: TopicPlan,
    parts: list[PartitionPlan],
    starts: Mapping[int, int],
    timestamp_ms: int,
) -> dict[int, int]:
    spans = []
    for part in parts:
        start = max(part.log_start, starts.get(part.partition, 0))
        clipped = clip(part, start=min(start, part.end), end=part.end, topic=plan.topic)
        spans += [span for span in clipped.spans if may_have(span, timestamp_ms)]
    if not spans:
        return {}
    splits = job.splits(spans)
    options = job.settings.store_options
    return lowest(
        job.runner().run(
            first_offsets,
            [SeekTask(plan.store, options, split.spans, timestamp_ms) for split in splits],
            sizes=[split.byte_count for split in splits],
            title=f"{plan.topic}: the first records at or after the time",
        )
    )


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
