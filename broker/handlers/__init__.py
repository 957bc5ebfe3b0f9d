"""The APIs that are served: handler and versions of each, and what is left out on purpose.

Versions are in `protocol.apis`. Deliberately absent, so not advertised, and a request for one
closes the connection as in Kafka:

    security            SaslHandshake, SaslAuthenticate, ACLs, SCRAM users, delegation tokens
    changes of configs  of brokers; client quotas
    share and streams   ShareGroup*, ShareFetch, ShareAcknowledge, StreamsGroup*
    replicas, disks     ElectLeaders, reassignments, AlterReplicaLogDirs, DescribeQuorum
    telemetry           GetTelemetrySubscriptions, PushTelemetry: clients send when advertised
"""

from typing import Final

from broker.edge.dispatch import Cold, Handlers, Hot
from broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from protocol import apis

HANDLERS: Final[Handlers] = {
    apis.PRODUCE: Hot(produce.start, produce.refuse),
    apis.FETCH: Hot(fetch.start),
    apis.LIST_OFFSETS: Cold(list_offsets.handle, list_offsets.refusal),
    apis.METADATA: Cold(metadata.handle, metadata.refusal),
    apis.OFFSET_COMMIT: Cold(offset_commit.handle, offset_commit.refusal, changes=True),
    apis.OFFSET_FETCH: Cold(offset_fetch.handle, offset_fetch.refusal),
    apis.FIND_COORDINATOR: Cold(find_coordinator.handle, find_coordinator.refusal),
    apis.JOIN_GROUP: Hot(join_group.start, join_group.refuse),
    apis.HEARTBEAT: Hot(heartbeat.start),
    apis.LEAVE_GROUP: Hot(leave_group.start, leave_group.refuse),
    apis.SYNC_GROUP: Hot(sync_group.start, sync_group.refuse),
    apis.DESCRIBE_GROUPS: Cold(describe_groups.handle, describe_groups.refusal),
    apis.LIST_GROUPS: Cold(list_groups.handle, list_groups.refusal),
    apis.API_VERSIONS: Cold(api_versions.handle, api_versions.refusal),
    apis.CREATE_TOPICS: Cold(create_topics.handle, create_topics.refusal, changes=True),
    apis.DELETE_TOPICS: Cold(delete_topics.handle, delete_topics.refusal, changes=True),
    apis.DELETE_RECORDS: Cold(delete_records.handle, delete_records.refusal, changes=True),
    apis.INIT_PRODUCER_ID: Cold(init_producer_id.handle, init_producer_id.refusal, changes=True),
    apis.OFFSET_FOR_LEADER_EPOCH: Cold(
        offset_for_leader_epoch.handle, offset_for_leader_epoch.refusal
    ),
    apis.ADD_PARTITIONS_TO_TXN: Cold(
        add_partitions_to_txn.handle, add_partitions_to_txn.refusal, changes=True
    ),
    apis.ADD_OFFSETS_TO_TXN: Cold(
        add_offsets_to_txn.handle, add_offsets_to_txn.refusal, changes=True
    ),
    apis.END_TXN: Cold(end_txn.handle, end_txn.refusal, changes=True),
    apis.WRITE_TXN_MARKERS: Cold(write_txn_markers.handle, write_txn_markers.refusal, changes=True),
    apis.TXN_OFFSET_COMMIT: Cold(txn_offset_commit.handle, txn_offset_commit.refusal, changes=True),
    apis.DESCRIBE_CONFIGS: Cold(describe_configs.handle, describe_configs.refusal),
    apis.ALTER_CONFIGS: Cold(alter_configs.handle, alter_configs.refusal, changes=True),
    apis.DESCRIBE_LOG_DIRS: Cold(describe_log_dirs.handle, describe_log_dirs.refusal),
    apis.CREATE_PARTITIONS: Cold(create_partitions.handle, create_partitions.refusal, changes=True),
    apis.DELETE_GROUPS: Cold(delete_groups.handle, delete_groups.refusal, changes=True),
    apis.INCREMENTAL_ALTER_CONFIGS: Cold(
        incremental_alter_configs.handle, incremental_alter_configs.refusal, changes=True
    ),
    apis.OFFSET_DELETE: Cold(offset_delete.handle, offset_delete.refusal, changes=True),
    apis.UPDATE_FEATURES: Cold(update_features.handle, update_features.refusal, changes=True),
    apis.DESCRIBE_CLUSTER: Cold(describe_cluster.handle, describe_cluster.refusal),
    apis.DESCRIBE_PRODUCERS: Cold(describe_producers.handle, describe_producers.refusal),
    apis.DESCRIBE_TRANSACTIONS: Cold(describe_transactions.handle, describe_transactions.refusal),
    apis.LIST_TRANSACTIONS: Cold(list_transactions.handle, list_transactions.refusal),
    apis.CONSUMER_GROUP_HEARTBEAT: Hot(
        consumer_group_heartbeat.start, consumer_group_heartbeat.refuse
    ),
    apis.CONSUMER_GROUP_DESCRIBE: Cold(
        consumer_group_describe.handle, consumer_group_describe.refusal
    ),
    apis.LIST_CONFIG_RESOURCES: Cold(list_config_resources.handle, list_config_resources.refusal),
    apis.DESCRIBE_TOPIC_PARTITIONS: Cold(
        describe_topic_partitions.handle, describe_topic_partitions.refusal
    ),
}
