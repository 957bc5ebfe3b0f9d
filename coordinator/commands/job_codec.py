"""Commands of jobs as bytes in an entry.

    ClaimJobs         the jobs as bits of a number
    ReleaseJobs       the jobs, the successor
    ReportJob         job, 1: it is running, done, total, note
    RequestJob        job
    BeginSnapshot     nothing
    PublishSnapshot   position, digest, key
    TrimLogs          rows: offset
    ExpireRecords     seen; rows: offset, retention in ms, retention in bytes
    DropRows          places
    ReplaceRows       job, number, length, seen; rows: base offset, offsets, how many rows, digest, spans,
                      clean to + 1; per span: distance of its start from the end of the one before,
                      length, distance of its base offset from that of the one before, newest
                      timestamp
    SpillRows         number, length; rows: base offset, offsets, how many rows, distance of the start
                      from the end of the page before, length, digest
    RecallPage        topic id, partition, base offset, body
    DoomObjects       grace, objects
    ForgetObjects     objects

Rows are in runs of one topic (`row_codec`), each with the distance of its partition from the one
before. Objects are in runs of one incarnation and kind: these, how many, and of each the distance
of its number from the one that would follow.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any, Final

from coordinator.commands.encoding import (
    U31,
    U32,
    U63,
    CodecError,
    put_bytes,
    put_number,
    put_signed,
    put_string,
    put_topic_id,
    put_varint,
    put_zigzag,
    read_bytes,
    read_number,
    read_signed,
    read_string,
    read_topic_id,
    read_varint,
    read_zigzag,
    take_bytes,
)
from coordinator.commands.entries import Command
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobKind,
    NewPage,
    NewSpan,
    PublishSnapshot,
    RecallPage,
    ReleaseJobs,
    Replacement,
    ReplaceRows,
    ReportJob,
    RequestJob,
    SpillRows,
    Trim,
    TrimLogs,
)
from coordinator.commands.row_codec import put_places, put_runs, read_places, read_run, read_topics
from protocol.types import Incarnation, Position
from storage.formats.page import DIGEST_BYTES
from storage.formats.spans import ObjectId, ObjectKind

_JOBS_END: Final = max(JobKind) + 1


# Jobs and snapshots.


def _put_job(out: bytearray, job: JobKind) -> None:
    put_varint(out, JobKind(job))


def _read_job(data: bytes, at: int) -> tuple[JobKind, int]:
    value, at = read_varint(data, at)
    if not 0 < value < _JOBS_END:
        raise CodecError(f"job {value}")
    return JobKind(value), at


def _put_jobs(out: bytearray, jobs: tuple[JobKind, ...]) -> None:
    if [*jobs] != sorted({*jobs}):
        raise CodecError(f"jobs {jobs}")
    put_varint(out, sum(1 << JobKind(job) for job in jobs))


def _read_jobs(data: bytes, at: int) -> tuple[tuple[JobKind, ...], int]:
    mask, at = read_number(data, at, (1 << _JOBS_END) - 1)
    if mask & 1:
        raise CodecError("job 0")
    return tuple([job for job in JobKind if mask >> job & 1]), at


def _read_flag(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise CodecError(f"{data[at]} is neither yes nor no")
    return bool(data[at]), at + 1


def _put_digest(out: bytearray, digest: bytes) -> None:
    if len(digest) != DIGEST_BYTES:
        raise CodecError(f"a digest of {len(digest)} bytes")
    out += digest


def _read_digest(data: bytes, at: int) -> tuple[bytes, int]:
    return take_bytes(data, at, DIGEST_BYTES), at + DIGEST_BYTES


def _put_claim(out: bytearray, command: ClaimJobs) -> None:
    _put_jobs(out, command.jobs)


def _read_claim(data: bytes, at: int) -> tuple[ClaimJobs, int]:
    jobs, at = _read_jobs(data, at)
    return ClaimJobs(jobs), at


def _put_release(out: bytearray, command: ReleaseJobs) -> None:
    _put_jobs(out, command.jobs)
    put_number(out, command.successor, U63)


def _read_release(data: bytes, at: int) -> tuple[ReleaseJobs, int]:
    jobs, at = _read_jobs(data, at)
    successor, at = read_number(data, at, U63)
    return ReleaseJobs(jobs, Incarnation(successor)), at


def _put_report(out: bytearray, command: ReportJob) -> None:
    _put_job(out, command.job)
    out.append(command.running)
    put_number(out, command.done, U63)
    put_number(out, command.total, U63)
    put_string(out, command.note)


def _read_report(data: bytes, at: int) -> tuple[ReportJob, int]:
    job, at = _read_job(data, at)
    running, at = _read_flag(data, at)
    done, at = read_number(data, at, U63)
    total, at = read_number(data, at, U63)
    note, at = read_string(data, at)
    return ReportJob(job, done=done, total=total, running=running, note=note), at


def _put_request(out: bytearray, command: RequestJob) -> None:
    _put_job(out, command.job)


def _read_request(data: bytes, at: int) -> tuple[RequestJob, int]:
    job, at = _read_job(data, at)
    return RequestJob(job), at


def _put_begin(out: bytearray, command: BeginSnapshot) -> None:
    del out, command  # It has no fields.


def _read_begin(data: bytes, at: int) -> tuple[BeginSnapshot, int]:
    del data
    return BeginSnapshot(), at


def _put_publish(out: bytearray, command: PublishSnapshot) -> None:
    put_number(out, command.position, U63)
    _put_digest(out, command.digest)
    put_string(out, command.key)


def _read_publish(data: bytes, at: int) -> tuple[PublishSnapshot, int]:
    position, at = read_number(data, at, U63)
    digest, at = _read_digest(data, at)
    key, at = read_string(data, at)
    return PublishSnapshot(Position(position), digest, key), at


# Rows: the partition, then what each command has. They begin with the topic's id.


def _put_rows(out: bytearray, rows: tuple[Any, ...], put: Callable[[bytearray, Any], None]) -> None:
    for run in put_runs(out, rows):
        before = 0
        for row in run:
            if not 0 <= row.partition <= U31:
                raise CodecError(f"partition {row.partition}")
            put_zigzag(out, row.partition - before)
            before = row.partition
            put(out, row)


def _read_rows(
    data: bytes, at: int, read: Callable[[bytes, int], tuple[tuple[Any, ...], int]]
) -> tuple[list[tuple[Any, ...]], int]:
    """Rows as plain tuples, for the type's `_make`."""
    topics, run_count, at = read_topics(data, at)
    rows = []
    for _ in range(run_count):
        topic_id, count, at = read_run(data, at, topics)
        partition = 0
        for _ in range(count):
            distance, at = read_zigzag(data, at)
            partition += distance
            if not 0 <= partition <= U31:
                raise CodecError(f"partition {partition}")
            rest, at = read(data, at)
            rows.append((topic_id, partition, *rest))
    return rows, at


def _put_trim(out: bytearray, trim: Trim) -> None:
    put_signed(out, trim.offset)


def _read_trim(data: bytes, at: int) -> tuple[tuple[int], int]:
    offset, at = read_signed(data, at)
    return (offset,), at


def _put_trims(out: bytearray, command: TrimLogs) -> None:
    _put_rows(out, command.trims, _put_trim)


def _read_trims(data: bytes, at: int) -> tuple[TrimLogs, int]:
    rows, at = _read_rows(data, at, _read_trim)
    return TrimLogs(tuple([Trim._make(row) for row in rows])), at


def _put_expiry(out: bytearray, expiry: Expiry) -> None:
    put_number(out, expiry.offset, U63)
    put_signed(out, expiry.retention_ms)
    put_signed(out, expiry.retention_bytes)


def _read_expiry(data: bytes, at: int) -> tuple[tuple[int, int, int], int]:
    offset, at = read_number(data, at, U63)
    retention_ms, at = read_signed(data, at)
    retention_bytes, at = read_signed(data, at)
    return (offset, retention_ms, retention_bytes), at


def _put_expire(out: bytearray, command: ExpireRecords) -> None:
    put_number(out, command.seen, U63)
    _put_rows(out, command.expiries, _put_expiry)


def _read_expire(data: bytes, at: int) -> tuple[ExpireRecords, int]:
    seen, at = read_number(data, at, U63)
    rows, at = _read_rows(data, at, _read_expiry)
    return ExpireRecords(Position(seen), tuple([Expiry._make(row) for row in rows])), at


def _put_drop(out: bytearray, command: DropRows) -> None:
    put_places(out, command.partitions)


def _read_drop(data: bytes, at: int) -> tuple[DropRows, int]:
    places, at = read_places(data, at)
    return DropRows(places), at


# Rows that move. Where they lie in the object goes on from one to the next.


def _put_named(out: bytearray, row: Replacement | NewPage) -> None:
    if not 0 <= row.base_offset < row.next_offset <= U63:
        raise CodecError(f"rows from {row.base_offset} to {row.next_offset}")
    put_varint(out, row.base_offset)
    put_varint(out, row.next_offset - row.base_offset)
    put_number(out, row.rows, U32)


def _read_named(data: bytes, at: int) -> tuple[int, int, int, int]:
    base_offset, at = read_number(data, at, U63)
    count, at = read_number(data, at, U63)
    next_offset = base_offset + count
    if not base_offset < next_offset <= U63:
        raise CodecError(f"rows from {base_offset} to {next_offset}")
    rows, at = read_number(data, at, U32)
    return base_offset, next_offset, rows, at


def _put_place(out: bytearray, start: int, length: int, end: int) -> int:
    """Bytes in an object; `end`: where those before end. Where these do."""
    if not (0 <= start <= U32 and 0 < length <= U32):
        raise CodecError(f"{length} bytes at {start}")
    put_zigzag(out, start - end)
    put_varint(out, length)
    return start + length


def _read_place(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    distance, at = read_zigzag(data, at)
    length, at = read_number(data, at, U32)
    start = end + distance
    if not (0 <= start <= U32 and length > 0):
        raise CodecError(f"{length} bytes at {start}")
    return start, length, at


class _PutMoves:
    """Rows of one ReplaceRows or SpillRows."""

    def __init__(self) -> None:
        self._end = 0

    def replacement(self, out: bytearray, row: Replacement) -> None:
        _put_named(out, row)
        _put_digest(out, row.digest)
        put_varint(out, len(row.spans))
        offset, timestamp = row.base_offset, 0
        for span in row.spans:
            self._end = _put_place(out, span.start, span.length, self._end)
            if not 0 <= span.base_offset <= U63:
                raise CodecError(f"a span at offset {span.base_offset}")
            put_zigzag(out, span.base_offset - offset)
            put_zigzag(out, _bounded_timestamp(span.timestamp_max) - timestamp)
            offset, timestamp = span.base_offset, span.timestamp_max
        put_number(out, row.clean_to + 1, U63)

    def page(self, out: bytearray, row: NewPage) -> None:
        _put_named(out, row)
        self._end = _put_place(out, row.start, row.length, self._end)
        _put_digest(out, row.digest)


class _ReadMoves:
    def __init__(self) -> None:
        self._end = 0

    def replacement(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        base_offset, next_offset, rows, at = _read_named(data, at)
        digest, at = _read_digest(data, at)
        count, at = read_number(data, at, len(data))
        spans = []
        offset, timestamp = base_offset, 0
        for _ in range(count):
            start, length, at = _read_place(data, at, self._end)
            self._end = start + length
            distance, at = read_zigzag(data, at)
            offset += distance
            later, at = read_zigzag(data, at)
            timestamp = _bounded_timestamp(timestamp + later)
            if not 0 <= offset <= U63:
                raise CodecError(f"a span at offset {offset}")
            spans.append(NewSpan(start, length, offset, timestamp))
        clean_to, at = read_number(data, at, U63)
        return (base_offset, next_offset, rows, digest, tuple(spans), clean_to - 1), at

    def page(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        base_offset, next_offset, rows, at = _read_named(data, at)
        start, length, at = _read_place(data, at, self._end)
        self._end = start + length
        digest, at = _read_digest(data, at)
        return (base_offset, next_offset, rows, start, length, digest), at


def _bounded_timestamp(timestamp: int) -> int:
    if not -U63 - 1 <= timestamp <= U63:
        raise CodecError(f"timestamp {timestamp}")
    return timestamp


def _put_replace(out: bytearray, command: ReplaceRows) -> None:
    _put_job(out, command.job)
    put_number(out, command.number, U32)
    put_number(out, command.length, U32)
    put_number(out, command.seen, U63)
    _put_rows(out, command.replacements, _PutMoves().replacement)


def _read_replace(data: bytes, at: int) -> tuple[ReplaceRows, int]:
    job, at = _read_job(data, at)
    number, at = read_number(data, at, U32)
    length, at = read_number(data, at, U32)
    seen, at = read_number(data, at, U63)
    rows, at = _read_rows(data, at, _ReadMoves().replacement)
    replacements = tuple([Replacement._make(row) for row in rows])
    return ReplaceRows(job, number, length, replacements, Position(seen)), at


def _put_spill(out: bytearray, command: SpillRows) -> None:
    put_number(out, command.number, U32)
    put_number(out, command.length, U32)
    _put_rows(out, command.pages, _PutMoves().page)


def _read_spill(data: bytes, at: int) -> tuple[SpillRows, int]:
    number, at = read_number(data, at, U32)
    length, at = read_number(data, at, U32)
    rows, at = _read_rows(data, at, _ReadMoves().page)
    return SpillRows(number, length, tuple([NewPage._make(row) for row in rows])), at


def _put_recall(out: bytearray, command: RecallPage) -> None:
    put_topic_id(out, command.topic_id)
    put_number(out, command.partition, U31)
    put_number(out, command.base_offset, U63)
    put_bytes(out, command.body)


def _read_recall(data: bytes, at: int) -> tuple[RecallPage, int]:
    topic_id, at = read_topic_id(data, at)
    partition, at = read_number(data, at, U31)
    base_offset, at = read_number(data, at, U63)
    body, at = read_bytes(data, at)
    return RecallPage(topic_id, partition, base_offset, body), at


# Objects.


def _put_objects(out: bytearray, objects: tuple[ObjectId, ...]) -> None:
    runs = [(key, [*run]) for key, run in groupby(objects, lambda each: (each[0], each[2]))]
    put_varint(out, len(runs))
    for (incarnation, kind), run in runs:
        put_number(out, incarnation, U63)
        put_varint(out, ObjectKind(kind))
        put_varint(out, len(run))
        following = 0
        for each in run:
            if not 0 <= each.number <= U32:
                raise CodecError(f"object {each.number}")
            put_zigzag(out, each.number - following)
            following = each.number + 1


def _read_objects(data: bytes, at: int) -> tuple[tuple[ObjectId, ...], int]:
    run_count, at = read_number(data, at, len(data))
    objects = []
    for _ in range(run_count):
        incarnation, at = read_number(data, at, U63)
        value, at = read_number(data, at, max(ObjectKind))
        kind = ObjectKind(value)
        count, at = read_number(data, at, len(data))
        following = 0
        for _ in range(count):
            distance, at = read_zigzag(data, at)
            number = following + distance
            if not 0 <= number <= U32:
                raise CodecError(f"object {number}")
            objects.append(ObjectId(Incarnation(incarnation), number, kind))
            following = number + 1
    return tuple(objects), at


def _put_doom(out: bytearray, command: DoomObjects) -> None:
    put_number(out, command.grace_ms, U63)
    _put_objects(out, command.objects)


def _read_doom(data: bytes, at: int) -> tuple[DoomObjects, int]:
    grace_ms, at = read_number(data, at, U63)
    objects, at = _read_objects(data, at)
    return DoomObjects(grace_ms, objects), at


def _put_forget(out: bytearray, command: ForgetObjects) -> None:
    _put_objects(out, command.objects)


def _read_forget(data: bytes, at: int) -> tuple[ForgetObjects, int]:
    objects, at = _read_objects(data, at)
    return ForgetObjects(objects), at


JOB_ENCODERS: Final[dict[type[Command], tuple[int, Callable[[bytearray, Any], None]]]] = {
    ClaimJobs: (40, _put_claim),
    ReleaseJobs: (41, _put_release),
    ReportJob: (42, _put_report),
    RequestJob: (43, _put_request),
    BeginSnapshot: (44, _put_begin),
    PublishSnapshot: (45, _put_publish),
    TrimLogs: (46, _put_trims),
    ExpireRecords: (47, _put_expire),
    DropRows: (48, _put_drop),
    ReplaceRows: (49, _put_replace),
    SpillRows: (50, _put_spill),
    RecallPage: (51, _put_recall),
    DoomObjects: (52, _put_doom),
    ForgetObjects: (53, _put_forget),
}

JOB_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[Command, int]]]] = {
    40: _read_claim,
    41: _read_release,
    42: _read_report,
    43: _read_request,
    44: _read_begin,
    45: _read_publish,
    46: _read_trims,
    47: _read_expire,
    48: _read_drop,
    49: _read_replace,
    50: _read_spill,
    51: _read_recall,
    52: _read_doom,
    53: _read_forget,
}
