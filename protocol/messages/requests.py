"""Requests of the cold APIs: one neutral shape per API, a superset over its versions.

Field names are those of Kafka's message definitions in snake case; durations are ints of ms
(`..._ms`), topic ids 16 bytes, absent ones TOPIC_ID_ZERO. A comment says which versions have a
field; in the others it has Kafka's default, which is the default here.
"""

from dataclasses import dataclass, field

from protocol.types import TOPIC_ID_ZERO, TopicId


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartition:
    partition_index: int = 0
    current_leader_epoch: int = -1  # v4+
    timestamp: int = 0


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopic:
    name: str = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ListOffsetsRequest:
    replica_id: int = 0
    isolation_level: int = 0  # v2+
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int = 0  # v10+


@dataclass(slots=True, kw_only=True)
class MetadataRequestTopic:
    topic_id: TopicId = TOPIC_ID_ZERO  # v10+
    name: str | None = None


@dataclass(slots=True, kw_only=True)
class MetadataRequest:
    """All topics are asked for by null, and in v0 by an empty list (there is no null there)."""

    topics: list[MetadataRequestTopic] | None = None
    allow_auto_topic_creation: bool = True  # v4+
    include_topic_authorized_operations: bool = False  # v8+
    include_cluster_authorized_operations: bool = False  # v8-10


@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest:
    """One key until v3 (`key`), several from v4 on (`coordinator_keys`)."""

    key_type: int = 0  # v1+
    coordinator_keys: list[str] = field(default_factory=list)  # v4+
    key: str = ""  # v0-3


@dataclass(slots=True, kw_only=True)
class ApiVersionsRequest:
    client_software_name: str = ""  # v3+
    client_software_version: str = ""  # v3+


@dataclass(slots=True, kw_only=True)
class CreatableReplicaAssignment:
    partition_index: int = 0
    broker_ids: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfig:
    name: str = ""
    value: str | None = None


@dataclass(slots=True, kw_only=True)
class CreatableTopic:
    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest:
    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: int = 60000
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class DeleteTopicState:
    name: str | None = None  # v6+
    topic_id: TopicId = TOPIC_ID_ZERO  # v6+


@dataclass(slots=True, kw_only=True)
class DeleteTopicsRequest:
    """Names until v5 (`topic_names`), names or ids from v6 on (`topics`)."""

    topics: list[DeleteTopicState] = field(default_factory=list)  # v6+
    timeout_ms: int = 0
    topic_names: list[str] = field(default_factory=list)  # v1-5


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartition:
    partition_index: int = 0
    offset: int = 0


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopic:
    name: str = ""
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: int = 0


@dataclass(slots=True, kw_only=True)
class CreatePartitionsAssignment:
    broker_ids: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopic:
    name: str = ""
    count: int = 0
    assignments: list[CreatePartitionsAssignment] | None = None


@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: int = 0
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class DescribableLogDirTopic:
    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)
    """None: all."""


@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest:
    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    producer_id: int = -1  # v3+
    producer_epoch: int = -1  # v3+


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderPartition:
    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopic:
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    replica_id: int = -2  # v3+
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResource:
    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = False  # v3+


@dataclass(slots=True, kw_only=True)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # v1+
    include_fenced_brokers: bool = False  # v2+


@dataclass(slots=True, kw_only=True)
class TopicRequest:
    name: str = ""


@dataclass(slots=True, kw_only=True)
class Cursor:
    topic_name: str = ""
    partition_index: int = 0


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: int = 2000
    cursor: Cursor | None = None


@dataclass(slots=True, kw_only=True)
class AlterableConfig:
    name: str = ""
    value: str | None = None


@dataclass(slots=True, kw_only=True)
class AlterConfigsResource:
    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class IncrementalAlterableConfig:
    name: str = ""
    config_operation: int = 0
    value: str | None = None


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsResource:
    resource_type: int = 0
    resource_name: str = ""
    configs: list[IncrementalAlterableConfig] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class ListConfigResourcesRequest:
    resource_types: list[int] = field(default_factory=list)
