"""A stream's offsets: where it begins, how far the next batch goes, which tasks read it.

Spark's checkpoint holds {"topic_id": …, "offsets": {partition: next offset}}; a topic that was
deleted and created again is refused rather than read from the middle. Spark before 4.2 asks for
the newest offsets without saying where the stream stands, so that is remembered here:
`maxOffsetsPerTrigger` holds from the first batch that this process has seen on. What grows later
(new partitions) is read from its start.
"""

from collections.abc import Mapping
from typing import Any

from iceberg_export.errors import PlanError
from iceberg_export.plan.agent_client import BEYOND_ALL, AgentClient
from iceberg_export.plan.splits import TopicPlan
from iceberg_export.source.filters import QueryRange
from iceberg_export.source.planning import (
    Decide,
    OffsetRanges,
    chunk_tasks,
    no_decoding,
)
from iceberg_export.source.read_options import LATEST, Bounds, ReadOptions
from iceberg_export.source.tasks import Task

Offset = dict[str, Any]


class Stream:
    """One stream in the process that plans it."""

    def __init__(self, options: ReadOptions, decide: Decide = no_decoding) -> None:
        self._options = options
        self._decide = decide
        self._at: Mapping[int, int] | None = None
        """The end of the newest batch; None: not seen yet in this process."""

    def fetch_bounds(self, client: AgentClient) -> TopicPlan:
        """Fetches where the partitions' logs start and end, without rows."""
        return client.plan_by_name(self._options.topic, {}, others=BEYOND_ALL)

    def initial(self, plan: TopicPlan) -> Offset:
        """Returns where a new stream begins. Raises ExportError."""
        starting = self._options.starting or Bounds(LATEST)
        offsets = {number: starting.at(part) for number, part in plan.partitions.items()}
        if missing := sorted(starting.named.keys() - offsets.keys()):
            raise PlanError(f"topic {plan.topic} has no partition {missing[0]}")
        self._at = offsets
        return _offset(plan.topic_id, offsets)

    def latest(self, plan: TopicPlan) -> Offset:
        """Returns how far the next batch goes. Raises ExportError."""
        ends = {number: part.stable for number, part in plan.partitions.items()}
        limit = self._options.offsets_per_trigger_max
        if limit is not None and self._at is not None:
            starts = {
                number: max(self._at.get(number, 0), part.log_start)
                for number, part in plan.partitions.items()
            }
            ends = limited(starts, ends, limit)
        # A log never ends before where the stream stands, or it is another log.
        for number, offset in (self._at or {}).items():
            if ends.get(number, -1) < offset:
                raise PlanError(
                    f"{plan.topic} partition {number} ends at {ends.get(number, 0)}, the stream "
                    f"already stands at {offset}; is it the cluster that the checkpoint is from?"
                )
        return _offset(plan.topic_id, ends)

    def tasks(self, client: AgentClient, start: Offset, end: Offset) -> list[Task]:
        """Returns tasks that read a batch; the same batch again gives the same records."""
        starts, ends = _numbers(start), _numbers(end)
        self._at = ends
        if starts == ends:
            return []
        plan = client.plan_by_name(
            self._options.topic,
            {number: starts.get(number, 0) for number in ends},
            others=BEYOND_ALL,
            goal=lambda part: ends.get(part.partition, 0),
        )
        for one in (start, end):
            if one["topic_id"] != plan.topic_id:
                raise PlanError(
                    f"topic {plan.topic} was deleted and created again since the checkpoint; "
                    "begin with a new one"
                )
        ranges = {
            number: (starts.get(number, plan.partitions[number].log_start), offset)
            for number, offset in ends.items()
        }
        return chunk_tasks(
            self._options, OffsetRanges(plan, ranges), QueryRange(), self._decide(plan)
        )


def limited(starts: Mapping[int, int], ends: Mapping[int, int], limit: int) -> dict[int, int]:
    """Returns ends that are at most `limit` offsets in all away, shared out by how much each has.

    Every partition that has something gets one, so that none waits for ever, also where that is
    more than the limit; the rest of the limit is shared.
    """
    sizes = {number: max(ends[number] - starts[number], 0) for number in ends}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    busy = sum(size > 0 for size in sizes.values())
    # With nothing but ones there is neither: 1 is there to be divided by.
    room, rest = max(limit - busy, 0), max(total - busy, 1)
    return {
        number: starts[number] + 1 + (size - 1) * room // rest if size else ends[number]
        for number, size in sizes.items()
    }


def _offset(topic_id: str, offsets: Mapping[int, int]) -> Offset:
    return {
        "topic_id": topic_id,
        "offsets": {str(number): offsets[number] for number in sorted(offsets)},
    }


def _numbers(offset: Offset) -> dict[int, int]:
    return {int(number): int(at) for number, at in offset["offsets"].items()}
