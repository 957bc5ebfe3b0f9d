"""Requests about transactions; see `protocol.messages.requests`."""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTopic:
    name: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnRequest:
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnRequest:
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""


@dataclass(slots=True, kw_only=True)
class EndTxnRequest:
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerTopic:
    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class WritableTxnMarker:
    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: int = 0
    transaction_version: int = 0  # v2+


@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequestPartition:
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # v2+
    committed_metadata: str | None = None


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic:
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1  # v3+
    member_id: str = ""  # v3+
    group_instance_id: str | None = None  # v3+
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class FeatureUpdateKey:
    feature: str = ""
    max_version_level: int = 0
    upgrade_type: int = 1  # v1+
    allow_downgrade: bool = False  # v0


@dataclass(slots=True, kw_only=True)
class UpdateFeaturesRequest:
    timeout_ms: int = 60000
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: bool = False  # v1+


@dataclass(slots=True, kw_only=True)
class DescribeProducersTopic:
    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeProducersRequest:
    topics: list[DescribeProducersTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeTransactionsRequest:
    transactional_ids: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ListTransactionsRequest:
    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[int] = field(default_factory=list)
    duration_filter: int = -1  # v1+
    transactional_id_pattern: str | None = None  # v2+
