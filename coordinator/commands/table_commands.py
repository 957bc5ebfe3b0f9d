"""Commands for tables: how far they are, schemas of what is in topics, and wider topics.

An exporter says through an agent how far a topic's table is (`ReportExport`); retention of a topic
with `frazil.iceberg.retention.hold` waits for it. It is word of mouth: the table itself says what is
in it, so nothing of the export's exactness rests on these rows.

The schema registry keeps what Confluent's does: schemas under ids that never change and are given
out upwards, subjects that name versions of schemas, and rules of compatibility. An agent checks a
schema against what it has seen in its replica; `apply` has no parser, so the command says what
was seen (`seen`) and changes nothing when the subject has changed since.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

from coordinator.commands.declaration import command, outcome
from coordinator.commands.job_commands import JOB_ROWS_MAX
from coordinator.commands.layout import Int64, UInt31, UInt63, at_most, fixed
from protocol.types import Position, TopicId

TABLES_LEVEL: Final = 3
"""`feature_level_max` of an agent that can decode these commands. While one that cannot is live,
none is proposed: it would stop (P13)."""
EXPORT_ENDS_MAX: Final = 1_000
"""Partitions in one ReportExport."""
SCHEMA_BODY_MAX: Final = 56 * 1024
"""Bytes of a schema's text, compressed, so that it fits into an entry."""
SCHEMA_TEXT_MAX: Final = 256 * 1024
"""Bytes of a schema's text; one that takes long all the same is refused where it is read."""
SUBJECT_MAX: Final = 255
"""Characters."""
REFERENCES_MAX: Final = 100
"""Of one schema."""
SCHEMAS_MAX: Final = 20_000
"""Of the whole cluster."""
SCHEMA_ID_MAX: Final = (1 << 31) - 1
"""Confluent's wire format has four bytes for it, with a sign."""
COMPATIBILITIES: Final = (
    "",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
MODES: Final = ("", "READWRITE", "READONLY", "IMPORT")
SCHEMA_BODIES_MAX: Final = 64 * 1024 * 1024
"""Bytes of all schemas together, compressed: they are in every agent's memory."""


class ExportEnd(NamedTuple):
    """Everything before `offset` is in the table, or never will be."""

    partition: UInt31
    offset: UInt63


@command(60)
@dataclass(frozen=True, slots=True)
class ReportExport:
    """How far the table of a topic is. Offsets may go back: tables can be rolled back."""

    topic_id: TopicId
    ends: Annotated[tuple[ExportEnd, ...], at_most(EXPORT_ENDS_MAX)]


class SchemaKind(IntEnum):
    """What language a schema is written in."""

    AVRO = 0
    PROTOBUF = 1
    JSON = 2


class Reference(NamedTuple):
    """A schema that another one imports, under the name by which it does."""

    name: str
    subject: str
    version: Int64


References = Annotated[tuple[Reference, ...], at_most(REFERENCES_MAX)]


@command(
    61,
    order=(
        "subject",
        "kind",
        "body",
        "fingerprint",
        "seen",
        "schema_id",
        "version",
        "references",
    ),
)
@dataclass(frozen=True, slots=True)
class RegisterSchema:
    """A new version of a subject; the version that it is, when the subject has this schema already."""

    subject: str
    kind: SchemaKind
    body: bytes
    """Its text in UTF-8, by zlib."""
    fingerprint: Annotated[bytes, fixed(32, "a fingerprint")]
    """SHA-256 of kind, text and references: schemas with the same one share an id."""
    references: References
    seen: Position
    """The subject and the rules as they were at this position have been obeyed; POSITION_ZERO: the
    caller asks for no check (compatibility NONE)."""
    schema_id: UInt31 = 0
    """The id that it must get (mode IMPORT); 0: any."""
    version: UInt31 = 0
    """The same of the version."""


@command(62)
@dataclass(frozen=True, slots=True)
class DeleteSubject:
    """One version, or all of them, is hidden; `permanent`: hidden ones are forgotten.

    Refused for a version that a schema refers to. Ids stay known while any version, hidden or not,
    has them. When all versions are hidden at once the subject's own rules go, too.
    """

    subject: str
    version: Int64
    """-1: all."""
    permanent: bool


@command(63)
@dataclass(frozen=True, slots=True)
class SetSubjectRules:
    """Compatibility level and mode of a subject, or of all that have none of their own ("")."""

    subject: str
    compatibility: str | None
    """One of COMPATIBILITIES; "": none of its own, None: what it was."""
    mode: str | None
    """One of MODES; "": none of its own, None: what it was."""


@command(64)
@dataclass(frozen=True, slots=True)
class GrowTopic:
    """The topic has this many partitions from now on (Kafka's CreatePartitions)."""

    topic_id: TopicId
    partition_count: Int64


class HeldExpiry(NamedTuple):
    """What retention lets go of in one partition of a topic that waits for its export."""

    topic_id: TopicId
    partition: UInt31
    offset: UInt63
    """First offset that stays; a row begins there, or the log ends."""
    retention_ms: Int64
    """As in `job_commands.Expiry`: what goes is over this limit..."""
    retention_bytes: Int64
    """...or over this one."""
    held_ms: Int64
    """What goes is exported, or older than this."""


@command(65, bounds_log=True)
@dataclass(frozen=True, slots=True)
class ExpireHeldRecords:
    """ExpireRecords for topics with `frazil.iceberg.retention.hold` (job RETENTION)."""

    seen: Position
    expiries: Annotated[tuple[HeldExpiry, ...], at_most(JOB_ROWS_MAX)]


TableCommand = (
    ReportExport | RegisterSchema | DeleteSubject | SetSubjectRules | GrowTopic | ExpireHeldRecords
)


@outcome(16, "qq")
@dataclass(frozen=True, slots=True)
class SchemaRegistered:
    schema_id: int
    version: int


@outcome(17, rows="q")
@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    versions: tuple[int, ...]


TableOutcome = SchemaRegistered | SubjectDeleted
