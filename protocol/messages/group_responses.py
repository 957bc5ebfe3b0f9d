"""Responses about groups and their offsets; see `protocol.messages.responses`."""

from dataclasses import dataclass, field

from protocol.errors import ErrorCode
from protocol.messages.group_requests import TopicPartitions
from protocol.messages.responses import NOT_ASKED
from protocol.types import TOPIC_ID_ZERO, TopicId


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    partition_index: int = 0
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    name: str = ""  # v2-9
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)
    topic_id: TopicId = TOPIC_ID_ZERO  # v10+


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse:
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
    throttle_time_ms: int = 0  # v3+


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    partition_index: int = 0
    committed_offset: int = -1
    committed_leader_epoch: int = -1  # v5+
    metadata: str | None = ""
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    name: str = ""  # v1-9
    topic_id: TopicId = TOPIC_ID_ZERO  # v10+
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    group_id: str = ""
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse:
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)  # v1-7
    error_code: int = ErrorCode.NONE  # v2-7
    throttle_time_ms: int = 0  # v3+
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)  # v8+


@dataclass(slots=True, kw_only=True)
class JoinGroupResponseMember:
    member_id: str = ""
    group_instance_id: str | None = None  # v5+
    metadata: bytes = b""


@dataclass(slots=True, kw_only=True)
class JoinGroupResponse:
    error_code: int = ErrorCode.NONE
    generation_id: int = -1
    protocol_type: str | None = None  # v7+
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False  # v9+
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)
    throttle_time_ms: int = 0  # v2+


@dataclass(slots=True, kw_only=True)
class HeartbeatResponse:
    error_code: int = ErrorCode.NONE
    throttle_time_ms: int = 0  # v1+


@dataclass(slots=True, kw_only=True)
class MemberResponse:
    member_id: str = ""
    group_instance_id: str | None = None
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class LeaveGroupResponse:
    error_code: int = ErrorCode.NONE
    members: list[MemberResponse] = field(default_factory=list)  # v3+
    throttle_time_ms: int = 0  # v1+


@dataclass(slots=True, kw_only=True)
class SyncGroupResponse:
    error_code: int = ErrorCode.NONE
    protocol_type: str | None = None  # v5+
    protocol_name: str | None = None  # v5+
    assignment: bytes = b""
    throttle_time_ms: int = 0  # v1+


@dataclass(slots=True, kw_only=True)
class DescribedGroupMember:
    member_id: str = ""
    group_instance_id: str | None = None  # v4+
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class DescribedGroup:
    error_code: int = ErrorCode.NONE
    error_message: str | None = None  # v6+
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: int = NOT_ASKED  # v3+


@dataclass(slots=True, kw_only=True)
class DescribeGroupsResponse:
    groups: list[DescribedGroup] = field(default_factory=list)
    throttle_time_ms: int = 0  # v1+


@dataclass(slots=True, kw_only=True)
class ListedGroup:
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""  # v4+
    group_type: str = ""  # v5+


@dataclass(slots=True, kw_only=True)
class ListGroupsResponse:
    error_code: int = ErrorCode.NONE
    groups: list[ListedGroup] = field(default_factory=list)
    throttle_time_ms: int = 0  # v1+


@dataclass(slots=True, kw_only=True)
class DeletableGroupResult:
    group_id: str = ""
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class DeleteGroupsResponse:
    throttle_time_ms: int = 0
    results: list[DeletableGroupResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponsePartition:
    partition_index: int = 0
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponseTopic:
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponse:
    error_code: int = ErrorCode.NONE
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TargetAssignment:
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: TargetAssignment | None = None


@dataclass(slots=True, kw_only=True)
class NamedTopicPartitions:
    topic_id: TopicId = TOPIC_ID_ZERO
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupAssignment:
    topic_partitions: list[NamedTopicPartitions] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupMember:
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupAssignment = field(default_factory=ConsumerGroupAssignment)
    target_assignment: ConsumerGroupAssignment = field(default_factory=ConsumerGroupAssignment)
    member_type: int = -1  # v1+


@dataclass(slots=True, kw_only=True)
class DescribedConsumerGroup:
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[ConsumerGroupMember] = field(default_factory=list)
    authorized_operations: int = NOT_ASKED


@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = 0
    groups: list[DescribedConsumerGroup] = field(default_factory=list)
