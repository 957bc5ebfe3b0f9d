"""Finds the committed offsets that have expired, and the groups that may be deleted. Pure.

Kafka's rules (KIP-211): in a group without members an offset's age counts from its commit, or from
when the last member left if that was later; in a group of consumers offsets of topics that nobody
subscribes to age from their commit; while a classic group rebalances, and where subscriptions are
not known, nothing ages. What topics had that were deleted goes at once. A group without members and
offsets goes too. An offset that waits for the end of a transaction keeps its place, and the group.

This preselects; `apply` decides, by the machine's time, so a wild clock expires nothing.
"""

from typing import Final

from broker.config.group_settings import MINUTE_MS
from broker.groups.group.live import LiveGroup
from coordinator.commands.group_commands import GroupKind
from coordinator.tables.groups import GroupRow
from coordinator.tables.topics import Topics
from protocol.types import TopicId

EMPTY_MS_MIN: Final = MINUTE_MS
"""A group that has just lost its last member, and has no offsets, may be about to get another."""

EMPTY: Final = "Empty"
_SETTLED: Final = frozenset({EMPTY, "Stable"})
"""States of a classic group in which it is known who subscribes to what."""


def expired(
    row: GroupRow,
    group: LiveGroup,
    topic_id: TopicId,
    *,
    topics: Topics,
    time_ms: int,
    retention_ms: int,
) -> list[int]:
    """Partitions of a topic whose offsets are old, ascending."""
    topic = topics.by_id(topic_id)
    if topic is None:
        return [partition for partition, _ in row.offsets.of_topic(topic_id)]
    if group.kind is GroupKind.CLASSIC and group.state() not in _SETTLED:
        return []
    if group.subscribes(topic.name):
        return []
    since_ms = 0 if row.members else row.empty_since_ms
    old_ms = time_ms - retention_ms
    return [
        partition
        for partition, committed in row.offsets.of_topic(topic_id)
        if max(committed.committed_ms, since_ms) <= old_ms
        and not row.offsets.has_pending(topic_id, partition)
    ]


def is_deletable(row: GroupRow, group: LiveGroup, *, time_ms: int) -> bool:
    """Whether the group has no members, no offsets and no state left to keep."""
    return (
        not row.members
        and len(row.offsets) == 0
        and row.offsets.pending_count == 0
        and group.state() == EMPTY
        and not group.has_members()
        and time_ms - row.empty_since_ms >= EMPTY_MS_MIN
    )
