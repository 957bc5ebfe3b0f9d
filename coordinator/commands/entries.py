"""What the metadata log says: commands, the entries that carry them, and their outcomes.

Commands, not facts: two agents may append commands that exclude each other, and only the
position decides. So `Machine.apply` answers every command with an outcome, and a refusal
(`Rejected`) is a value that all replicas compute alike. Both unions are closed. What concerns
groups is in `group_commands`, what concerns transactions in `transaction_commands`, what jobs do in
`job_commands`, what concerns tables in `table_commands`.

Topics are named by id, never by name. Strings are bounded by the codec.
"""

from dataclasses import dataclass
from typing import NamedTuple

from coordinator.commands.group_commands import (
    GroupCommand,
    OffsetsCommitted,
    SetTopicConfigs,
    ShardsClaimed,
)
from coordinator.commands.job_commands import JobCommand, JobOutcome
from coordinator.commands.table_commands import TableCommand, TableOutcome
from coordinator.commands.transaction_commands import (
    ProducerInitialized,
    TransactionCommand,
    TransactionEnded,
)
from protocol.errors import ErrorCode
from protocol.types import Incarnation, Position, TopicId
from storage.formats.spans import Item


class Listener(NamedTuple):
    """An address under which clients reach an agent."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Open:
    """Begin an incarnation; only ever the single command of an entry with n = 0.

    A live incarnation of the same node name is closed by it: a restarted pod waits for no lease.
    """

    session: int
    """Id of the session in the log (etcd's lease id), under which others can ask if it lives."""
    node_name: str
    node_id: int
    """Wanted node id; -1: the one this name had, else the smallest free."""
    zone: str
    listeners: tuple[Listener, ...]
    software_version: str
    feature_level_max: int


@dataclass(frozen=True, slots=True)
class Close:
    """End an incarnation, by itself or by whoever read that its session is gone."""

    incarnation: Incarnation
    last: int
    """n of its newest entry, final since its session cannot come back."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Only the writer's clock in the entry's header (docs/design/log-and-sessions.md §10)."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: str
    partition_count: int
    configs: tuple[tuple[str, str], ...]
    """What was set for the topic, also where it equals the default, sorted by name."""


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Take the topic's name and stop reads and writes; its rows go by `PurgePartitions`."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PurgePartitions:
    """Drop rows of a deleted topic: partitions [first, first + count). Resumable slices."""

    topic_id: TopicId
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A block of `count` producer ids for the agent that asks."""

    count: int


class ChunkSpan(NamedTuple):
    """The items of one partition, in the order of their bytes in the chunk."""

    topic_id: TopicId
    partition: int
    start: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class CommitChunk:
    """Chunk `number` of the entry's incarnation is durable and holds these spans."""

    number: int
    length: int
    """Bytes of the object."""
    spans: tuple[ChunkSpan, ...]


@dataclass(frozen=True, slots=True)
class Pin:
    """Keep every object that is reachable at this command's position until it expires.

    Renewed by sending it again under the same name (the position stays that of the first).
    """

    name: str
    lifetime_ms: int


@dataclass(frozen=True, slots=True)
class Unpin:
    name: str


Command = (
    Open
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
    | TableCommand
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


@dataclass(frozen=True, slots=True)
class Rejected:
    """The command changed nothing, for the reason given."""

    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """Carried out (or already so), and there is nothing to tell."""


DONE = Done()


@dataclass(frozen=True, slots=True)
class Opened:
    incarnation: Incarnation
    node_id: int
    rank: int
    """Smallest number that no live incarnation of the zone had; for rendezvous hashing."""


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic_id: TopicId


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


@dataclass(frozen=True, slots=True)
class ChunkCommitted:
    """One result for every item of the command, spans in order, items in order."""

    results: tuple[ItemResult, ...]


@dataclass(frozen=True, slots=True)
class Pinned:
    position: Position
    expires_ms: int
    """In the machine's time."""


Outcome = (
    Rejected
    | Done
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
)
