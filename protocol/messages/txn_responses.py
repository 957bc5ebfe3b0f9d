"""Responses about transactions; see `protocol.messages.responses`."""

from dataclasses import dataclass, field

from protocol.errors import ErrorCode


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int = 0
    partition_error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult:
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = 0
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class EndTxnResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE
    producer_id: int = -1  # v5+
    producer_epoch: int = -1  # v5+


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult:
    partition_index: int = 0
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerTopicResult:
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerResult:
    producer_id: int = 0
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition:
    partition_index: int = 0
    error_code: int = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic:
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class UpdatableFeatureResult:
    feature: str = ""
    error_code: int = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class UpdateFeaturesResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    results: list[UpdatableFeatureResult] = field(default_factory=list)  # v0-1


@dataclass(slots=True, kw_only=True)
class ProducerState:
    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


@dataclass(slots=True, kw_only=True)
class DescribedProducersPartition:
    partition_index: int = 0
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    active_producers: list[ProducerState] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribedProducersTopic:
    name: str = ""
    partitions: list[DescribedProducersPartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeProducersResponse:
    throttle_time_ms: int = 0
    topics: list[DescribedProducersTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TransactionTopic:
    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribedTransaction:
    error_code: int = ErrorCode.NONE
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[TransactionTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeTransactionsResponse:
    throttle_time_ms: int = 0
    transaction_states: list[DescribedTransaction] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ListedTransaction:
    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


@dataclass(slots=True, kw_only=True)
class ListTransactionsResponse:
    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[ListedTransaction] = field(default_factory=list)
