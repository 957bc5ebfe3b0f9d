"""What the metadata log says about groups: claims of shards, groups, committed offsets.

Group ids hash to `GROUP_SHARDS` shards. A shard is claimed by one live incarnation, its
*coordinator*, and what changes a group of the shard is refused with NOT_COORDINATOR unless the
entry's writer holds the claim (docs/design/groups.md §1). So decisions of a coordinator are in the
log in the order in which it made them, and nobody else's are between them.

`apply` reads of a group what it fences with: its epoch, and its members' ids and epochs. What
only the coordinator reads (timeouts, subscriptions, assignments) is a *body*: opaque bytes.

A change too large for one entry is several `ChangeGroup`s, put in order: all but the last keep
the group's epoch, so that whoever takes over in the middle sees members ahead of their group and
lets them rebalance. Each of them is whole in itself.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, NamedTuple

from coordinator.commands.declaration import command, outcome
from coordinator.commands.encoding import CONFIGS_MAX
from coordinator.commands.layout import Int32, Int64, UInt31, UInt63, at_most, bits_of, byte_of
from coordinator.commands.runs import Places, offsets_of
from protocol.errors import ErrorCode
from protocol.types import Incarnation, TopicId

GROUP_SHARDS = 64
GROUP_NEW = -1
"""As `epoch_before`: the group must not exist."""
EPOCH_NONE = -1
"""Of a commit by no member."""

Shards = Annotated[tuple[int, ...], bits_of(range(GROUP_SHARDS))]
"""Ascending."""
ConfigChanges = Annotated[tuple[tuple[str, str | None], ...], at_most(CONFIGS_MAX)]
"""Values by name; null removes one."""


class GroupKind(IntEnum):
    """Which protocol a group follows."""

    CLASSIC = 1
    """JoinGroup and SyncGroup, or no members at all, just offsets."""
    CONSUMER = 2
    """KIP-848."""


@command(11)
@dataclass(frozen=True, slots=True)
class ClaimShards:
    """Be the coordinator of those of the shards that nobody holds. Outcome: `ShardsClaimed`."""

    shards: Shards


@command(12)
@dataclass(frozen=True, slots=True)
class ReleaseShards:
    """Give up those of the shards that the writer holds, to a live successor or to nobody."""

    shards: Shards
    successor: Incarnation
    """INCARNATION_NONE, or one that is not live: the shards are free."""


class GroupMember(NamedTuple):
    member_id: str
    epoch: Int32
    """Classic: the generation it is in; KIP-848: its member epoch."""
    body: bytes


@command(13)
@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Create or change a group: put members, remove members, set kind, epoch and body."""

    group_id: str
    kind: Annotated[GroupKind, byte_of(GroupKind)]
    epoch_before: Int32
    """The epoch that the group has, or GROUP_NEW."""
    epoch: Int32
    """Not less than `epoch_before`. Classic: the generation; KIP-848: the group epoch."""
    body: bytes
    put: tuple[GroupMember, ...]
    """New members, and members whose epoch or body is replaced."""
    removed: tuple[str, ...]
    """Ids of members, all of which the group has. They go first: one that is put as well comes
    back behind all others."""


@command(14)
@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a group without members, with its offsets."""

    group_id: str
    only_without_offsets: bool
    """Tidying, not a user's wish: refused with NON_EMPTY_GROUP if there are offsets."""


class CommittedOffset(NamedTuple):
    topic_id: TopicId
    partition: UInt31
    offset: Int64
    leader_epoch: Int32
    """-1: none."""
    metadata: str


CommittedOffsets = Annotated[tuple[CommittedOffset, ...], offsets_of(CommittedOffset._make)]


@command(15)
@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Commit offsets, fenced by member and epoch. Outcome: `OffsetsCommitted`, or all refused.

    By no member ("" and EPOCH_NONE) only while the group has none; it is created when missing,
    as a classic group of epoch 0, unless nothing was committed.
    """

    group_id: str
    member_id: str
    epoch: Int32
    offsets: CommittedOffsets


@command(16)
@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Forget offsets, whether or not they are there."""

    group_id: str
    partitions: Places


@command(17)
@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """Forget those of the offsets that are as old as the retention, by the machine's time.

    An offset's age counts from its commit; in a group without members from when the last one
    left, if that was later. Offsets of a deleted topic go whatever their age.
    """

    group_id: str
    retention_ms: UInt63
    partitions: Places


@command(18)
@dataclass(frozen=True, slots=True)
class SetGroupConfigs:
    """Set configs of a group id, whether or not there is such a group; null removes one.

    Any agent may: configs are an operator's word, and no decision of the group's coordinator.
    """

    group_id: str
    configs: ConfigChanges


@command(19)
@dataclass(frozen=True, slots=True)
class SetTopicConfigs:
    """Set configs of a topic; null removes one."""

    topic_id: TopicId
    configs: ConfigChanges


GroupCommand = (
    CommitOffsets  # First, since it is asked for most.
    | ClaimShards
    | ReleaseShards
    | ChangeGroup
    | DeleteGroup
    | DeleteOffsets
    | ExpireOffsets
    | SetGroupConfigs
)


@outcome(8, rows="B")
@dataclass(frozen=True, slots=True)
class ShardsClaimed:
    """Of the shards asked for, those that the writer holds now."""

    shards: tuple[int, ...]


@outcome(9, rows="h")
@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """What became of each offset.

    NONE, or UNKNOWN_TOPIC_ID when its topic is gone, or UNKNOWN_TOPIC_OR_PARTITION when the topic
    has fewer partitions.
    """

    errors: tuple[ErrorCode, ...]
