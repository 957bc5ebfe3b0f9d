"""The table of APIs that are served, and which header versions their messages carry.

One row per API key; a key or version that is not in the table closes the connection, as in Kafka
(`SocketServer`), but for ApiVersions, whose unknown versions are answered in version 0 (KIP-511).
Ranges are those of Kafka 4.3, but for versions that only brokers send each other
(AddPartitionsToTxn from v4 on). Leaves out what the handlers decide: features, error mappings.
"""

from typing import Final, NamedTuple

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
DESCRIBE_QUORUM: Final = 55
UPDATE_FEATURES: Final = 57
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
UNREGISTER_BROKER: Final = 64
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
PUSH_TELEMETRY: Final = 72
LIST_CONFIG_RESOURCES: Final = 74
DESCRIBE_TOPIC_PARTITIONS: Final = 75

PRODUCE_SERVED_FROM: Final = 3
"""Record batches of magic 2 began with Produce v3; what came before went with KIP-896."""


class Api(NamedTuple):
    """One API: what ApiVersions says about it, and from when on it is "flexible" (KIP-482)."""

    key: int
    name: str
    min_version: int
    """As advertised; of Produce lower than what is served, see `is_served`."""
    max_version: int
    flexible_from: int


_TABLE: Final = (
    # Versions 0-2 of Produce are advertised and refused, as Kafka does (KAFKA-18659): without
    # them older librdkafka silently stops compressing.
    Api(PRODUCE, "Produce", 0, 13, 9),
    Api(FETCH, "Fetch", 4, 18, 12),
    Api(LIST_OFFSETS, "ListOffsets", 1, 11, 6),
    Api(METADATA, "Metadata", 0, 13, 9),
    Api(OFFSET_COMMIT, "OffsetCommit", 2, 10, 8),
    Api(OFFSET_FETCH, "OffsetFetch", 1, 10, 6),
    Api(FIND_COORDINATOR, "FindCoordinator", 0, 6, 3),
    Api(JOIN_GROUP, "JoinGroup", 0, 9, 6),
    Api(HEARTBEAT, "Heartbeat", 0, 4, 4),
    Api(LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
    Api(SYNC_GROUP, "SyncGroup", 0, 5, 4),
    Api(DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5),
    Api(LIST_GROUPS, "ListGroups", 0, 5, 3),
    Api(SASL_HANDSHAKE, "SaslHandshake", 0, 1, 2),
    Api(API_VERSIONS, "ApiVersions", 0, 4, 3),
    Api(CREATE_TOPICS, "CreateTopics", 2, 7, 5),
    Api(DELETE_TOPICS, "DeleteTopics", 1, 6, 4),
    Api(DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
    Api(INIT_PRODUCER_ID, "InitProducerId", 0, 5, 2),
    Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 4),
    Api(ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 3, 3),
    Api(ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3),
    Api(END_TXN, "EndTxn", 0, 5, 3),
    Api(WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1),
    Api(TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 3),
    Api(DESCRIBE_ACLS, "DescribeAcls", 1, 3, 2),
    Api(CREATE_ACLS, "CreateAcls", 1, 3, 2),
    Api(DELETE_ACLS, "DeleteAcls", 1, 3, 2),
    Api(DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4),
    Api(ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
    Api(ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 1, 2, 2),
    Api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5, 2),
    Api(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
    Api(CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
    Api(CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 1, 3, 2),
    Api(RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 1, 2, 2),
    Api(EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 1, 2, 2),
    Api(DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 1, 3, 2),
    Api(DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
    Api(ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
    Api(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
    Api(ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0),
    Api(LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
    Api(OFFSET_DELETE, "OffsetDelete", 0, 0, 1),
    Api(DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1),
    Api(ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
    Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
    Api(ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
    Api(DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0),
    Api(UPDATE_FEATURES, "UpdateFeatures", 0, 2, 0),
    Api(DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
    Api(DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
    Api(UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0),
    Api(DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
    Api(LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0),
    Api(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
    Api(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
    Api(GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", 0, 0, 0),
    Api(PUSH_TELEMETRY, "PushTelemetry", 0, 0, 0),
    Api(LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0),
    Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0),
)

APIS: Final[dict[int, Api]] = {api.key: api for api in _TABLE}
"""The APIs by key, in the order in which ApiVersions lists them."""


def is_served(key: int, version: int) -> bool:
    """Whether a request of this key and version is parsed and handled (not just advertised)."""
    api = APIS.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        return False
    return key != PRODUCE or version >= PRODUCE_SERVED_FROM


def is_flexible(key: int, version: int) -> bool:
    """Whether messages have compact lengths and tagged fields. KeyError for an unknown key."""
    return version >= APIS[key].flexible_from


def request_header_version(key: int, version: int) -> int:
    """1, or 2 with tagged fields. KeyError for an unknown key.

    Also right for ApiVersions of versions still to come: those stay flexible.
    """
    return 2 if is_flexible(key, version) else 1


def response_header_version(key: int, version: int) -> int:
    """0, or 1 with tagged fields; of ApiVersions always 0 (KIP-511). KeyError as above."""
    return 1 if key != API_VERSIONS and is_flexible(key, version) else 0
