"""The periodic job that forgets old offsets and groups that are nothing any more.

Every `offsets.retention.check.interval.ms` an agent goes through the groups that it coordinates.
What is old is `broker.groups.expiry`'s to say; it is proposed in slices, each decided again by
`apply`. A sweep that ends early (the log is away, a shard is lost) leaves the rest to the next one,
here or elsewhere.

Invariants: between two awaits a bounded number of rows is looked at; what is proposed was old in the
group as it stands, with nothing in between, since `apply` knows of no subscriptions.
"""

import asyncio
import logging
from typing import Final

from broker.groups import expiry
from broker.groups.commits import places
from broker.node import Node
from coordinator.commands.group_commands import DeleteGroup, ExpireOffsets
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Position, TopicId

logger = logging.getLogger(__name__)

AT_ONCE_MAX: Final = 32
"""Groups."""
ROWS_PER_TURN_MAX: Final = 5_000
"""Of one group; those of one topic are looked at together, however many."""


async def run(node: Node) -> None:
    """Sweep now and then, for ever."""
    while True:
        await asyncio.sleep(node.kafka.offsets_retention_check_interval_ms / 1000)
        await sweep(node)


async def sweep(node: Node) -> None:
    """Go through all groups that are coordinated here, once."""
    for shard in sorted(node.groups.claims.served):
        ids = [row.group_id for row in node.log_client.machine.groups.of_shard(shard)]
        for first in range(0, len(ids), AT_ONCE_MAX):
            some = ids[first : first + AT_ONCE_MAX]
            if not all(await asyncio.gather(*[_sweep_group(node, each) for each in some])):
                return
            await asyncio.sleep(0)


async def _sweep_group(node: Node, group_id: str) -> bool:
    """False when there is no sense in going on."""
    try:
        retention_ms = node.groups.settings_for(group_id).offsets_retention_ms
        seen = await _seen(node, group_id)
        for some in places(await _expired(node, group_id, retention_ms)):
            if await _seen(node, group_id) != seen:
                return True  # Somebody may subscribe to them by now: the next sweep looks again.
            await node.groups.propose(ExpireOffsets(group_id, retention_ms, some))
        if await _is_deletable(node, group_id):
            await node.groups.propose(DeleteGroup(group_id, only_without_offsets=True))
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            return True  # This group alone is of a version that this agent cannot read.
        logger.info("expiring offsets waits: %s", error)
        return False
    return True


async def _seen(node: Node, group_id: str) -> tuple[Position, str] | None:
    """What changes when the group's members or their subscriptions do. Raises KafkaError."""
    await node.groups.settled(group_id)
    row, group = node.log_client.machine.groups.get(group_id), node.groups.live(group_id)
    return None if row is None or group is None else (row.changed, group.state())


async def _expired(node: Node, group_id: str, retention_ms: int) -> list[tuple[TopicId, int]]:
    """Raises KafkaError."""
    machine = node.log_client.machine
    partitions: list[tuple[TopicId, int]] = []
    await node.groups.settled(group_id)
    row = machine.groups.get(group_id)
    looked_at = 0
    for topic_id in [] if row is None else row.offsets.topics():
        if looked_at >= ROWS_PER_TURN_MAX:
            looked_at = 0
            await asyncio.sleep(0)
            await node.groups.settled(group_id)
        row, group = machine.groups.get(group_id), node.groups.live(group_id)
        if row is None or group is None:
            return []
        old = expiry.expired(
            row,
            group,
            topic_id,
            topics=machine.topics,
            time_ms=machine.time_ms,
            retention_ms=retention_ms,
        )
        topic = machine.topics.by_id(topic_id)
        looked_at += len(old) if topic is None else topic.partition_count
        partitions += [(topic_id, partition) for partition in old]
    return partitions


async def _is_deletable(node: Node, group_id: str) -> bool:
    """Raises KafkaError."""
    await node.groups.settled(group_id)
    machine = node.log_client.machine
    row, group = machine.groups.get(group_id), node.groups.live(group_id)
    if row is None or group is None:
        return False
    return expiry.is_deletable(row, group, time_ms=machine.time_ms)
