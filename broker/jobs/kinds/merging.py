"""The job that merges small rows into spans of segments, and empties objects of little use.

One round goes over all partitions, then again over those where rows were moved, until nothing is
worth it. Runs of many partitions share a segment; a run that changed meanwhile is refused alone,
and left to the next round.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from broker.jobs.kinds import merge_plan
from broker.jobs.kinds.merge_plan import Limits, PagedObjects, Run, Use
from broker.jobs.kinds.moving import (
    ROWS_PER_COMMAND_MAX,
    commit_segment,
    load_page,
    newest_of,
    read_spans,
    recall,
    replacement,
    tell_unreadable,
)
from broker.jobs.kinds.walk import SLICE, width_ms_max, written
from broker.jobs.worker.context import JobContext
from coordinator.commands.job_commands import Replacement
from coordinator.tables.partition import AbortedRange, Partition
from protocol.types import Buffer
from storage.formats.batches import DamagedSpanError
from storage.formats.segment import SegmentBuilder, merge_rows
from storage.formats.spans import ObjectId, Page, Span

logger = logging.getLogger(__name__)

SEGMENT_BYTES_MAX: Final = 64 << 20
"""Of the whole object; a single run may be larger."""
ROWS_PER_TURN_MAX: Final = 5_000
SPARSE_ROUNDS: Final = 5
"""Every so many rounds all rows are looked at for objects of little use..."""
SPARSE_PAGE_ROUNDS: Final = 60
"""...and so many when pages have to be read for it."""
RECALLED_ROWS_MIN: Final = 100_000
"""Of pages, so many come back in one round also when there is no room for them; the others in later ones. All of them may
be more than agents have room for: a topic that shared its segments with all others was deleted, say."""


class _Moving(NamedTuple):
    run: Run
    aborted: list[AbortedRange]
    """What of the run is left out; as known when the run was found."""


async def run(context: JobContext) -> None:
    sparse = await _sparse(context)
    partitions = [partition for partition, _ in written(context.machine, context.rules)]
    while partitions:
        partitions = await _pass(context, partitions, sparse)


async def _pass(
    context: JobContext, partitions: Sequence[Partition], sparse: Collection[ObjectId] | None
) -> list[Partition]:
    """Merge what is worth it; the partitions where something was moved."""
    machine = context.machine
    changed: dict[Partition, None] = {}
    some: list[_Moving] = []
    rows = length = 0
    for count, partition in enumerate(partitions, start=1):
        for found in _runs(context, partition, sparse):
            more = len(found.rows)
            if some and (
                rows + more > ROWS_PER_COMMAND_MAX or length + found.length > SEGMENT_BYTES_MAX
            ):
                changed.update(dict.fromkeys(await _move(context, some)))
                some, rows, length = [], 0, 0
            aborted = partition.aborted(found.base_offset, found.next_offset)
            some.append(_Moving(found, aborted))
            rows += more
            length += found.length
        if count % SLICE == 0:
            context.report(count, len(partitions), "partitions")
            await asyncio.sleep(0)
    if some and machine.incarnations.get(context.incarnation) is not None:
        changed.update(dict.fromkeys(await _move(context, some)))
    if changed:
        context.report(len(partitions), len(partitions), "partitions")
    return list(changed)


def _runs(
    context: JobContext, partition: Partition, sparse: Collection[ObjectId] | None
) -> list[Run]:
    topic = context.machine.topics.by_id(partition.topic_id)
    if topic is None:
        return []
    limits = Limits(
        age_ms=context.settings.merge_age_ms,
        span_bytes_max=context.settings.segment_bytes_max,
        width_ms_max=width_ms_max(context.rules.of(topic)),
    )
    return merge_plan.runs(
        partition,
        limits,
        time_ms=context.machine.time_ms,
        sparse=sparse or (),
        everything=sparse is not None,
    )


async def _move(context: JobContext, some: Sequence[_Moving]) -> list[Partition]:
    """Write runs as spans of one segment; the partitions in which they are."""
    spans = [row for moving in some for row in moving.run.rows if isinstance(row, Span)]
    data = await read_spans(context, spans)
    builder = SegmentBuilder()
    runs: list[Run] = []
    replacements: list[Replacement] = []
    for moving in some:
        found = _add(context, builder, moving, data)
        if found is not None:
            runs.append(moving.run)
            replacements.append(found)
        await asyncio.sleep(0)
    if not replacements:
        return []
    done = await commit_segment(context, builder, replacements)
    return [run.partition for run, is_moved in zip(runs, done, strict=True) if is_moved]


def _add(
    context: JobContext, builder: SegmentBuilder, moving: _Moving, data: dict[Span, Buffer]
) -> Replacement | None:
    """Put a run into the segment; None when it cannot be read."""
    partition, rows = moving.run
    spans = [row for row in rows if isinstance(row, Span)]
    if any(span not in data for span in spans):
        tell_unreadable(context, partition, rows, "an object is not to be had")
        return None
    try:
        merged = merge_rows(rows, [data[span] for span in spans], moving.aborted)
    except DamagedSpanError as error:
        tell_unreadable(context, partition, rows, str(error))
        return None
    timestamp_max = newest_of(context, partition, rows, merged)
    return replacement(builder, partition, rows, merged, timestamp_max=timestamp_max)


# Objects of little use.


async def _sparse(context: JobContext) -> frozenset[ObjectId] | None:
    """Objects to be emptied. Pages with spans in them, or in chunks, are recalled. None: it is
    not the round to look at everything."""
    partitions = context.machine.partitions
    rounds = SPARSE_PAGE_ROUNDS if partitions.page_count else SPARSE_ROUNDS
    if not context.requested and context.stats.runs % rounds:
        return None
    used: dict[ObjectId, Use] = {}
    paged = PagedObjects()
    looked_at = 0
    for partition, _ in written(context.machine, context.rules):
        offset = partition.log_start
        while offset < partition.end_offset:
            rows = partition.rows_from(offset, ROWS_PER_TURN_MAX)
            if not rows:
                break  # All of it was deleted meanwhile.
            looked_at += len(rows)
            offset = rows[-1].next_offset
            for row in rows:
                if isinstance(row, Page):
                    inside = await load_page(context, row) or ()
                    merge_plan.add_used(used, inside)
                    paged.add(partition, row, inside)
                else:
                    merge_plan.add_used(used, (row,))
            if looked_at >= ROWS_PER_TURN_MAX:
                looked_at = 0
                await asyncio.sleep(0)
    lengths = {
        object_id: context.machine.object_length(object_id)
        for object_id in used
        if context.machine.objects.is_referenced(object_id)
    }
    sparse = merge_plan.sparse_objects({one: used[one] for one in lengths}, lengths)
    rows_max = max(RECALLED_ROWS_MIN, context.settings.spill_rows - partitions.row_count)
    for partition, page in paged.to_recall(sparse, rows_max=rows_max):
        await recall(context, partition, page)
    return sparse
