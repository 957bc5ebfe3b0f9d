"""The plan that the exporter gets of a topic: where the records of its partitions lie, as plain JSON
values.

Pure; the admin endpoint reads pages and adds where the store is. Only what is stable is in it:
spans and markers end at the last stable offset, and the aborted transactions among them are named.
A plan is bounded by rows; who gets a part asks for the rest of a partition from where it ends.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from coordinator.machine.machine import Machine
from coordinator.tables.partitions import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId
from storage.formats.spans import Marker, Page, Span

PLAN_ROWS_MAX: Final = 5_000
"""Spans and markers of one plan: it is made, and written as JSON, in one go."""

PageRows = Callable[[Page], Sequence[Span | Marker] | None]


class TopicPlan(NamedTuple):
    view: dict[str, Any]
    """As JSON; of no use while pages are missing."""
    missing: list[Page]
    """Pages that must be read first: ask again then."""


class _Rows:
    """How many rows there is still room for, and what is missing."""

    __slots__ = ("left", "missing", "pages")

    def __init__(self, pages: PageRows, left: int) -> None:
        self.pages = pages
        self.left = left
        self.missing: list[Page] = []


def topic_plan(
    machine: Machine,
    topic_id: TopicId,
    *,
    partitions: Mapping[int, int] | None = None,
    pages: PageRows = lambda _: None,
    rows_max: int = PLAN_ROWS_MAX,
) -> TopicPlan:
    """The plan of one topic at the machine's position.

    `partitions`: the offset to begin at for each partition wanted (the log start when that is
    later); None: all, from the log start. A span is [object key, start, length, base offset,
    offsets, newest timestamp]; the first may begin before the offset asked for, and the last may
    reach beyond the end, as spans are whole. A marker is its offset; spans and markers together
    are dense. An aborted transaction is [producer id, first offset, offset of its marker]: the
    batches of that producer between are not committed. The plan of a partition reaches to `end`,
    which is before `stable` (the last stable offset) when there are too many rows. `compacted`: log
    compaction may have removed records below the end. `eras`: for each era after the first, where it
    began, and the last stable offset there: who has read further in an era before has what was lost. `lost`: offsets that
    were declared lost, and have no records: [base offset, next offset, when (ms)], whole, those that reach into the plan.

    Raises KafkaError (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION).
    """
    topic = machine.topics.by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of id {topic_id.hex()}")
    if partitions is None:
        partitions = dict.fromkeys(range(topic.partition_count), 0)
    rows = _Rows(pages, rows_max)
    is_compacted = "compact" in topic.configs.get("cleanup.policy", "")
    views = []
    for number, from_offset in sorted(partitions.items()):
        partition = machine.partitions.get(topic_id, number)
        if partition is None:
            reason = f"topic {topic.name} has no partition {number}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        view = _partition_plan(partition, from_offset, rows)
        eras = [[row.begun, row.stable_end_of((topic_id, number))] for row in machine.eras.rows]
        lost = machine.losses.between((topic_id, number), view["log_start"], view["end"])
        more = {"eras": eras, "lost": [[*each] for each in lost]}
        views.append(view | {"compacted": is_compacted or partition.clean_to > 0} | more)
    view = {
        "topic": topic.name,
        "topic_id": topic_id.hex(),
        "position": machine.position,
        "partitions": views,
    }
    return TopicPlan(view, rows.missing)


def _partition_plan(partition: Partition, from_offset: int, rows: _Rows) -> dict[str, Any]:
    stable = partition.last_stable
    end = start = min(max(from_offset, partition.log_start), stable)
    spans: list[list[Any]] = []
    markers: list[int] = []
    for row in _rows_from(partition, start, rows):
        if row.base_offset >= stable or rows.left <= 0:
            break
        rows.left -= row.rows if isinstance(row, Page) else 1
        end = min(row.next_offset, stable)
        if isinstance(row, Page):
            rows.missing.append(row)
        elif isinstance(row, Marker):
            markers.append(row.base_offset)
        else:
            object_id, *place = row
            spans.append([object_id.key, *place])
    return {
        "partition": partition.partition,
        "log_start": partition.log_start,
        "end": end,
        "stable": stable,
        "spans": spans,
        "markers": markers,
        "aborted": [list(aborted) for aborted in partition.aborted(start, end)],
    }


def _rows_from(partition: Partition, offset: int, rows: _Rows) -> Iterator[Span | Marker | Page]:
    """Rows from the one that holds `offset` on; pages only where they have not been read."""
    for index in range(partition.find(offset), partition.row_count):
        row = partition.row(index)
        inside = rows.pages(row) if isinstance(row, Page) else None
        if inside is None:
            yield row
        else:
            first = bisect_right(inside, offset, key=lambda one: one.base_offset) - 1
            yield from inside[max(first, 0) :]
