"""The APIs that are served: one module for each, with its declaration (`API`, see `broker.api`).

Deliberately absent, so not advertised, and a request for one closes the connection as in Kafka:

    security            SaslHandshake, SaslAuthenticate, ACLs, SCRAM users, delegation tokens
    changes of configs  of brokers; client quotas
    share and streams   ShareGroup*, ShareFetch, ShareAcknowledge, StreamsGroup*
    replicas, disks     reassignments, AlterReplicaLogDirs
    telemetry           GetTelemetrySubscriptions, PushTelemetry: clients send when advertised

Handlers may touch what the node holds, and nothing else. Called by the dispatcher.
"""

from typing import Final

from broker.api import Api
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
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
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

SERVED: Final[dict[int, Api]] = {
    module.API.key: module.API
    for module in (
        produce,
        fetch,
        list_offsets,
        metadata,
        offset_commit,
        offset_fetch,
        find_coordinator,
        join_group,
        heartbeat,
        leave_group,
        sync_group,
        describe_groups,
        list_groups,
        api_versions,
        create_topics,
        delete_topics,
        delete_records,
        init_producer_id,
        offset_for_leader_epoch,
        add_partitions_to_txn,
        add_offsets_to_txn,
        end_txn,
        write_txn_markers,
        txn_offset_commit,
        describe_configs,
        alter_configs,
        describe_log_dirs,
        create_partitions,
        delete_groups,
        elect_leaders,
        incremental_alter_configs,
        offset_delete,
        describe_quorum,
        update_features,
        describe_cluster,
        describe_producers,
        describe_transactions,
        list_transactions,
        consumer_group_heartbeat,
        consumer_group_describe,
        list_config_resources,
        describe_topic_partitions,
    )
}
"""By key, in the order in which ApiVersions lists them."""
