"""Offset commits: which offsets of a request may go into the log, and in how many commands. Pure.

Who may commit at all is the live group's to say (`check_commit`). Here each offset is judged:
unknown partitions (KIP-848 calls topics by id from v10 on), metadata that are too long, and,
where the group is configured so, partitions of others.

`frazil.commit.owner.only` (a config of the group, false by default, beyond Kafka): a member's
commit of a partition that *another* member owns is refused, for that partition alone. It is for
consumers that acknowledge late: a commit carries the generation that its client has by then, not
that of the records, so it fences nothing when the client has joined again. A batch in flight is
then committed when it ends, long after the partition's next owner began to work, and the group
stands where nobody has stored all records before (Redpanda Connect #4010, #4477). What nobody owns
may be committed: that is how a cooperative consumer settles what it has just given up.

The refusal must mean "rejoin" to clients. Per partition, they do this with the candidates:

    client                     27 REBALANCE_IN_PROGRESS    22 ILLEGAL_GENERATION
    Java 4.3, classic          rejoins, keeps what it has; all partitions are lost, rejoins;
                               commitSync and callback     CommitFailedException
                               hear of it, auto: a log
    librdkafka 2               error of the partition,     all partitions are lost, rejoins
                               to whoever asked; goes on
    franz-go 1                 error of the partition in the commit's callback, a log; offers the
                               offset again at each autocommit until it loses or gets the partition
    kafka-python 3             rejoins; CommitFailedError  generation is reset, rejoins; likewise
    aiokafka 0.14              rejoins; CommitFailedError  generation is reset, rejoins; likewise
    kafkajs 2                  stops the runner's round and joins again, in both cases; a manual
                               commit raises

    client of KIP-848          113 STALE_MEMBER_EPOCH      27 or 22
    Java 4.3                   commitSync raises Commit-   KafkaException, "unexpected"
                               Failed, auto is repeated
    librdkafka 2               next heartbeat comes at     error of the partition (27); all
                               once; a manual commit       partitions are lost (22)
                               hears of it

So members of the classic protocol hear 27, those of KIP-848 hear 113. Wherever the application
asked for the commit it notices; autocommits are in logs only, and what they had marked is read
again by the owner. What remains: a commit between the giving up of a partition and its taking
(nobody owns it), and one that was wrong while its partition was still owned.

Left out: what is asked of a transaction (`broker.handlers.txn_offset_commit`); a retention of its
own for a commit (v2-4), as KIP-211 advises.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from broker.config.group_settings import GroupSettings
from broker.groups.group.live import LiveGroup
from coordinator.commands.codec import ENTRY_BYTES_MAX, ENTRY_OVERHEAD_BYTES_MAX, encoded_size
from coordinator.commands.encoding import STRING_BYTES_MAX, CodecError
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    CommitOffsets,
    CommittedOffset,
    GroupKind,
)
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from coordinator.tables.groups import GROUP_COMMAND_ROWS_MAX
from coordinator.tables.topics import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId

COMMAND_BYTES_MAX = ENTRY_BYTES_MAX - ENTRY_OVERHEAD_BYTES_MAX
SINCE_TOPIC_IDS = 10
"""Version of OffsetCommit and OffsetFetch that names topics by id."""

_ROW_BYTES_MAX = 64
"""Of an offset in a command, without its metadata, at most."""

_CommandT = TypeVar("_CommandT", CommitOffsets, CommitTransactionOffsets)


class RequestedOffset(NamedTuple):
    """One offset of a request."""

    topic: Topic | None
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Committer(NamedTuple):
    """The member that commits; "" and EPOCH_NONE when there is none."""

    member_id: str
    epoch: int
    stale: ErrorCode
    """What the member's protocol calls an epoch that is not its own."""

    @property
    def not_owner(self) -> ErrorCode:
        if self.stale is ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.REBALANCE_IN_PROGRESS


NOBODY = Committer("", EPOCH_NONE, ErrorCode.ILLEGAL_GENERATION)


def committer(
    group: LiveGroup | None,
    *,
    member_id: str,
    epoch: int,
    instance_id: str | None,
    version: int,
    now_ms: int,
) -> Committer:
    """Returns the member that commits, if it may. Raises KafkaError.

    Without a group, and in one without members, whoever gives no epoch may commit, whatever the
    member id (Kafka's "simple" commit: tools, and consumers that assign themselves).
    """
    if group is None:
        if epoch >= 0:
            raise KafkaError(not_found_code(version), "There is no group of this id.")
        return NOBODY
    code = group.check_commit(member_id, epoch, instance_id, version=version, now_ms=now_ms)
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
    if epoch < 0:
        return NOBODY
    if group.kind is GroupKind.CLASSIC:
        return Committer(member_id, epoch, ErrorCode.ILLEGAL_GENERATION)
    # A group of KIP-848 may have members of the classic protocol while it is migrated. What it
    # says to an epoch that is not the member's tells which protocol that one speaks.
    stale = group.check_commit(member_id, epoch + 1, instance_id, version=version, now_ms=now_ms)
    return Committer(member_id, epoch, stale)


def unknown_code(wanted: RequestedOffset, version: int) -> ErrorCode:
    """Returns the error for an unknown partition: topics are named by id from v10 on."""
    if wanted.topic is None and version >= SINCE_TOPIC_IDS:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def not_found_code(version: int) -> ErrorCode:
    """Returns the error for a group that is gone: KIP-848's from v9 on."""
    return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION


def is_known(wanted: RequestedOffset) -> bool:
    """Whether there is such a partition."""
    topic = wanted.topic
    return topic is not None and 0 <= wanted.partition < topic.partition_count


def validate_offset(
    wanted: RequestedOffset,
    *,
    settings: GroupSettings,
    group: LiveGroup | None,
    by: Committer,
) -> ErrorCode:
    """NONE when an offset of a partition that is known may be proposed, else what is wrong."""
    topic = wanted.topic
    assert topic is not None
    if not _metadata_fit(wanted.metadata, settings.offset_metadata_max_bytes):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if settings.commit_owner_only and group is not None and by.member_id != "":
        owner = group.owner_of(topic.name, topic.topic_id, wanted.partition)
        if owner is not None and owner != by.member_id:
            return by.not_owner
    return ErrorCode.NONE


def commands(
    group_id: str, member_id: str, epoch: int, offsets: Sequence[CommittedOffset]
) -> list[CommitOffsets]:
    """As many commands as the offsets need, in their order, each of which fits into an entry.

    Raises CodecError when a single offset does not.
    """
    return _cut(offsets, lambda some: CommitOffsets(group_id, member_id, epoch, tuple(some)))


def transaction_commands(command: CommitTransactionOffsets) -> list[CommitTransactionOffsets]:
    """The command, cut likewise; each part names the transaction."""
    return _cut(command.offsets, lambda some: replace(command, offsets=tuple(some)))


def _cut(
    offsets: Sequence[CommittedOffset], command_of: Callable[[Sequence[CommittedOffset]], _CommandT]
) -> list[_CommandT]:
    if not offsets:
        return []
    command = command_of(offsets)
    if len(offsets) <= GROUP_COMMAND_ROWS_MAX and _fits(command):
        return [command]
    if len(offsets) == 1:
        raise CodecError("one offset does not fit into an entry")
    half = len(offsets) // 2
    return _cut(offsets[:half], command_of) + _cut(offsets[half:], command_of)


def places(
    partitions: Sequence[tuple[TopicId, int]],
) -> list[tuple[tuple[TopicId, int], ...]]:
    """Partitions of DeleteOffsets and ExpireOffsets, cut into what one command may name."""
    size = GROUP_COMMAND_ROWS_MAX
    return [tuple(partitions[at : at + size]) for at in range(0, len(partitions), size)]


def _metadata_fit(metadata: str, most: int) -> bool:
    """Kafka counts UTF-16 code units, whatever the setting is called."""
    if 2 * len(metadata) <= most and 4 * len(metadata) <= STRING_BYTES_MAX:
        return True
    units = len(metadata) + sum(character > "\uffff" for character in metadata)
    return units <= most and len(metadata.encode()) <= STRING_BYTES_MAX


def _fits(command: CommitOffsets | CommitTransactionOffsets) -> bool:
    ids = len(command.group_id) + len(command.member_id)
    metadata = sum([len(committed.metadata) for committed in command.offsets])
    # Counting what it cannot exceed is much cheaper than encoding it, and nearly always enough.
    if _ROW_BYTES_MAX * (len(command.offsets) + 1) + 4 * (ids + metadata) <= COMMAND_BYTES_MAX:
        return True
    return encoded_size(command) <= COMMAND_BYTES_MAX
