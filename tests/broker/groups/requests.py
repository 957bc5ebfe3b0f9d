"""Requests of groups, one maker an API, right for every version: what is left out does not matter."""

from collections.abc import Collection, Mapping
from typing import Any

from protocol.consumer_protocol import Subscription, write_subscription
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    TopicPartitions,
)
from protocol.types import TopicId

SESSION_MS = 10_000
REBALANCE_MS = 30_000
RANGE, COOPERATIVE = "range", "cooperative-sticky"

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, the preferred one first."""


def subscription(*names: str) -> bytes:
    return write_subscription(Subscription([*names], None, {}))


OF_T: Protocols = ((RANGE, subscription("t")),)
"""Of a consumer of the topic "t"."""


def join(
    group_id: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    protocol_type: str = "consumer",
    protocols: Protocols = OF_T,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    )


def sync(
    group_id: str,
    member_id: str,
    generation: int,
    *,
    instance_id: str | None = None,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    assignments: Mapping[str, bytes] | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in (assignments or {}).items()
        ],
    )


def heartbeat(
    group_id: str, member_id: str, generation: int, instance_id: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )


def leave(group_id: str, *members: str | tuple[str, str | None]) -> LeaveGroupRequest:
    """Of member ids, or of pairs of member id and instance id; before version 3 of one member id."""
    pairs = [(each, None) if isinstance(each, str) else each for each in members]
    return LeaveGroupRequest(
        group_id=group_id,
        member_id=pairs[0][0] if len(pairs) == 1 else "",
        members=[
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in pairs
        ],
    )


def consumer_heartbeat(
    group_id: str,
    member_id: str,
    epoch: int,
    *,
    owned: Mapping[TopicId, Collection[int]] | None = None,
    **fields: Any,
) -> ConsumerGroupHeartbeatRequest:
    """`owned` None: as it said before."""
    partitions = None
    if owned is not None:
        partitions = [
            TopicPartitions(topic_id=topic, partitions=sorted(numbers))
            for topic, numbers in owned.items()
        ]
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        topic_partitions=partitions,
        **fields,
    )
