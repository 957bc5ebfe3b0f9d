"""Applies what an operator has declared lost: offsets without records take the place of rows.

What holds: the rows are those that were seen, by their digest, or nothing changes; said twice it changes nothing the
second time, since the rows are others then. The segment counts as written in any case, as those of jobs do.
"""

from collections.abc import Sequence

from coordinator.commands.entries import DONE, Done, Rejected, too_many
from coordinator.commands.job_commands import JOB_ROWS_MAX
from coordinator.commands.loss_commands import DeclareLost
from coordinator.tables.incarnations import IncarnationRow
from coordinator.tables.losses import Loss, Losses
from coordinator.tables.objects import OBJECT_NUMBERS_AHEAD_MAX, Moment, Objects
from coordinator.tables.partition import Partition
from coordinator.tables.partitions import Partitions
from protocol.errors import ErrorCode
from storage.formats.page import PageFormatError, decode_rows, digest, digest_of_rows
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Row, Span


def declare_lost(
    command: DeclareLost,
    *,
    writer: IncarnationRow,
    partitions: Partitions,
    objects: Objects,
    losses: Losses,
    moment: Moment,
) -> Done | Rejected:
    """For `apply`: judge, then carry out."""
    number = command.number
    if not 0 < number - writer.segment_last <= OBJECT_NUMBERS_AHEAD_MAX:
        reason = f"object {number} after object {writer.segment_last}"
        return Rejected(ErrorCode.INVALID_REQUEST, reason)
    partition = partitions.get(command.topic_id, command.partition)
    recalled = _validate(command, partition)
    refused = isinstance(recalled, Rejected)
    writer.segment_last = number
    slot = objects.slot(writer.incarnation, ObjectKind.SEGMENT)
    objects.add(slot, number, length=command.length, references=int(not refused), moment=moment)
    if isinstance(recalled, Rejected):
        return recalled
    assert partition is not None
    before = partition.sums()
    if recalled:
        partition.recall(partition.find(command.base_offset), recalled, moment)
    indexes = partition.rows_between(command.base_offset, command.next_offset)
    assert indexes is not None
    span = Span(
        ObjectId(writer.incarnation, number, ObjectKind.SEGMENT),
        command.start,
        command.span_length,
        command.base_offset,
        command.next_offset - command.base_offset,
        max(map(partition.timestamp, indexes)),
    )
    partition.lose(indexes, span, moment)
    partitions.changed(partition, before)
    loss = Loss(command.base_offset, command.next_offset, moment.time_ms)
    losses.add((command.topic_id, command.partition), loss, log_start=partition.log_start)
    return DONE


def _validate(
    command: DeclareLost, partition: Partition | None
) -> Rejected | Sequence[Span | Marker]:
    """Why it cannot be; else the rows of the page that must come back first, or none."""
    if (rejected := too_many(command.rows, JOB_ROWS_MAX)) is not None:
        return rejected
    end = command.start + command.span_length
    if command.span_length == 0 or end > command.length:
        return Rejected(ErrorCode.INVALID_REQUEST, "the span reaches over the segment's end")
    if partition is None:
        return Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    recalled = _recalled(command, partition) if command.page else ()
    if isinstance(recalled, Rejected):
        return recalled
    rows = _of_page(command, recalled) if recalled else _in_memory(command, partition)
    if len(rows) != command.rows or not rows:
        reason = (
            f"no {command.rows} rows are of offsets {command.base_offset} to {command.next_offset}"
        )
        return Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, f"{reason} (any more)")
    if digest_of_rows(rows) != command.digest:
        return Rejected(ErrorCode.INVALID_UPDATE_VERSION, "the rows are others than were seen")
    return recalled


def _recalled(command: DeclareLost, partition: Partition) -> Rejected | Sequence[Span | Marker]:
    index = partition.find(command.base_offset)
    page = partition.row(index) if index < partition.row_count else None
    if not isinstance(page, Page) or digest(command.page) != page.digest:
        return Rejected(ErrorCode.INVALID_UPDATE_VERSION, "the page is another one, or has moved")
    try:
        return decode_rows(command.page, base_offset=page.base_offset, next_offset=page.next_offset)
    except PageFormatError as error:
        return Rejected(ErrorCode.CORRUPT_MESSAGE, str(error))


def _in_memory(command: DeclareLost, partition: Partition) -> Sequence[Row]:
    indexes = partition.rows_between(command.base_offset, command.next_offset)
    if indexes is None or len(indexes) != command.rows:
        return ()
    return [partition.row(index) for index in indexes]


def _of_page(command: DeclareLost, rows: Sequence[Span | Marker]) -> Sequence[Row]:
    """Those of the page's rows that cover just the offsets."""
    base, following = command.base_offset, command.next_offset
    found = [row for row in rows if base <= row.base_offset and row.next_offset <= following]
    covered = sum([row.next_offset - row.base_offset for row in found])
    return found if covered == following - base else ()
