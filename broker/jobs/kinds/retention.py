"""The job that expires records over their topic's limits, and drops rows that clients deleted.

One round goes over all partitions, then again over those where something went, until nothing is
due. What `retention_plan` finds is proposed many partitions at a time and judged again by apply.
Before records go for their age, those that nobody has looked at yet are read.
Also here: pages of deleted topics come back, so that the purge can go on (`broker.upkeep.deleted_topics`).
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from broker.jobs.kinds import retention_plan
from broker.jobs.kinds.moving import read_spans, recall
from broker.jobs.kinds.retention_plan import PARTITIONS_PER_COMMAND_MAX, ROWS_PER_COMMAND_MAX, Due
from broker.jobs.kinds.walk import SLICE, written
from broker.jobs.worker.context import JobContext
from coordinator.commands.entries import Rejected
from coordinator.commands.job_commands import DropRows, ExpireRecords, Expiry, LogsTrimmed
from coordinator.commands.table_commands import TABLES_LEVEL, ExpireHeldRecords, HeldExpiry
from coordinator.tables.partition import Partition
from protocol.errors import ErrorCode
from protocol.types import Position, TopicId
from storage.formats import cluster_identity
from storage.formats.batches import DamagedSpanError
from storage.formats.spans import Page, Span
from storage.formats.walk import newest_in

logger = logging.getLogger(__name__)

READ_BYTES_MAX: Final = 16 << 20
"""At once, but for a span that is longer."""
_Place = tuple[TopicId, int]


async def run(context: JobContext) -> None:
    partitions = [partition for partition, _ in written(context.machine, context.rules)]
    while partitions:
        await _drop(context, partitions)
        partitions = await _expire(context, partitions)
    await _recall_for_purge(context)


async def _expire(context: JobContext, partitions: Sequence[Partition]) -> list[Partition]:
    """Let go of what is due now; the partitions where something went."""
    machine = context.machine
    changed: list[Partition] = []
    some: list[tuple[Partition, Due]] = []
    seen = machine.position
    rows = 0
    for count, partition in enumerate(partitions, start=1):
        read: dict[Span, int] = {}
        due = await _due(context, partition, read)
        if due is not None:
            if rows + due.rows > ROWS_PER_COMMAND_MAX or len(some) == PARTITIONS_PER_COMMAND_MAX:
                changed += await _propose(context, seen, some)
                some, rows = [], 0
                # What was found before the wait may be another now, its settings as well.
                seen = machine.position
                due = await _due(context, partition, read)
            if due is not None:
                some.append((partition, due))
                rows += due.rows
        if count % SLICE == 0:
            context.report(count, len(partitions), "partitions")
            await asyncio.sleep(0)
    if some:
        changed += await _propose(context, seen, some)
    return changed


async def _due(context: JobContext, partition: Partition, read: dict[Span, int]) -> Due | None:
    """By what is set for the topic now, and what its records say; `read` gets what was read."""
    while True:
        due = _due_now(context, partition, read)
        unread = [] if due is None else retention_plan.unread(partition, due, read)
        if not unread:
            return due
        read.update(await _newest_of(context, unread))


async def _newest_of(context: JobContext, spans: Sequence[Span]) -> dict[Span, int]:
    """Of the first spans, as many as are read at once. Whatever cannot be read goes by its word:
    it would stay for ever. Raises StoreError when nothing can be read, which says nothing of it."""
    lengths = accumulate(span.length for span in spans)
    some = spans[: max(1, sum(length <= READ_BYTES_MAX for length in lengths))]
    newest = {span: span.timestamp_max for span in some}
    found = await read_spans(context, some)
    if len(found) < len(newest):
        # Credentials that are being changed, a wrong clock, a proxy that finds nothing.
        await context.read(cluster_identity.KEY)
    for span, data in found.items():
        try:
            newest[span] = newest_in(span, memoryview(data))
        except DamagedSpanError:
            newest[span] = await _newest_again(context, span)
        await asyncio.sleep(0)
    return newest


async def _newest_again(context: JobContext, span: Span) -> int:
    """Of one that came damaged, perhaps on its way only."""
    for data in (await read_spans(context, [span])).values():
        try:
            return newest_in(span, memoryview(data))
        except DamagedSpanError as error:
            logger.warning("records that are said to be too old cannot be read: %s", error)
    return span.timestamp_max


def _due_now(context: JobContext, partition: Partition, read: Mapping[Span, int]) -> Due | None:
    machine = context.machine
    topic = machine.topics.by_id(partition.topic_id)
    if topic is None:
        return None
    settings = context.rules.of(topic)
    if settings.hold_ms >= 0 and not machine.incarnations.all_support(TABLES_LEVEL):
        return None  # What holds records for the export cannot be said to all agents yet.
    exported = machine.exports.offset(partition.topic_id, partition.partition)
    return retention_plan.due(
        partition, settings, time_ms=context.time_ms(), exported=exported, read=read
    )


async def _propose(
    context: JobContext, seen: Position, some: Sequence[tuple[Partition, Due]]
) -> list[Partition]:
    """The partitions whose log start moved."""
    moved = await _propose_plain(context, seen, some) | await _propose_held(context, seen, some)
    return [each for each, _ in some if (each.topic_id, each.partition) in moved]


async def _propose_plain(
    context: JobContext, seen: Position, some: Sequence[tuple[Partition, Due]]
) -> set[_Place]:
    expiries = _as_set_now(context, some)
    plain = tuple([each for each in expiries if isinstance(each, Expiry)])
    return await _moved(context, ExpireRecords(seen, plain)) if plain else set()


async def _propose_held(
    context: JobContext, seen: Position, some: Sequence[tuple[Partition, Due]]
) -> set[_Place]:
    expiries = _as_set_now(context, some)
    held = tuple([each for each in expiries if isinstance(each, HeldExpiry)])
    return await _moved(context, ExpireHeldRecords(seen, held)) if held else set()


def _as_set_now(
    context: JobContext, some: Sequence[tuple[Partition, Due]]
) -> Iterator[Expiry | HeldExpiry]:
    """Of what was found before others were read; apply compares topics' own configs, but knows no defaults."""
    for partition, found in some:
        topic = context.machine.topics.by_id(partition.topic_id)
        if topic is not None and retention_plan.holds(found, context.rules.of(topic)):
            yield found.expiry


async def _moved(context: JobContext, command: ExpireRecords | ExpireHeldRecords) -> set[_Place]:
    """Where the log start moved by it."""
    outcome = await context.propose(command)
    if not isinstance(outcome, LogsTrimmed):
        return set()
    places = [(each.topic_id, each.partition) for each in command.expiries]
    results = zip(places, outcome.results, strict=True)
    return {place for place, result in results if result.error == ErrorCode.NONE}


async def _drop(context: JobContext, partitions: Sequence[Partition]) -> None:
    """Drop what lies before the log starts."""
    left = list(partitions)
    while left:
        dropping: list[tuple[Partition, int, int]] = []
        for count, partition in enumerate(left, start=1):
            if retention_plan.has_dead_rows(partition):
                dropping.append((partition, partition.row_count, partition.page_count))
            if count % SLICE == 0:
                await asyncio.sleep(0)
        for partition, _, _ in dropping:
            await _recall_first(context, partition)
        for first in range(0, len(dropping), PARTITIONS_PER_COMMAND_MAX):
            names = [
                (partition.topic_id, partition.partition)
                for partition, _, _ in dropping[first : first + PARTITIONS_PER_COMMAND_MAX]
            ]
            await context.propose(DropRows(tuple(names)))
        # One command drops so many rows of all partitions together. When nothing happens any
        # more, nothing will: topics are gone, or pages are.
        changed = any(
            (partition.row_count, partition.page_count) != (rows, pages)
            for partition, rows, pages in dropping
        )
        left = [partition for partition, _, _ in dropping] if changed else []


async def _recall_first(context: JobContext, partition: Partition) -> None:
    page = retention_plan.first_page(partition)
    if page is not None:
        await recall(context, partition, page)


async def _recall_for_purge(context: JobContext) -> None:
    """Pages of deleted topics come back one by one, each purged before the next comes; of
    whatever needs no page the purge takes care alone. One that cannot be read is left for a later
    round, and holds up nothing but its own partition."""
    partitions = context.machine.partitions
    unread: set[_Place] = set()
    while (partition := _first(partitions.to_recall(), unread)) is not None:
        row = partition.row(partition.row_count - 1)
        assert isinstance(row, Page)
        if not await recall(context, partition, row):
            unread.add((partition.topic_id, partition.partition))
            continue
        while (command := context.machine.next_purge()) is not None:
            if isinstance(await context.propose(command), Rejected):
                return


def _first(partitions: Iterable[Partition], but: set[_Place]) -> Partition | None:
    wanted = (each for each in partitions if (each.topic_id, each.partition) not in but)
    return next(wanted, None)
