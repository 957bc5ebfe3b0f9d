"""Produce and Fetch as neutral shapes: the client's side, for tests, the simulator and tools.

Agents use `protocol.produce` and `protocol.fetch`, which copy no records. Field names are those
of Kafka's message definitions; a comment says which versions have a field.
"""

from dataclasses import dataclass, field

from protocol.errors import ErrorCode
from protocol.types import TOPIC_ID_ZERO, Buffer, TopicId


@dataclass(slots=True, kw_only=True)
class PartitionProduceData:
    index: int = 0
    records: Buffer | None = None


@dataclass(slots=True, kw_only=True)
class TopicProduceData:
    topic_id: TopicId = TOPIC_ID_ZERO  # v13+
    partition_data: list[PartitionProduceData] = field(default_factory=list)
    name: str = ""  # v3-12


@dataclass(slots=True, kw_only=True)
class ProduceRequest:
    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ReplicaState:
    replica_id: int = -1  # v15+
    replica_epoch: int = -1  # v15+


@dataclass(slots=True, kw_only=True)
class FetchPartition:
    partition: int = 0
    current_leader_epoch: int = -1  # v9+
    fetch_offset: int = 0
    last_fetched_epoch: int = -1  # v12+
    log_start_offset: int = -1  # v5+
    partition_max_bytes: int = 0
    replica_directory_id: TopicId = TOPIC_ID_ZERO  # v17+
    high_watermark: int = 9223372036854775807  # v18+


@dataclass(slots=True, kw_only=True)
class FetchTopic:
    topic_id: TopicId = TOPIC_ID_ZERO  # v13+
    partitions: list[FetchPartition] = field(default_factory=list)
    topic: str = ""  # v4-12


@dataclass(slots=True, kw_only=True)
class ForgottenTopic:
    topic_id: TopicId = TOPIC_ID_ZERO  # v13+
    partitions: list[int] = field(default_factory=list)  # v7+
    topic: str = ""  # v7-12


@dataclass(slots=True, kw_only=True)
class FetchRequest:
    cluster_id: str | None = None  # v12+
    replica_state: ReplicaState = field(default_factory=ReplicaState)  # v15+
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0  # v7+
    session_epoch: int = -1  # v7+
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)  # v7+
    rack_id: str = ""  # v11+
    replica_id: int = -1  # v4-14


@dataclass(slots=True, kw_only=True)
class BatchIndexAndErrorMessage:
    batch_index: int = 0  # v8+
    batch_index_error_message: str | None = None  # v8+


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch:
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True, kw_only=True)
class PartitionProduceResponse:
    index: int = 0
    error_code: int = ErrorCode.NONE
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1  # v5+
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list)  # v8+
    error_message: str | None = None  # v8+
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # v10+


@dataclass(slots=True, kw_only=True)
class TopicProduceResponse:
    topic_id: TopicId = TOPIC_ID_ZERO  # v13+
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)
    name: str = ""  # v3-12


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    node_id: int = -1
    host: str = ""
    port: int = 0
    rack: str | None = None


@dataclass(slots=True, kw_only=True)
class ProduceResponse:
    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: int = 0
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # v10+


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    epoch: int = -1  # v12+
    end_offset: int = -1  # v12+


@dataclass(slots=True, kw_only=True)
class SnapshotId:
    end_offset: int = -1  # v12+
    epoch: int = -1  # v12+


@dataclass(slots=True, kw_only=True)
class AbortedTransaction:
    producer_id: int = 0
    first_offset: int = 0


@dataclass(slots=True, kw_only=True)
class PartitionData:
    partition_index: int = 0
    error_code: int = ErrorCode.NONE
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1  # v5+
    diverging_epoch: EpochEndOffset = field(default_factory=EpochEndOffset)  # v12+
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # v12+
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)  # v12+
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: int = -1  # v11+
    records: Buffer | None = None


@dataclass(slots=True, kw_only=True)
class FetchableTopicResponse:
    topic_id: TopicId = TOPIC_ID_ZERO  # v13+
    partitions: list[PartitionData] = field(default_factory=list)
    topic: str = ""  # v4-12


@dataclass(slots=True, kw_only=True)
class FetchResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE  # v7+
    session_id: int = 0  # v7+
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # v16+
