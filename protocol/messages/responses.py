"""Responses of the cold APIs: one neutral shape per API, a superset over its versions.

As `protocol.messages.requests`. What a version has no field for is left out when it is encoded,
so handlers fill in everything they know; null where a version has no null becomes empty.
"""

from dataclasses import dataclass, field
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.requests import Cursor
from protocol.types import TOPIC_ID_ZERO, TopicId

NOT_ASKED: Final = -(1 << 31)
"""Authorized operations that were not asked for."""


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartitionResponse:
    partition_index: int = 0
    error_code: int = ErrorCode.NONE
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1  # v4+


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopicResponse:
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ListOffsetsResponse:
    throttle_time_ms: int = 0  # v2+
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class MetadataResponseBroker:
    node_id: int = -1
    host: str = ""
    port: int = 0
    rack: str | None = None  # v1+


@dataclass(slots=True, kw_only=True)
class MetadataResponsePartition:
    error_code: int = ErrorCode.NONE
    partition_index: int = 0
    leader_id: int = -1
    leader_epoch: int = -1  # v7+
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    offline_replicas: list[int] = field(default_factory=list)  # v5+


@dataclass(slots=True, kw_only=True)
class MetadataResponseTopic:
    error_code: int = ErrorCode.NONE
    name: str | None = None
    topic_id: TopicId = TOPIC_ID_ZERO  # v10+
    is_internal: bool = False  # v1+
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = NOT_ASKED  # v8+


@dataclass(slots=True, kw_only=True)
class MetadataResponse:
    throttle_time_ms: int = 0  # v3+
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = None  # v2+
    controller_id: int = -1  # v1+
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    error_code: int = ErrorCode.NONE  # v13+
    cluster_authorized_operations: int = NOT_ASKED  # v8-10


@dataclass(slots=True, kw_only=True)
class Coordinator:
    key: str = ""  # v4+
    node_id: int = -1  # v4+
    host: str = ""  # v4+
    port: int = 0  # v4+
    error_code: int = ErrorCode.NONE  # v4+
    error_message: str | None = None  # v4+


@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse:
    """`coordinators` from v4 on, before it the fields of the only one."""

    throttle_time_ms: int = 0  # v1+
    coordinators: list[Coordinator] = field(default_factory=list)  # v4+
    error_code: int = ErrorCode.NONE  # v0-3
    error_message: str | None = None  # v1-3
    node_id: int = -1  # v0-3
    host: str = ""  # v0-3
    port: int = 0  # v0-3


@dataclass(slots=True, kw_only=True)
class ApiVersion:
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


@dataclass(slots=True, kw_only=True)
class SupportedFeatureKey:
    name: str = ""  # v3+
    min_version: int = 0  # v3+
    max_version: int = 0  # v3+


@dataclass(slots=True, kw_only=True)
class FinalizedFeatureKey:
    name: str = ""  # v3+
    max_version_level: int = 0  # v3+
    min_version_level: int = 0  # v3+


@dataclass(slots=True, kw_only=True)
class ApiVersionsResponse:
    error_code: int = ErrorCode.NONE
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0  # v1+
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)  # v3+
    finalized_features_epoch: int = -1  # v3+
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)  # v3+
    zk_migration_ready: bool = False  # v3+


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfigs:
    name: str = ""  # v5+
    value: str | None = None  # v5+
    read_only: bool = False  # v5+
    config_source: int = -1  # v5+
    is_sensitive: bool = False  # v5+


@dataclass(slots=True, kw_only=True)
class CreatableTopicResult:
    name: str = ""
    topic_id: TopicId = TOPIC_ID_ZERO  # v7+
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    topic_config_error_code: int = ErrorCode.NONE  # v5+
    num_partitions: int = -1  # v5+
    replication_factor: int = -1  # v5+
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list)  # v5+


@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse:
    throttle_time_ms: int = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DeletableTopicResult:
    name: str | None = None
    topic_id: TopicId = TOPIC_ID_ZERO  # v6+
    error_code: int = ErrorCode.NONE
    error_message: str | None = None  # v5+


@dataclass(slots=True, kw_only=True)
class DeleteTopicsResponse:
    throttle_time_ms: int = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    partition_index: int = 0
    low_watermark: int = -1
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DeleteRecordsResponse:
    throttle_time_ms: int = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    name: str = ""
    error_code: int = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse:
    throttle_time_ms: int = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsPartition:
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsTopic:
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResult:
    error_code: int = ErrorCode.NONE
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: int = -1  # v4+
    usable_bytes: int = -1  # v4+
    is_cordoned: bool = False  # v5+


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE  # v3+
    results: list[DescribeLogDirsResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE
    producer_id: int = -1
    producer_epoch: int = 0


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    error_code: int = ErrorCode.NONE
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    topic: str = ""
    partitions: list[EpochEndOffset] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsSynonym:
    name: str = ""
    value: str | None = None
    source: int = 0


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResourceResult:
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: int = 0  # v3+
    documentation: str | None = None  # v3+


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResult:
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse:
    throttle_time_ms: int = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeClusterBroker:
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False  # v2+


@dataclass(slots=True, kw_only=True)
class DescribeClusterResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    endpoint_type: int = 1  # v1+
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int = NOT_ASKED


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponsePartition:
    error_code: int = ErrorCode.NONE
    partition_index: int = 0
    leader_id: int = -1
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline_replicas: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponseTopic:
    error_code: int = ErrorCode.NONE
    name: str | None = None
    topic_id: TopicId = TOPIC_ID_ZERO
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = NOT_ASKED


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: Cursor | None = None


@dataclass(slots=True, kw_only=True)
class AlterConfigsResourceResponse:
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""


@dataclass(slots=True, kw_only=True)
class AlterConfigsResponse:
    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ConfigResource:
    resource_name: str = ""
    resource_type: int = 16  # v1+


@dataclass(slots=True, kw_only=True)
class ListConfigResourcesResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE
    config_resources: list[ConfigResource] = field(default_factory=list)
