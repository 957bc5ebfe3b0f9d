"""The job that moves old rows out of the memory into pages, many partitions to an object.

A page is read back and its rows compared before the log hears of it: from then on it is the only
place that knows where those records are.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from broker.jobs.kinds import spill_plan
from broker.jobs.kinds.moving import moved, put_new_object
from broker.jobs.kinds.spill_plan import Spill
from broker.jobs.kinds.walk import SLICE, written
from broker.jobs.worker.context import JobContext
from coordinator.commands.job_commands import NewPage, SpillRows
from storage.formats.index_object import IndexBuilder, IndexedPage
from storage.formats.page import decode_rows, digest, encode_rows
from storage.formats.spans import ObjectId, ObjectKind

logger = logging.getLogger(__name__)

SPILL_ROWS_MAX: Final = 1000
"""Rows of one command, unless a single page has more."""


async def run(context: JobContext) -> None:
    machine = context.machine
    settings = context.settings
    some: list[Spill] = []
    rows = 0
    partitions = list(written(machine, context.rules))
    for count, (partition, limits) in enumerate(partitions, start=1):
        found = spill_plan.spills(
            partition,
            limits,
            time_ms=machine.time_ms,
            age_ms=settings.spill_age_ms,
            crowded=machine.partitions.row_count - rows > settings.spill_rows,
        )
        for spill in found:
            if some and rows + len(spill.rows) > SPILL_ROWS_MAX:
                await _spill(context, some)
                some, rows = [], 0
            some.append(spill)
            rows += len(spill.rows)
        if count % SLICE == 0:
            context.report(count, len(partitions), "partitions")
            await asyncio.sleep(0)
    if some:
        await _spill(context, some)


async def _spill(context: JobContext, some: Sequence[Spill]) -> None:
    builder = IndexBuilder()
    indexed = [
        builder.add(
            spill.partition.topic_id,
            spill.partition.partition,
            base_offset=spill.rows[0].base_offset,
            next_offset=spill.rows[-1].next_offset,
            body=encode_rows(spill.rows),
        )
        for spill in some
    ]
    cluster_id = context.cluster.cluster_id
    async with context.committing(ObjectKind.INDEX):
        object_id = await put_new_object(
            context,
            ObjectKind.INDEX,
            lambda each: builder.object_parts(each, cluster_id=cluster_id),
        )
        await _compare(context, object_id, some, indexed)
        pages = [
            NewPage(
                page.topic_id,
                page.partition,
                page.base_offset,
                page.next_offset,
                len(spill.rows),
                page.start,
                page.length,
                page.digest,
            )
            for spill, page in zip(some, indexed, strict=True)
        ]
        outcome = await context.propose(SpillRows(object_id.number, builder.length, tuple(pages)))
    moved(outcome, len(pages))


async def _compare(
    context: JobContext,
    object_id: ObjectId,
    some: Sequence[Spill],
    indexed: Sequence[IndexedPage],
) -> None:
    """Read the object back: it must have the rows. Asserts it, since nothing else can be done."""
    data = memoryview(await context.read(object_id))
    for spill, page in zip(some, indexed, strict=True):
        body = data[page.start : page.start + page.length]
        assert digest(body) == page.digest, f"{object_id.key} is not what was written"
        rows = decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
        assert rows == spill.rows
