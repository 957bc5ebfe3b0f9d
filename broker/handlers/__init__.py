"""The APIs that are served: handler and versions of each, and what is left out on purpose.

Versions are in `protocol.apis`. Deliberately absent, so not advertised, and a request for one
closes the connection as in Kafka:

    consumer groups     OffsetCommit, OffsetFetch, JoinGroup, Heartbeat, LeaveGroup, SyncGroup,
                        DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, ConsumerGroup*
    transactions        AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit,
                        WriteTxnMarkers, Describe- and ListTransactions, DescribeProducers
    security            SaslHandshake, SaslAuthenticate, ACLs, SCRAM users, delegation tokens
    changes of configs  AlterConfigs, IncrementalAlterConfigs, client quotas, UpdateFeatures
    records, partitions DeleteRecords, CreatePartitions
    share and streams   ShareGroup*, ShareFetch, ShareAcknowledge, StreamsGroup*
    replicas, disks     ElectLeaders, reassignments, log dirs, DescribeQuorum: there are none
    telemetry           GetTelemetrySubscriptions, PushTelemetry: clients send when advertised
"""

from typing import Final

from broker.dispatch import Cold, Handlers, Hot
from broker.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from protocol import apis

HANDLERS: Final[Handlers] = {
    apis.PRODUCE: Hot(produce.start, produce.refuse),
    apis.FETCH: Hot(fetch.start),
    apis.LIST_OFFSETS: Cold(list_offsets.handle, list_offsets.refusal),
    apis.METADATA: Cold(metadata.handle, metadata.refusal),
    apis.FIND_COORDINATOR: Cold(find_coordinator.handle, find_coordinator.refusal),
    apis.API_VERSIONS: Cold(api_versions.handle, api_versions.refusal),
    apis.CREATE_TOPICS: Cold(create_topics.handle, create_topics.refusal, changes=True),
    apis.DELETE_TOPICS: Cold(delete_topics.handle, delete_topics.refusal, changes=True),
    apis.INIT_PRODUCER_ID: Cold(init_producer_id.handle, init_producer_id.refusal, changes=True),
    apis.OFFSET_FOR_LEADER_EPOCH: Cold(
        offset_for_leader_epoch.handle, offset_for_leader_epoch.refusal
    ),
    apis.DESCRIBE_CONFIGS: Cold(describe_configs.handle, describe_configs.refusal),
    apis.DESCRIBE_CLUSTER: Cold(describe_cluster.handle, describe_cluster.refusal),
    apis.DESCRIBE_TOPIC_PARTITIONS: Cold(
        describe_topic_partitions.handle, describe_topic_partitions.refusal
    ),
}
