"""What the metadata log says: commands, the entries that carry them, and their outcomes.

Commands, not facts: two agents may append commands that exclude each other, and only the
position decides. So `Machine.apply` answers every command with an outcome, and a refusal
(`Rejected`) is a value that all replicas compute alike. Both unions are closed. What concerns
groups is in `group_commands`, what concerns transactions in `transaction_commands`, what jobs do in
`job_commands`, what concerns tables in `table_commands`, users in `credential_commands`, delegation
tokens in `token_commands`, who may do what in `rights_commands`, quotas and configs in
`config_commands`.

Topics are named by id, never by name. The types of a command's fields are its layout in an entry
(`layout`), with all their bounds.
"""

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from coordinator.commands.chunk_spans import spans_of
from coordinator.commands.config_commands import ConfigCommand
from coordinator.commands.credential_commands import CredentialCommand
from coordinator.commands.declaration import command, outcome
from coordinator.commands.encoding import CONFIGS_MAX, U31
from coordinator.commands.group_commands import (
    GroupCommand,
    OffsetsCommitted,
    SetTopicConfigs,
    ShardsClaimed,
)
from coordinator.commands.job_commands import JobCommand, JobOutcome
from coordinator.commands.layout import (
    Int64,
    UInt16,
    UInt31,
    UInt32,
    UInt63,
    at_most,
    fixed,
    number,
)
from coordinator.commands.loss_commands import DeclareLost
from coordinator.commands.rights_commands import RightsCommand, RightsOutcome
from coordinator.commands.table_commands import TableCommand, TableOutcome
from coordinator.commands.token_commands import TokenCommand
from coordinator.commands.transaction_commands import (
    ProducerInitialized,
    TransactionCommand,
    TransactionEnded,
)
from protocol.errors import ErrorCode
from protocol.types import Incarnation, Position, TopicId
from storage.formats.spans import Item

LISTENERS_MAX: Final = 64


class Listener(NamedTuple):
    """An address under which clients reach an agent."""

    name: str
    host: str
    port: UInt16


@command(1, changes_state=False)
@dataclass(frozen=True, slots=True)
class Open:
    """Begin an incarnation; only ever the single command of an entry with n = 0.

    A live incarnation of the same node name is closed by it: a restarted pod waits for no lease.
    """

    session: UInt63
    """Id of the session in the log (etcd's lease id), under which others can ask if it lives."""
    node_name: str
    node_id: Annotated[int, number(U31 - 1, least=-1)]
    """Wanted node id; -1: the one this name had, else the smallest free."""
    zone: str
    listeners: Annotated[tuple[Listener, ...], at_most(LISTENERS_MAX)]
    software_version: str
    feature_level_max: UInt31


@command(2, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class Close:
    """End an incarnation, by itself or by whoever read that its session is gone."""

    incarnation: Incarnation
    last: Int64
    """n of its newest entry, final since its session cannot come back."""


@command(3, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class Tick:
    """Only the writer's clock in the entry's header (docs/design/log-and-sessions.md §10)."""


@command(4)
@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: str
    partition_count: Int64
    configs: Annotated[tuple[tuple[str, str], ...], at_most(CONFIGS_MAX)]
    """What was set for the topic, also where it equals the default, sorted by name."""


@command(5)
@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Take the topic's name and stop reads and writes; its rows go by `PurgePartitions`."""

    topic_id: TopicId


@command(6, bounds_log=True)
@dataclass(frozen=True, slots=True)
class PurgePartitions:
    """Drop rows of a deleted topic: partitions [first, first + count). Resumable slices."""

    topic_id: TopicId
    first: UInt31
    count: UInt31


@command(7)
@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A block of `count` producer ids for the agent that asks."""

    count: Int64


class ChunkSpan(NamedTuple):
    """The items of one partition, in the order of their bytes in the chunk."""

    topic_id: TopicId
    partition: int
    start: int
    items: tuple[Item, ...]


@command(8)
@dataclass(frozen=True, slots=True)
class CommitChunk:
    """Chunk `number` of the entry's incarnation is durable and holds these spans."""

    number: UInt32
    length: UInt32
    """Bytes of the object."""
    spans: Annotated[tuple[ChunkSpan, ...], spans_of(ChunkSpan)]


@command(9)
@dataclass(frozen=True, slots=True)
class Pin:
    """Keep every object that is reachable at this command's position until it expires.

    Renewed by sending it again under the same name (the position stays that of the first).
    """

    name: str
    lifetime_ms: Int64


@command(10)
@dataclass(frozen=True, slots=True)
class Unpin:
    name: str


@command(83)
@dataclass(frozen=True, slots=True)
class VoidEntry:
    """The entry at `position` is void; only ever the single command of an entry with n = 0.

    Written by an operator while no agent had a session, together with what the log remembers of it
    (`MetadataLog.void`). It changes nothing: who reads it and has applied that entry stops.
    """

    position: Position
    digest: Annotated[bytes, fixed(16, "the digest of an entry")]
    """Of the payload (`coordinator.log.voided`)."""


Command = (
    Open
    | VoidEntry
    | Close
    | Tick
    | CreateTopic
    | DeleteTopic
    | PurgePartitions
    | AllocateProducerIds
    | CommitChunk
    | Pin
    | Unpin
    | SetTopicConfigs
    | GroupCommand
    | TransactionCommand
    | JobCommand
    | DeclareLost
    | TableCommand
    | CredentialCommand
    | TokenCommand
    | RightsCommand
    | ConfigCommand
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one append puts into the log."""

    incarnation: Incarnation
    """Of the writer; INCARNATION_NONE in the entry that opens it."""
    n: int
    """Number of the entry within its session, from 0 (`Open`), without a hole."""
    clock_ms: int
    """The writer's wall clock."""
    commands: tuple[Command, ...]


@outcome(3, "h", besides=["message"])
@dataclass(frozen=True, slots=True)
class Rejected:
    """The command changed nothing, for the reason given."""

    error: ErrorCode
    message: str = ""


def too_many(count: int, most: int, what: str = "rows") -> Rejected | None:
    """Why a command may not have so many."""
    if count <= most:
        return None
    return Rejected(ErrorCode.INVALID_REQUEST, f"a command has at most {most} {what}")


@outcome(2)
@dataclass(frozen=True, slots=True)
class Done:
    """Carried out (or already so), and there is nothing to tell."""


DONE = Done()


@outcome(21)
@dataclass(frozen=True, slots=True)
class Voided:
    """Of an entry that an operator has voided, in place of the outcomes of its commands."""


VOIDED = Voided()


@outcome(4, "QII")
@dataclass(frozen=True, slots=True)
class Opened:
    incarnation: Incarnation
    node_id: int
    rank: int
    """Smallest number that no live incarnation of the zone had; for rendezvous hashing."""


@outcome(5, "16s")
@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic_id: TopicId


@outcome(6, "qq")
@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    first: int
    count: int


class ItemResult(NamedTuple):
    """What became of one item of a chunk."""

    error: ErrorCode
    base_offset: int
    """First offset of the item, of a duplicate the original one; -1 with an error (P2)."""
    log_start: int
    """The partition's log start offset; -1 when there is no such partition."""
    duplicate: bool = False
    timestamp_max: int = -1
    """Of a duplicate: the newest timestamp of the original batch."""


@outcome(1, rows="qqqqq")
@dataclass(frozen=True, slots=True)
class ChunkCommitted:
    """One result for every item of the command, spans in order, items in order."""

    results: tuple[ItemResult, ...]


@outcome(7, "Qq")
@dataclass(frozen=True, slots=True)
class Pinned:
    position: Position
    expires_ms: Int64
    """In the machine's time."""


Outcome = (
    Rejected
    | Done
    | Voided
    | Opened
    | TopicCreated
    | ProducerIdsAllocated
    | ChunkCommitted
    | Pinned
    | ShardsClaimed
    | OffsetsCommitted
    | ProducerInitialized
    | TransactionEnded
    | JobOutcome
    | TableOutcome
    | RightsOutcome
)
