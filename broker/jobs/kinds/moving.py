"""Functions that jobs share which move rows: they read spans, write objects, recall pages.

Objects are durable before a command names them. What is read is compared with what the log says
by whoever opens it (`storage.formats.walk`, `storage.formats.page`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.jobs.kinds.walk import timestamp_of
from broker.jobs.worker.context import JobContext
from coordinator.commands.entries import Outcome, Rejected
from coordinator.commands.job_commands import (
    NewSpan,
    RecallPage,
    Replacement,
    ReplaceRows,
    RowsMoved,
)
from coordinator.tables.partition import Partition
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Buffer, Position
from storage.fetch_plan import Read, SpanRead, plan_reads
from storage.formats.page import PageFormatError, decode_rows, digest, encode_rows
from storage.formats.segment import SegmentBuilder
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span
from storage.formats.walk import Merged
from storage.stores.object_store import ObjectExistsError, ObjectNotFoundError, StoreRefusedError

logger = logging.getLogger(__name__)

READS_AT_ONCE: Final = 8
ROWS_PER_COMMAND_MAX: Final = 1000


async def read_spans(context: JobContext, spans: Iterable[Span]) -> dict[Span, Buffer]:
    """The bytes of the spans. Those of objects that are gone, or shorter, are not in it: another
    job was faster, or something is wrong, which `tell_unreadable` finds out."""
    wanted = [
        SpanRead(span, context.machine.object_length(span.object_id), recent=False)
        for span in spans
        if context.machine.objects.is_referenced(span.object_id)
    ]
    found: dict[Span, Buffer] = {}
    turn = asyncio.Semaphore(READS_AT_ONCE)

    async def read(one: Read[Span]) -> None:
        async with turn:
            try:
                data = await context.read(one.object_id, one.start, one.length)
            except (ObjectNotFoundError, StoreRefusedError) as error:
                logger.info("%s was not read: %s", one.object_id.key, error)
                return
        view = memoryview(data)
        for span in one.pieces:
            start = span.start - one.start
            found[span] = view[start : start + span.length]

    async with asyncio.TaskGroup() as tasks:
        for one in plan_reads(wanted, whole_bytes_max=0):
            tasks.create_task(read(one))
    return found


def rows_are(partition: Partition, rows: Sequence[Span | Marker]) -> bool:
    """Whether the partition still has just these rows."""
    indexes = partition.rows_between(rows[0].base_offset, rows[-1].next_offset)
    if indexes is None or len(indexes) != len(rows):
        return False
    return all(partition.row(at) == row for at, row in zip(indexes, rows, strict=True))


def tell_unreadable(
    context: JobContext, partition: Partition, rows: Sequence[Span | Marker], why: str
) -> None:
    """Rows are left as they are; if they are still there, somebody must look at the store."""
    alive = context.machine.topics.by_id(partition.topic_id) is not None
    if alive and rows_are(partition, rows):
        place = f"{partition.topic_id.hex()}-{partition.partition}"
        base, end = rows[0].base_offset, rows[-1].next_offset
        logger.error("offsets %d to %d of %s cannot be moved: %s", base, end, place, why)


def newest_of(
    context: JobContext, partition: Partition, rows: Sequence[Span | Marker], moved_to: Merged
) -> int:
    """The newest timestamp that the new row says. A record further ahead than its topic takes has come under a
    header that hid it (`broker.produce.validation`): it shall not keep all behind it for ever."""
    topic = context.machine.topics.by_id(partition.topic_id)
    said = max(timestamp_of(row) for row in rows)
    if topic is None or moved_to.timestamp_max <= said:
        return moved_to.timestamp_max
    ahead_ms = context.rules.of(topic).timestamp_after_max_ms
    return min(moved_to.timestamp_max, max(said, context.machine.time_ms + ahead_ms))


def replacement(
    builder: SegmentBuilder,
    partition: Partition,
    rows: Sequence[Span | Marker],
    moved_to: Merged,
    *,
    timestamp_max: int,
    clean_to: int = -1,
) -> Replacement:
    """Puts a span into the segment, and says that it takes the place of the rows."""
    base_offset, next_offset = rows[0].base_offset, rows[-1].next_offset
    start = builder.add(
        partition.topic_id,
        partition.partition,
        base_offset=base_offset,
        next_offset=next_offset,
        parts=moved_to.parts,
        timestamp_max=timestamp_max,
    )
    return Replacement(
        partition.topic_id,
        partition.partition,
        base_offset,
        next_offset,
        len(rows),
        digest(encode_rows(rows)),
        (NewSpan(start, moved_to.length, base_offset, timestamp_max),),
        clean_to,
    )


def division(
    context: JobContext,
    builder: SegmentBuilder,
    partition: Partition,
    row: Span,
    pieces: Sequence[tuple[Span, Merged]],
) -> Replacement:
    """Puts the pieces of a row into the segment, and says that they take its place."""
    spans = []
    for piece, moved_to in pieces:
        timestamp_max = newest_of(context, partition, [piece], moved_to)
        start = builder.add(
            partition.topic_id,
            partition.partition,
            base_offset=piece.base_offset,
            next_offset=piece.next_offset,
            parts=moved_to.parts,
            timestamp_max=timestamp_max,
        )
        spans.append(NewSpan(start, moved_to.length, piece.base_offset, timestamp_max))
    return Replacement(
        partition.topic_id,
        partition.partition,
        row.base_offset,
        row.next_offset,
        1,
        digest(encode_rows([row])),
        tuple(spans),
        -1,
    )


async def put_new_object(
    context: JobContext, kind: ObjectKind, parts: Callable[[ObjectId], Sequence[Buffer]]
) -> ObjectId:
    """Write an object under the next number that is free. `context.committing` is held."""
    while True:
        object_id = context.next_object_id(kind)
        try:
            await context.put(object_id, parts(object_id))
        except ObjectExistsError:
            continue  # Of an earlier worker, which did not come to commit it.
        return object_id


async def commit_segment(
    context: JobContext,
    builder: SegmentBuilder,
    replacements: Sequence[Replacement],
    *,
    seen: Position = POSITION_ZERO,
    is_wanted: Callable[[], bool] | None = None,
) -> list[bool]:
    """Write the segment and put its spans into the places of rows; which of them are there.

    `seen` as in ReplaceRows; `is_wanted`: asked when the segment is written, which may take long.
    """
    cluster_id = context.cluster.cluster_id
    async with context.committing(ObjectKind.SEGMENT):
        object_id = await put_new_object(
            context,
            ObjectKind.SEGMENT,
            lambda each: builder.object_parts(each, cluster_id=cluster_id),
        )
        if is_wanted is not None and not is_wanted():
            return [False] * len(replacements)
        number, length = object_id.number, builder.length
        command = ReplaceRows(context.kind, number, length, tuple(replacements), seen)
        return moved(await context.propose(command), len(replacements))


def moved(outcome: Outcome, count: int) -> list[bool]:
    """Which of the rows or pages of a command were moved."""
    if isinstance(outcome, Rejected):
        logger.warning("a proposal was refused: %s", outcome.message)
        return [False] * count
    assert isinstance(outcome, RowsMoved)
    assert len(outcome.errors) == count
    return [error == ErrorCode.NONE for error in outcome.errors]


async def read_page(context: JobContext, page: Page) -> Buffer | None:
    """The page's body, whole; None when it is not to be had."""
    try:
        body = await context.read(page.object_id, page.start, page.length)
    except (ObjectNotFoundError, StoreRefusedError) as error:
        logger.info("a page in %s was not read: %s", page.object_id.key, error)
        return None
    return body if digest(body) == page.digest else None


async def load_page(context: JobContext, page: Page) -> tuple[Span | Marker, ...] | None:
    """The rows of the page; None when they are not to be had."""
    body = await read_page(context, page)
    if body is None:
        return None
    try:
        return decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
    except PageFormatError as error:
        logger.warning("a page in %s cannot be read: %s", page.object_id.key, error)
        return None


async def recall(context: JobContext, partition: Partition, page: Page) -> bool:
    """Bring the page's rows back into memory."""
    body = await read_page(context, page)
    if body is None:
        where = partition.find(page.base_offset)
        if where < partition.row_count and partition.row(where) == page:
            logger.error("a page in %s is gone or damaged", page.object_id.key)
        return False
    command = RecallPage(partition.topic_id, partition.partition, page.base_offset, bytes(body))
    outcome = await context.propose(command)
    return not isinstance(outcome, Rejected) and (
        not isinstance(outcome, RowsMoved) or all(moved(outcome, len(outcome.errors)))
    )
