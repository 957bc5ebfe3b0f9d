"""The job that compacts topics with cleanup.policy=compact: the newest record of each key stays.

One partition after the other, the dirtiest first. First the keys of what is dirty are learnt,
then all rows from the first one on are rewritten, a window at a time, each a proposal that is
valid alone: what it leaves out has a newer record that was learnt. So a pass may end anywhere;
what was rewritten stays so. Windows in which nothing changes are not written again.

`clean_to` moves with the windows: all below the end of one has been compared with all that was
learnt, which is more than what lies below it. A row that another job made across the end of what
was learnt is left to the next pass.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from broker.jobs.kinds import compaction_plan
from broker.jobs.kinds.compaction_plan import Cleaning
from broker.jobs.kinds.moving import (
    commit_segment,
    division,
    load_page,
    newest_of,
    read_spans,
    recall,
    replacement,
    tell_unreadable,
)
from broker.jobs.kinds.walk import SLICE, data_bytes_of, written
from broker.jobs.worker.context import JobContext
from coordinator.tables.partition import AbortedRange, Partition
from protocol.types import Buffer
from storage.cleaner import ENTRY_BYTES, Cleaner, OffsetMap
from storage.formats.batches import DamagedSpanError
from storage.formats.segment import SegmentBuilder, merge_rows
from storage.formats.spans import Marker, ObjectKind, Page, Span
from storage.formats.walk import Aborted, Merged, cut

logger = logging.getLogger(__name__)

WINDOW_BYTES_MAX: Final = 8 << 20
"""Of rows that are rewritten together, unless a single one is larger: held in memory, and worked
on at a stretch."""
READ_ROWS_MAX: Final = 100
PIECES_MAX: Final = 500
"""Of a row that is divided at a time."""


class _Dirty(NamedTuple):
    """Adjacent dirty rows, and which of their transactions were aborted."""

    rows: list[Span | Marker]
    aborted: list[AbortedRange]
    """As known when the rows were found: a merge that comes meanwhile leaves aborted batches out
    and makes the partition forget them, but they are in the bytes of these rows."""


async def run(context: JobContext) -> None:
    if not context.settings.kafka.log_cleaner_enable:
        return
    found = await _due(context)
    for done, each in enumerate(found):
        context.report(done, len(found), "partitions")
        # A while has passed, and other jobs have been here.
        now = _cleaning(context, each.partition)
        if now is not None:
            await _clean(context, now)
    if found:
        context.report(len(found), len(found), "partitions")


async def _due(context: JobContext) -> list[Cleaning]:
    """All that is due, the dirtiest first."""
    found: list[Cleaning] = []
    for count, (partition, settings) in enumerate(written(context.machine, context.rules), 1):
        if settings.compacted:
            each = _cleaning(context, partition)
            if each is not None:
                found.append(each)
        if count % SLICE == 0:
            await asyncio.sleep(0)
    return sorted(found, key=lambda each: each.ratio, reverse=True)


def _cleaning(context: JobContext, partition: Partition) -> Cleaning | None:
    topic = context.machine.topics.by_id(partition.topic_id)
    if topic is None:
        return None
    return compaction_plan.cleaning(
        partition,
        context.rules.of(topic),
        time_ms=context.time_ms(),
        requested=context.requested,
    )


async def _clean(context: JobContext, cleaning: Cleaning) -> None:
    """One pass over a partition."""
    partition = cleaning.partition
    topic = context.machine.topics.by_id(partition.topic_id)
    assert topic is not None
    offsets = await _learn(context, cleaning)
    if offsets is None:
        return
    cleaner = Cleaner(
        offsets,
        time_ms=context.time_ms(),
        delete_retention_ms=context.rules.of(topic).delete_retention_ms,
        # Never the earlier of two clocks: it may be far behind.
        begins_ms=context.machine.time_ms,
    )
    bound = min(cleaning.bound, offsets.next_offset)
    offset = _first_offset(partition)
    while offset < bound and await _recall_pages(context, cleaning, offset, bound):
        # Kafka, too, breaks a cleaning off when the topic is not to be compacted any more.
        if not _is_compacted(context, partition):
            return
        offset = max(offset, _first_offset(partition))
        rows = _window(context, partition, offset, bound)
        if not rows or not await _rewrite(context, cleaner, cleaning, rows):
            return
        offset = rows[-1].next_offset


def _is_compacted(context: JobContext, partition: Partition) -> bool:
    topic = context.machine.topics.by_id(partition.topic_id)
    return topic is not None and context.rules.of(topic).compacted


def _first_offset(partition: Partition) -> int:
    """Where the row with the log start begins."""
    first = partition.find(partition.log_start)
    return partition.row(first).base_offset if first < partition.row_count else partition.end_offset


# What is dirty.


async def _learn(context: JobContext, cleaning: Cleaning) -> OffsetMap | None:
    """The keys of what is dirty, as many as memory is for; None when that cannot be read."""
    entries = max(1, context.settings.kafka.log_cleaner_dedupe_buffer_size // ENTRY_BYTES)
    while True:
        offsets = OffsetMap(entries)
        first_end = -1
        async with aclosing(_dirty(context, cleaning)) as dirty:
            async for (rows, aborted), data in dirty:
                if first_end < 0:
                    first_end = rows[0].next_offset
                if data is None:
                    why = "an object is not to be had"
                    tell_unreadable(context, cleaning.partition, rows, why)
                    return None
                try:
                    is_full = not await _add(offsets, rows, aborted, data)
                except DamagedSpanError as error:
                    tell_unreadable(context, cleaning.partition, rows, str(error))
                    return None
                if is_full:
                    break
        if first_end < 0:
            return None
        if offsets.next_offset >= first_end:
            return offsets
        if not await _divide(context, cleaning, entries):
            return None


async def _divide(context: JobContext, cleaning: Cleaning, entries: int) -> bool:
    """Make several rows of the first dirty one, whose keys alone are more than there is memory for: a few megabytes may
    hold millions. False when that cannot be done now."""
    partition = cleaning.partition
    found = partition.rows_from(cleaning.dirty_from, 1)
    if found and isinstance(found[0], Page):
        if not await recall(context, partition, found[0]):
            return False
        found = partition.rows_from(cleaning.dirty_from, 1)
    row = found[0] if found else None
    if not isinstance(row, Span) or not _is_compacted(context, partition):
        return False
    seen = context.machine.position
    aborted = partition.aborted(row.base_offset, row.next_offset)
    data = await _read(context, [row])
    if data is None:
        tell_unreadable(context, partition, [row], "an object is not to be had")
        return False
    builder = SegmentBuilder()
    try:
        pieces = _pieces(row, memoryview(data[row]), aborted, entries)
    except DamagedSpanError as error:
        tell_unreadable(context, partition, [row], str(error))
        return False
    change = division(context, builder, partition, row, pieces)
    (done,) = await commit_segment(context, builder, [change], seen=seen)
    return done and len(pieces) > 1


def _pieces(
    row: Span, data: memoryview, aborted: Sequence[AbortedRange], entries: int
) -> list[tuple[Span, Merged]]:
    pieces = cut(row, data, records_max=max(entries, -(-row.records // PIECES_MAX)))
    found = []
    for piece in pieces:
        start = piece.start - row.start
        content = data[start : start + piece.length]
        found.append((piece, merge_rows([piece], [content], aborted)))
    return found


async def _add(
    offsets: OffsetMap,
    rows: Sequence[Span | Marker],
    aborted: Sequence[AbortedRange],
    data: dict[Span, Buffer],
) -> bool:
    """Learn rows; False when their keys do not fit."""
    ranges = Aborted(aborted)
    for row in rows:
        if isinstance(row, Marker):
            offsets.next_offset = row.next_offset
        elif not offsets.add(row, data[row], ranges):
            return False
        await asyncio.sleep(0)
    return True


async def _dirty(
    context: JobContext, cleaning: Cleaning
) -> AsyncGenerator[tuple[_Dirty, dict[Span, Buffer] | None], None]:
    """The dirty rows in order, some at a time, with their bytes; pages are looked into, not
    recalled. None for the bytes: they are not to be had."""
    async with aclosing(_dirty_rows(context, cleaning)) as found:
        async for rows, aborted in found:
            first = length = 0
            for end, row in enumerate(rows):
                if end > first and (
                    length + data_bytes_of(row) > WINDOW_BYTES_MAX or end - first == READ_ROWS_MAX
                ):
                    yield _Dirty(rows[first:end], aborted), await _read(context, rows[first:end])
                    first, length = end, 0
                length += data_bytes_of(row)
            yield _Dirty(rows[first:], aborted), await _read(context, rows[first:])


async def _dirty_rows(context: JobContext, cleaning: Cleaning) -> AsyncGenerator[_Dirty, None]:
    """Never none at a time; all of a page together."""
    partition = cleaning.partition
    offset = cleaning.dirty_from
    while offset < cleaning.bound:
        # Other jobs are at work meanwhile; rows that are gone when they are read end the pass.
        found = partition.rows_from(offset, READ_ROWS_MAX)
        if not found or found[0].next_offset > cleaning.bound:
            return
        aborted = partition.aborted(found[0].base_offset, found[-1].next_offset)
        if isinstance(page := found[0], Page):
            inside = await load_page(context, page)
            if inside is None:
                return
            yield _Dirty(list(inside), aborted)
            offset = page.next_offset
            continue
        rows: list[Span | Marker] = []
        for row in found:
            if isinstance(row, Page) or row.next_offset > cleaning.bound:
                break
            rows.append(row)
        yield _Dirty(rows, aborted)
        offset = rows[-1].next_offset


async def _read(context: JobContext, rows: Sequence[Span | Marker]) -> dict[Span, Buffer] | None:
    """The bytes of the rows; None when not all are to be had."""
    spans = [row for row in rows if isinstance(row, Span)]
    data = await read_spans(context, spans)
    return data if all(span in data for span in spans) else None


# What is rewritten.


async def _recall_pages(context: JobContext, cleaning: Cleaning, offset: int, bound: int) -> bool:
    """Bring back the pages of the next window; False when one is not to be had."""
    partition = cleaning.partition
    while True:
        end = _window_end(context, partition, offset, bound)
        page = next(
            (
                row
                for row in partition.rows_from(offset, compaction_plan.WINDOW_ROWS_MAX)
                if isinstance(row, Page) and row.next_offset <= end
            ),
            None,
        )
        if page is None:
            return True
        if not await recall(context, partition, page):
            return False


def _window_end(context: JobContext, partition: Partition, offset: int, bound: int) -> int:
    topic = context.machine.topics.by_id(partition.topic_id)
    if topic is None:
        return offset
    return compaction_plan.window_end(
        partition,
        offset,
        bound,
        bytes_max=WINDOW_BYTES_MAX,
        width_ms_max=compaction_plan.window_width_ms_max(context.rules.of(topic)),
    )


def _window(
    context: JobContext, partition: Partition, offset: int, bound: int
) -> list[Span | Marker]:
    """The rows to be rewritten next; none when a row lies across the bound, or a page came."""
    end = _window_end(context, partition, offset, bound)
    rows: list[Span | Marker] = []
    for row in partition.rows_from(offset, compaction_plan.WINDOW_ROWS_MAX):
        if row.next_offset > end:
            break
        if isinstance(row, Page):
            return []
        rows.append(row)
    return rows


async def _rewrite(
    context: JobContext, cleaner: Cleaner, cleaning: Cleaning, rows: Sequence[Span | Marker]
) -> bool:
    """Replace rows by what stays of them; False when the pass ends here."""
    partition = cleaning.partition
    # Of the step in which the settings were looked at, and the rows found.
    seen = context.machine.position
    base_offset, next_offset = rows[0].base_offset, rows[-1].next_offset
    aborted = partition.aborted(base_offset, next_offset)
    data = await _read(context, rows)
    if data is None:
        tell_unreadable(context, partition, rows, "an object is not to be had")
        return False
    spans = [row for row in rows if isinstance(row, Span)]
    try:
        cleaned = cleaner.clean(rows, [data[span] for span in spans], aborted)
    except DamagedSpanError as error:
        tell_unreadable(context, partition, rows, str(error))
        return False
    clean_to = next_offset if next_offset > cleaning.dirty_from else -1
    if clean_to < 0 and _is_same(rows, data, cleaned):
        return True
    builder = SegmentBuilder()
    timestamp_max = newest_of(context, partition, rows, cleaned)
    change = replacement(
        builder, partition, rows, cleaned, timestamp_max=timestamp_max, clean_to=clean_to
    )

    def is_wanted() -> bool:
        # apply compares the topic's own configs; it knows no default of cleanup.policy.
        return _is_compacted(context, partition)

    (done,) = await commit_segment(context, builder, [change], seen=seen, is_wanted=is_wanted)
    return done


def _is_same(rows: Sequence[Span | Marker], data: dict[Span, Buffer], cleaned: Merged) -> bool:
    """One span of a segment, of which everything stays as it is."""
    row = rows[0]
    return (
        len(rows) == 1
        and isinstance(row, Span)
        and row.object_id.kind is ObjectKind.SEGMENT
        and row.length == cleaned.length
        and b"".join(cleaned.parts) == bytes(data[row])
    )
