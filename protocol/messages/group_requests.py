"""Requests about groups and their offsets; see `protocol.messages.requests`."""

from dataclasses import dataclass, field

from protocol.types import TOPIC_ID_ZERO, TopicId


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # v6+
    committed_metadata: str | None = None


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    name: str = ""  # v2-9
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)
    topic_id: TopicId = TOPIC_ID_ZERO  # v10+


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest:
    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None  # v7+
    retention_time_ms: int = -1  # v2-4
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    name: str = ""  # v1-9
    topic_id: TopicId = TOPIC_ID_ZERO  # v10+
    partition_indexes: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    group_id: str = ""
    member_id: str | None = None  # v9+
    member_epoch: int = -1  # v9+
    topics: list[OffsetFetchRequestTopic] | None = None


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest:
    group_id: str = ""  # v1-7
    topics: list[OffsetFetchRequestTopic] | None = None  # v1-7
    require_stable: bool = False  # v7+
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)  # v8+


@dataclass(slots=True, kw_only=True)
class JoinGroupRequestProtocol:
    name: str = ""
    metadata: bytes = b""


@dataclass(slots=True, kw_only=True)
class JoinGroupRequest:
    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1  # v1+
    member_id: str = ""
    group_instance_id: str | None = None  # v5+
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = None  # v8+


@dataclass(slots=True, kw_only=True)
class HeartbeatRequest:
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # v3+


@dataclass(slots=True, kw_only=True)
class MemberIdentity:
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None  # v5+


@dataclass(slots=True, kw_only=True)
class LeaveGroupRequest:
    group_id: str = ""
    members: list[MemberIdentity] = field(default_factory=list)  # v3+
    member_id: str = ""  # v0-2


@dataclass(slots=True, kw_only=True)
class SyncGroupRequestAssignment:
    member_id: str = ""
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class SyncGroupRequest:
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # v3+
    protocol_type: str | None = None  # v5+
    protocol_name: str | None = None  # v5+
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeGroupsRequest:
    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False  # v3+


@dataclass(slots=True, kw_only=True)
class ListGroupsRequest:
    states_filter: list[str] = field(default_factory=list)
    types_filter: list[str] = field(default_factory=list)  # v5+


@dataclass(slots=True, kw_only=True)
class DeleteGroupsRequest:
    groups_names: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestPartition:
    partition_index: int = 0


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestTopic:
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequest:
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    topic_id: TopicId = TOPIC_ID_ZERO
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None  # v1+
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False
