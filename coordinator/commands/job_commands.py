"""Commands of the jobs that keep a cluster bounded: claims, snapshots, rows and objects.

A job is held by one live incarnation at a time, by claim; what only the holder may write names its
job here and is refused otherwise. Jobs propose what they have found in their replica, and `apply`
checks it again: rows are named with the digest of what was read (`storage.formats.page.digest`), so a
proposal that was overtaken changes nothing.

Offsets that leave a partition's front do so by `TrimLogs` (a client's DeleteRecords, by any agent)
and `ExpireRecords` (retention).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

from coordinator.commands.declaration import command, outcome
from coordinator.commands.layout import Int64, UInt31, UInt32, UInt63, bits_of, fixed
from coordinator.commands.object_rows import Objects, pages, replacements_of
from coordinator.commands.runs import Places, rows_of
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Incarnation, Position, TopicId
from storage.formats.page import DIGEST_BYTES

JOB_ROWS_MAX: Final = 1_000
"""Rows that one command may touch (docs/design/log-and-sessions.md §10, small steps); of
ReplaceRows the greater of those that go and those that come."""
SPILL_ROWS_MAX: Final = 4_000
"""Rows in the pages of one SpillRows: all of an index object."""
PAGE_BYTES_MAX: Final = 60 * 1024
"""Of a page's body, so that a RecallPage fits into an entry."""
JOB_OBJECTS_MAX: Final = 1_000
"""Objects in one command."""
JOB_NOTE_MAX: Final = 255
"""Characters of what a job says of itself."""
SNAPSHOT_KEY_MAX: Final = 255
JOBS_LEVEL: Final = 2
"""`feature_level_max` of an agent that can decode these commands. While one that cannot is live,
none is proposed: it would stop (P13)."""


class JobKind(IntEnum):
    SNAPSHOT = 1
    RETENTION = 2
    MERGE = 3
    SPILL = 4
    COMPACT = 5
    COLLECT = 6


Jobs = Annotated[tuple[JobKind, ...], bits_of([*JobKind])]
"""Ascending."""


@command(40, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class ClaimJobs:
    """Hold these jobs from now on, those of them that are free."""

    jobs: Jobs


@command(41, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class ReleaseJobs:
    """Give jobs that the writer holds to another incarnation; free, if that is not live."""

    jobs: Jobs
    successor: Incarnation


@command(
    42, order=("job", "running", "done", "total", "note"), bounds_log=True, changes_state=False
)
@dataclass(frozen=True, slots=True)
class ReportJob:
    """How far a job is, for people; by its holder, now and then."""

    job: JobKind
    done: UInt63
    total: UInt63
    """0: not known. What is counted, each job says for itself (`note`)."""
    running: bool
    note: str


@command(43, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class RequestJob:
    """Somebody wants the job to run now, whether or not it is due."""

    job: JobKind


@command(44, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class BeginSnapshot:
    """The state at this command's position is to be written down (job SNAPSHOT)."""


@command(45, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class PublishSnapshot:
    """The snapshot begun at `position` is in the store, read back and verified (job SNAPSHOT)."""

    position: Position
    digest: Annotated[bytes, fixed(DIGEST_BYTES, "a digest")]
    """`Machine.digest()` at that position, as the snapshot has it."""
    key: str
    """Of its manifest in the object store."""


class Trim(NamedTuple):
    topic_id: TopicId
    partition: UInt31
    offset: Int64
    """First offset that stays; -1: none does (the end offset, whatever it is by then)."""


@command(46)
@dataclass(frozen=True, slots=True)
class TrimLogs:
    """Records before these offsets are deleted, by a client's wish. Offsets that are gone
    already are no error. Rows that lie wholly before them go at once as far as JOB_ROWS_MAX and
    pages allow; the rest by DropRows."""

    trims: Annotated[tuple[Trim, ...], rows_of(Trim)]


class Expiry(NamedTuple):
    """What retention lets go of in one partition."""

    topic_id: TopicId
    partition: UInt31
    offset: UInt63
    """First offset that stays; a row begins there, or the log ends."""
    retention_ms: Int64
    """-1: no limit. What goes must be older than this by the machine's time..."""
    retention_bytes: Int64
    """-1: no limit. ...or what stays must have at least so many bytes."""


@command(47, bounds_log=True)
@dataclass(frozen=True, slots=True)
class ExpireRecords:
    """Rows before these offsets are over their topic's limits (job RETENTION).

    At most JOB_ROWS_MAX of them, those still there from earlier trims included; pages count as one
    and are dropped when they have been recalled.
    """

    seen: Position
    """Position of the replica that found them; a topic whose configs have changed since is left
    alone."""
    expiries: Annotated[tuple[Expiry, ...], rows_of(Expiry)]


@command(48, bounds_log=True)
@dataclass(frozen=True, slots=True)
class DropRows:
    """Drop rows that lie wholly before their log's start: the next slice (job RETENTION)."""

    partitions: Places


class NewSpan(NamedTuple):
    """A span of a segment; it reaches to the next one's base offset, or the replacement's end."""

    start: int
    length: int
    base_offset: int
    timestamp_max: int


class Replacement(NamedTuple):
    """Rows of one partition, from `base_offset` to `next_offset`, and what takes their place."""

    topic_id: TopicId
    partition: UInt31
    base_offset: int
    next_offset: int
    rows: int
    """How many there are."""
    digest: bytes
    """Of what was read there."""
    spans: tuple[NewSpan, ...]
    """At least one; they cover the same offsets."""
    clean_to: int = -1
    """Compaction: all below has been compared with all below. -1: nothing is said about that."""


@command(49, order=("job", "number", "length", "seen", "replacements"), bounds_log=True)
@dataclass(frozen=True, slots=True)
class ReplaceRows:
    """Segment `number` of the incarnation is durable; rows move into it (job MERGE or COMPACT)."""

    job: JobKind
    number: UInt32
    length: UInt32
    """Bytes of the object."""
    replacements: Annotated[tuple[Replacement, ...], rows_of(Replacement, replacements_of(NewSpan))]
    seen: Position = POSITION_ZERO
    """Compaction: position at which it looked what is set for the topics; one whose configs have
    changed since is left alone. A merge goes by no settings that could lose anything."""


class NewPage(NamedTuple):
    """Rows of one partition, from `base_offset` to `next_offset`, that go into a page."""

    topic_id: TopicId
    partition: UInt31
    base_offset: int
    next_offset: int
    rows: int
    start: int
    length: int
    digest: bytes
    """Of the body, which is that of the rows."""


@command(50, bounds_log=True)
@dataclass(frozen=True, slots=True)
class SpillRows:
    """Index object `number` of the incarnation is durable; rows leave the memory (job SPILL)."""

    number: UInt32
    length: UInt32
    pages: Annotated[tuple[NewPage, ...], rows_of(NewPage, pages)]


@command(51, bounds_log=True)
@dataclass(frozen=True, slots=True)
class RecallPage:
    """A page's rows come back into memory, since a job is about to change them (any job).

    Also of a deleted topic, whose rows cannot be purged otherwise.
    """

    topic_id: TopicId
    partition: UInt31
    base_offset: UInt63
    body: bytes
    """As it was read from the index object."""


@command(52, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class DoomObjects:
    """These objects will be deleted: nothing points at them, and nobody may still need them (job
    COLLECT)."""

    grace_ms: UInt63
    """For so long, by the machine's time, nothing must have pointed at them."""
    objects: Objects


@command(53, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class ForgetObjects:
    """Doomed objects are deleted, or the store refused to (job COLLECT)."""

    objects: Objects


JobCommand = (
    ClaimJobs
    | ReleaseJobs
    | ReportJob
    | RequestJob
    | BeginSnapshot
    | PublishSnapshot
    | TrimLogs
    | ExpireRecords
    | DropRows
    | ReplaceRows
    | SpillRows
    | RecallPage
    | DoomObjects
    | ForgetObjects
)


@outcome(12, rows="B")
@dataclass(frozen=True, slots=True)
class JobsClaimed:
    """Jobs of the command that the writer holds now."""

    jobs: tuple[JobKind, ...]


class Trimmed(NamedTuple):
    error: ErrorCode
    log_start: Int64
    """After the command; -1 when there is no such partition."""


@outcome(13, rows="qq")
@dataclass(frozen=True, slots=True)
class LogsTrimmed:
    """One for each trim or expiry, in order.

    UNKNOWN_TOPIC_OR_PARTITION; OFFSET_OUT_OF_RANGE: beyond the end, of an expiry also beyond the
    last stable offset or within a row; of expiries INVALID_UPDATE_VERSION: the configs have changed,
    POLICY_VIOLATION: some of the rows are not over the limits, INVALID_REQUEST: too many rows.
    """

    results: tuple[Trimmed, ...]


@outcome(14, rows="h")
@dataclass(frozen=True, slots=True)
class RowsMoved:
    """What became of each replacement or page, in order; one may be refused alone.

    UNKNOWN_TOPIC_OR_PARTITION; OFFSET_OUT_OF_RANGE: there are no such rows (any more), or they are
    not stable; INVALID_UPDATE_VERSION: they are other ones; INVALID_REQUEST: it makes no sense.
    """

    errors: tuple[ErrorCode, ...]


@outcome(15, rows="QQQ")
@dataclass(frozen=True, slots=True)
class ObjectsDoomed:
    """The objects that may be deleted now; the others of the command have to wait, or are used."""

    objects: Objects


JobOutcome = JobsClaimed | LogsTrimmed | RowsMoved | ObjectsDoomed
