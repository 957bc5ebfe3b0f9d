"""Applies the commands of jobs: rows are trimmed, expire, move and are dropped.

A job has seen what it proposes in its own replica; here it is judged against what is there now, so
that a proposal that was overtaken, or one of a wild clock, deletes nothing that somebody may still
read. Rows are named by a digest of what was read (`storage.formats.page.digest`). What a segment holds is
its writer's word, as with chunks.

Invariants: a command is judged before it touches anything, each trim, replacement, page and object
for itself; no command touches more rows than `job_commands` allows. What is written into an
object counts as committed with its number, also when all of it was refused: then nothing points
at it, and collection takes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from coordinator.commands.entries import DONE, Done, Rejected, too_many
from coordinator.commands.job_commands import (
    JOB_OBJECTS_MAX,
    JOB_ROWS_MAX,
    PAGE_BYTES_MAX,
    SPILL_ROWS_MAX,
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobCommand,
    JobKind,
    JobOutcome,
    LogsTrimmed,
    NewPage,
    NewSpan,
    ObjectsDoomed,
    PublishSnapshot,
    RecallPage,
    ReleaseJobs,
    Replacement,
    ReplaceRows,
    ReportJob,
    RequestJob,
    RowsMoved,
    SpillRows,
    Trim,
    TrimLogs,
    Trimmed,
)
from coordinator.commands.loss_commands import DeclareLost
from coordinator.commands.table_commands import ExpireHeldRecords, HeldExpiry
from coordinator.machine.loss_applier import declare_lost
from coordinator.tables.exports import Exports
from coordinator.tables.incarnations import IncarnationRow, Incarnations
from coordinator.tables.jobs import Jobs
from coordinator.tables.losses import Losses
from coordinator.tables.objects import DOOMED_MAX, OBJECT_NUMBERS_AHEAD_MAX, Moment, Objects
from coordinator.tables.partition import Partition
from coordinator.tables.partitions import Partitions
from coordinator.tables.pins import Pins
from coordinator.tables.snapshots import Snapshots
from coordinator.tables.topics import Topics
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Incarnation, Position, TopicId
from storage.formats.page import PAGE_ROWS_MAX, PageFormatError, decode_rows, digest, encode_rows
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span

BoundingCommand = JobCommand | ExpireHeldRecords | DeclareLost

_Place = tuple[TopicId, int]


@dataclass(slots=True, eq=False, kw_only=True)
class JobApplier:
    """Applies commands of live writers to the tables of the machine."""

    jobs: Jobs
    snapshots: Snapshots
    topics: Topics
    partitions: Partitions
    objects: Objects
    incarnations: Incarnations
    pins: Pins
    exports: Exports
    losses: Losses

    def apply(
        self,
        command: BoundingCommand,
        *,
        writer: IncarnationRow,
        moment: Moment,
    ) -> Done | Rejected | JobOutcome:
        """For `apply`: judge the command of a live writer, then carry it out."""
        match command:
            case ClaimJobs():
                return self.jobs.claim(command, writer.incarnation, moment)
            case ReleaseJobs():
                return self.jobs.release(command, writer.incarnation, self.incarnations, moment)
            case ReportJob():
                return self.jobs.report(command, writer.incarnation, moment)
            case RequestJob():
                return self.jobs.request(command, moment)
            case TrimLogs():
                return self._trim(command, moment)
            case DeclareLost():
                return declare_lost(
                    command,
                    writer=writer,
                    partitions=self.partitions,
                    objects=self.objects,
                    losses=self.losses,
                    moment=moment,
                )
            case _:
                if (rejected := self._validate_holder(command, writer.incarnation)) is not None:
                    return rejected
                return self._apply_fenced(command, writer, moment)

    def _apply_fenced(
        self,
        command: (
            BeginSnapshot
            | PublishSnapshot
            | ExpireRecords
            | DropRows
            | ReplaceRows
            | SpillRows
            | RecallPage
            | DoomObjects
            | ForgetObjects
            | ExpireHeldRecords
        ),
        writer: IncarnationRow,
        moment: Moment,
    ) -> Done | Rejected | JobOutcome:
        match command:
            case BeginSnapshot():
                return self.snapshots.begin()
            case PublishSnapshot():
                return self.snapshots.publish(command, moment)
            case ExpireRecords() | ExpireHeldRecords():
                return self._expire(command, moment)
            case DropRows():
                return self._drop_rows(command, moment)
            case ReplaceRows():
                return self._replace(command, writer, moment)
            case SpillRows():
                return self._spill(command, writer, moment)
            case RecallPage():
                return self._recall(command, moment)
            case DoomObjects():
                return self._doom(command, moment)
            case ForgetObjects():
                return self._forget(command)
            case _:
                assert_never(command)

    def _validate_holder(self, command: BoundingCommand, writer: Incarnation) -> Rejected | None:
        match command:
            case ReplaceRows(job=(JobKind.MERGE | JobKind.COMPACT) as kind):
                return self.jobs.validate_holder(kind, writer)
            case ReplaceRows():
                reason = f"job {command.job.name} replaces no rows"
                return Rejected(ErrorCode.INVALID_REQUEST, reason)
            case BeginSnapshot() | PublishSnapshot():
                return self.jobs.validate_holder(JobKind.SNAPSHOT, writer)
            case ExpireRecords() | ExpireHeldRecords() | DropRows():
                return self.jobs.validate_holder(JobKind.RETENTION, writer)
            case SpillRows():
                return self.jobs.validate_holder(JobKind.SPILL, writer)
            case DoomObjects() | ForgetObjects():
                return self.jobs.validate_holder(JobKind.COLLECT, writer)
            case _:  # RecallPage: any job changes rows.
                if self.jobs.held_by(writer):
                    return None
                return Rejected(ErrorCode.NOT_COORDINATOR, "the writer holds no job")

    # Offsets that leave the front.

    def _trim(self, command: TrimLogs, moment: Moment) -> LogsTrimmed | Rejected:
        if (rejected := too_many(len(command.trims), JOB_ROWS_MAX)) is not None:
            return rejected
        left = JOB_ROWS_MAX
        results = []
        for trim in command.trims:
            result, dropped = self._trim_one(trim, left, moment)
            results.append(result)
            left -= dropped
        return LogsTrimmed(tuple(results))

    def _trim_one(self, trim: Trim, rows_max: int, moment: Moment) -> tuple[Trimmed, int]:
        """What became of it, and how many rows were dropped."""
        partition = self.partitions.get(trim.topic_id, trim.partition)
        if partition is None:
            return _UNKNOWN, 0
        offset = partition.end_offset if trim.offset == -1 else trim.offset
        if not 0 <= offset <= partition.end_offset:
            return Trimmed(ErrorCode.OFFSET_OUT_OF_RANGE, partition.log_start), 0
        if offset <= partition.log_start:
            return Trimmed(ErrorCode.NONE, partition.log_start), 0
        dropped = self._start_at(partition, offset, rows_max, moment)
        return Trimmed(ErrorCode.NONE, offset), dropped

    def _start_at(self, partition: Partition, offset: int, rows_max: int, moment: Moment) -> int:
        """The log starts there from now on; how many rows were dropped by it."""
        before = partition.sums()
        partition.start_at(offset)
        dropped = partition.drop_before_start(rows_max, moment)
        self.partitions.changed(partition, before)
        return dropped

    def _expire(
        self, command: ExpireRecords | ExpireHeldRecords, moment: Moment
    ) -> LogsTrimmed | Rejected:
        if (rejected := too_many(len(command.expiries), JOB_ROWS_MAX)) is not None:
            return rejected
        left = JOB_ROWS_MAX
        results = []
        for expiry in command.expiries:
            result, rows = self._expire_one(expiry, command.seen, left, moment)
            results.append(result)
            left -= rows
        return LogsTrimmed(tuple(results))

    def _expire_one(
        self, expiry: Expiry | HeldExpiry, seen: Position, rows_max: int, moment: Moment
    ) -> tuple[Trimmed, int]:
        """What became of it, and how many rows went."""
        topic = self.topics.by_id(expiry.topic_id)
        partition = self.partitions.get(expiry.topic_id, expiry.partition)
        if topic is None or partition is None:
            return _UNKNOWN, 0
        if expiry.offset <= partition.log_start:
            return Trimmed(ErrorCode.NONE, partition.log_start), 0
        error, rows = ErrorCode.NONE, 0
        if topic.configs_changed > seen:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif expiry.offset > partition.last_stable or not partition.is_boundary(expiry.offset):
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif (rows := partition.find(expiry.offset)) > rows_max:
            error = ErrorCode.INVALID_REQUEST
        elif not _is_over(partition, rows, expiry, moment) or (
            isinstance(expiry, HeldExpiry) and self._is_held(partition, rows, expiry, moment)
        ):
            error = ErrorCode.POLICY_VIOLATION
        if error is not ErrorCode.NONE:
            return Trimmed(error, partition.log_start), 0
        self._start_at(partition, expiry.offset, rows, moment)
        return Trimmed(ErrorCode.NONE, expiry.offset), rows

    def _is_held(self, partition: Partition, rows: int, expiry: HeldExpiry, moment: Moment) -> bool:
        """Some of the first rows, so many, wait to be exported."""
        exported = self.exports.offset(partition.topic_id, partition.partition)
        if expiry.offset <= exported:
            return False
        return not _is_older(partition, partition.find(exported), rows, expiry.held_ms, moment)

    def _drop_rows(self, command: DropRows, moment: Moment) -> Done | Rejected:
        if (rejected := too_many(len(command.partitions), JOB_ROWS_MAX)) is not None:
            return rejected
        left = JOB_ROWS_MAX
        for topic_id, number in command.partitions:
            partition = self.partitions.get(topic_id, number)
            if partition is not None and left > 0 and partition.droppable:
                before = partition.sums()
                left -= partition.drop_before_start(left, moment)
                self.partitions.changed(partition, before)
        return DONE

    # Rows that move.

    def _replace(
        self, command: ReplaceRows, writer: IncarnationRow, moment: Moment
    ) -> RowsMoved | Rejected:
        count = sum([max(each.rows, len(each.spans)) for each in command.replacements])
        if (rejected := too_many(max(count, len(command.replacements)), JOB_ROWS_MAX)) is not None:
            return rejected
        if (rejected := _validate_number(writer.segment_last, command.number)) is not None:
            return rejected
        errors = []
        accepted: list[tuple[Partition, Replacement]] = []
        moved_to: dict[_Place, int] = {}
        for each in command.replacements:
            partition = self.partitions.get(each.topic_id, each.partition)
            error = _validate_replacement(partition, each, command)
            if command.job is JobKind.COMPACT and error is ErrorCode.NONE:
                error = self._validate_policy(each.topic_id, command.seen)
            if error is ErrorCode.NONE:
                error = _go_on(moved_to, each)
            if error is ErrorCode.NONE:
                assert partition is not None
                accepted.append((partition, each))
            errors.append(error)
        writer.segment_last = command.number
        object_id = ObjectId(writer.incarnation, command.number, ObjectKind.SEGMENT)
        references = sum([len(each.spans) for _, each in accepted])
        self._add(object_id, length=command.length, references=references, moment=moment)
        for partition, each in accepted:
            before = partition.sums()
            indexes = partition.rows_between(each.base_offset, each.next_offset)
            assert indexes is not None
            partition.move(indexes, _spans(object_id, each), moment)
            partition.clean_to = max(partition.clean_to, each.clean_to)
            self.partitions.changed(partition, before)
        return RowsMoved(tuple(errors))

    def _validate_policy(self, topic_id: TopicId, seen: Position) -> ErrorCode:
        """A topic that is not to be compacted any more loses nothing to a late compaction."""
        topic = self.topics.by_id(topic_id)
        assert topic is not None  # Its partition is there.
        return ErrorCode.INVALID_UPDATE_VERSION if topic.configs_changed > seen else ErrorCode.NONE

    def _spill(
        self, command: SpillRows, writer: IncarnationRow, moment: Moment
    ) -> RowsMoved | Rejected:
        count = sum([each.rows for each in command.pages])
        if count > SPILL_ROWS_MAX or len(command.pages) > JOB_ROWS_MAX:
            reason = f"a command spills at most {SPILL_ROWS_MAX} rows"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if (rejected := _validate_number(writer.index_last, command.number)) is not None:
            return rejected
        object_id = ObjectId(writer.incarnation, command.number, ObjectKind.INDEX)
        errors = []
        accepted: list[tuple[Partition, Page]] = []
        moved_to: dict[_Place, int] = {}
        for each in command.pages:
            partition = self.partitions.get(each.topic_id, each.partition)
            page = _validate_page(partition, each, object_id, command.length)
            error = page if isinstance(page, ErrorCode) else _go_on(moved_to, each)
            if error is ErrorCode.NONE:
                assert partition is not None
                assert isinstance(page, Page)
                accepted.append((partition, page))
            errors.append(error)
        writer.index_last = command.number
        references = len(accepted)
        self._add(object_id, length=command.length, references=references, moment=moment)
        for partition, page in accepted:
            before = partition.sums()
            indexes = partition.rows_between(page.base_offset, page.next_offset)
            assert indexes is not None
            partition.spill(indexes, page)
            self.partitions.changed(partition, before)
        return RowsMoved(tuple(errors))

    def _add(self, object_id: ObjectId, *, length: int, references: int, moment: Moment) -> None:
        incarnation, number, kind = object_id
        slot = self.objects.slot(incarnation, kind)
        self.objects.add(slot, number, length=length, references=references, moment=moment)

    def _recall(self, command: RecallPage, moment: Moment) -> Done | Rejected:
        partition = self.partitions.find(command.topic_id, command.partition)
        if partition is None:
            reason = f"there is no partition {command.partition} with records"
            return Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        index = partition.find(command.base_offset)
        page = partition.row(index) if index < partition.row_count else None
        if not isinstance(page, Page) or page.base_offset != command.base_offset:
            reason = f"no page begins at {command.base_offset}"
            return Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        if digest(command.body) != page.digest:
            return Rejected(ErrorCode.CORRUPT_MESSAGE, "the body is not the page's")
        try:
            rows = decode_rows(
                command.body, base_offset=page.base_offset, next_offset=page.next_offset
            )
        except PageFormatError as error:
            return Rejected(ErrorCode.CORRUPT_MESSAGE, str(error))
        before = partition.sums()
        partition.recall(index, rows, moment)
        self.partitions.changed(partition, before)
        return DONE

    # Objects.

    def _doom(self, command: DoomObjects, moment: Moment) -> ObjectsDoomed | Rejected:
        if (rejected := too_many(len(command.objects), JOB_OBJECTS_MAX, "objects")) is not None:
            return rejected
        bound_ms = moment.time_ms - command.grace_ms
        doomed: set[ObjectId] = set()
        for (incarnation, kind), numbers in _by_writer(command.objects).items():
            since = self.objects.find_unreferenced(incarnation, kind, set(numbers))
            already = self.objects.doomed_of(incarnation, kind)
            room = max(DOOMED_MAX - self.objects.doomed_count, 0)
            new = [
                number
                for number in numbers
                if number not in already
                and self._may_go(
                    ObjectId(incarnation, number, kind), since.get(number), bound_ms, moment
                )
            ][:room]
            if new:
                is_live = self.incarnations.get(incarnation) is not None
                self.objects.doom(incarnation, kind, new, is_live=is_live)
            doomed.update(
                [ObjectId(incarnation, n, kind) for n in numbers if n in already or n in new]
            )
        # A set is only asked here, never walked.
        return ObjectsDoomed(
            tuple([each for each in dict.fromkeys(command.objects) if each in doomed])
        )

    def _may_go(
        self, object_id: ObjectId, since: Moment | None, bound_ms: int, moment: Moment
    ) -> bool:
        """Nothing points at the object, and nobody may need it (docs/design/bounded.md §7)."""
        if since is not None:
            older = self.snapshots.older
            pinned = self.pins.oldest(moment.time_ms)
            return (
                older is not None
                and since.position <= older.position
                and (pinned is None or since.position <= pinned)
                and since.time_ms <= bound_ms
            )
        if self.objects.is_referenced(object_id):
            return False
        # It was never committed; it cannot be when its number is behind, or its writer is dead.
        row = self.incarnations.get(object_id.incarnation)
        if row is None:
            return POSITION_ZERO < object_id.incarnation <= moment.position
        return object_id.number <= row.newest(object_id.kind)

    def _forget(self, command: ForgetObjects) -> Done | Rejected:
        if (rejected := too_many(len(command.objects), JOB_OBJECTS_MAX, "objects")) is not None:
            return rejected
        for (incarnation, kind), numbers in _by_writer(command.objects).items():
            self.objects.forget(incarnation, kind, set(numbers))
        return DONE


_UNKNOWN = Trimmed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def _is_older(partition: Partition, first: int, end: int, age_ms: int, moment: Moment) -> bool:
    """Rows [first, end), at least one, are older than that."""
    oldest_ms = moment.time_ms - age_ms
    # A row without a timestamp goes only with a later one that has one.
    return partition.timestamp(end - 1) >= 0 and all(
        partition.timestamp(index) < oldest_ms for index in range(first, end)
    )


def _is_over(partition: Partition, rows: int, expiry: Expiry | HeldExpiry, moment: Moment) -> bool:
    """The first rows, so many, are too old, or are more than need to stay."""
    if expiry.retention_ms >= 0 and _is_older(partition, 0, rows, expiry.retention_ms, moment):
        return True
    if expiry.retention_bytes < 0:
        return False
    gone = sum([partition.length(index) for index in range(rows)])
    return partition.data_bytes - gone >= expiry.retention_bytes


def _validate_number(newest: int, number: int) -> Rejected | None:
    if 0 < number - newest <= OBJECT_NUMBERS_AHEAD_MAX:
        return None
    return Rejected(ErrorCode.INVALID_REQUEST, f"object {number} after object {newest}")


def _validate_rows(
    partition: Partition | None, named: Replacement | NewPage
) -> ErrorCode | list[Span | Marker]:
    """The rows that are named, if they are there still and are no pages."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    indexes = partition.rows_between(named.base_offset, named.next_offset)
    if indexes is None or len(indexes) != named.rows:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    rows = [row for row in map(partition.row, indexes) if not isinstance(row, Page)]
    if len(rows) != named.rows:
        return ErrorCode.INVALID_UPDATE_VERSION
    return rows


def _validate_replacement(
    partition: Partition | None, each: Replacement, command: ReplaceRows
) -> ErrorCode:
    rows = _validate_rows(partition, each)
    if isinstance(rows, ErrorCode):
        return rows
    assert partition is not None
    if each.next_offset > partition.last_stable:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if digest(encode_rows(rows)) != each.digest:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not _cover(each.spans, each, command.length):
        return ErrorCode.INVALID_REQUEST
    if each.clean_to >= 0 and (
        command.job is not JobKind.COMPACT or each.clean_to > partition.last_stable
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _cover(spans: Sequence[NewSpan], each: Replacement, length: int) -> bool:
    """The spans cover what is replaced and lie in the object."""
    offset = each.base_offset
    for index, span in enumerate(spans):
        if (span.base_offset != offset) if index == 0 else (span.base_offset <= offset):
            return False
        if span.length <= 0 or span.start + span.length > length:
            return False
        offset = span.base_offset
    return len(spans) > 0 and offset < each.next_offset


def _validate_page(
    partition: Partition | None, each: NewPage, object_id: ObjectId, length: int
) -> ErrorCode | Page:
    """The page as it will be, or why it cannot."""
    if not 0 < each.rows <= PAGE_ROWS_MAX:
        return ErrorCode.INVALID_REQUEST
    rows = _validate_rows(partition, each)
    if isinstance(rows, ErrorCode):
        return rows
    body = encode_rows(rows)
    if digest(body) != each.digest:
        return ErrorCode.INVALID_UPDATE_VERSION
    if each.length != len(body) or len(body) > PAGE_BYTES_MAX or each.start + len(body) > length:
        return ErrorCode.INVALID_REQUEST
    return Page(
        object_id=object_id,
        start=each.start,
        length=each.length,
        base_offset=each.base_offset,
        next_offset=each.next_offset,
        rows=each.rows,
        data_bytes=sum([row.length for row in rows if isinstance(row, Span)]),
        timestamp_max=max(
            [row.timestamp_max if isinstance(row, Span) else row.timestamp for row in rows]
        ),
        digest=each.digest,
    )


def _go_on(moved_to: dict[_Place, int], each: Replacement | NewPage) -> ErrorCode:
    """Rows of one partition are named in ascending order, so none twice."""
    place = (each.topic_id, each.partition)
    if each.base_offset < moved_to.get(place, 0):
        return ErrorCode.INVALID_REQUEST
    moved_to[place] = each.next_offset
    return ErrorCode.NONE


def _spans(object_id: ObjectId, each: Replacement) -> list[Span]:
    ends = [*[span.base_offset for span in each.spans[1:]], each.next_offset]
    return [
        Span(object_id, start, length, base_offset, end - base_offset, timestamp_max)
        for (start, length, base_offset, timestamp_max), end in zip(each.spans, ends, strict=True)
    ]


def _by_writer(
    objects: Sequence[ObjectId],
) -> dict[tuple[Incarnation, ObjectKind], list[int]]:
    """Numbers, each once, by incarnation and kind."""
    found: dict[tuple[Incarnation, ObjectKind], dict[int, None]] = {}
    for incarnation, number, kind in objects:
        found.setdefault((incarnation, kind), {})[number] = None
    return {writer: [*numbers] for writer, numbers in found.items()}
