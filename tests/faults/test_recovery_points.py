"""`frazil recover` over a log of before, and to a time of before: what holds beside the drill of `test_recovery`."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from broker.cli.arguments import log_position
from tests.faults.disaster import (
    EAGER,
    PATIENCE_S,
    Clients,
    all_is_archived,
    assert_recovered,
    ends_refused,
    following,
    planned,
    position_now,
    produced,
    read_all,
    read_to_the_end,
    recover_when_sessions_are_over,
    settings_of,
    snapshot,
    whole_payments,
)
from tests.parts.servers import EtcdServer, FrazilCluster, MinioServer, at_once

pytestmark = pytest.mark.integration


@pytest.mark.promise("P1")
def test_a_backup_of_etcd_that_was_taken_long_before_is_refused_and_begun_anew(
    tmp_path: Path, parts: tuple[EtcdServer, MinioServer]
) -> None:
    etcd, minio = parts
    store = tmp_path / "own-minio"
    cluster = FrazilCluster(tmp_path / "cluster", etcd, minio, *EAGER, agents=2)
    with cluster:
        agent = cluster.agents[0]
        clients = Clients(cluster.bootstrap)
        clients.until_more()
        etcd.save(tmp_path / "backup")
        backed_up = position_now(agent)
        for _ in range(3):  # The log is cut behind the older one of two.
            clients.until_more()
            snapshot(agent, store)
        clients.until_more()
        archived = clients.mark()
        all_is_archived(store, *cluster.agents)
        clients.until_more(records=20, payments=1)
        every = clients.killed(cluster.agents)
        etcd.stop()
        shutil.rmtree(etcd.data)
        etcd.restore(tmp_path / "backup")
        etcd.start()
        at_once(ends_refused, [each.child for each in cluster.agents])
        told = planned(agent.child, *settings_of(agent))
        assert log_position(told["snapshot"]) > backed_up
        recover_when_sessions_are_over(agent.child, *settings_of(agent))
        cluster.start()
        assert_recovered(agent, archived, every, told, sent=clients.sent)
        new = produced(cluster.bootstrap, "t", 20, 900_000)
        assert new.items() <= read_all(agent.port, "t").items()
        assert cluster.stop() == [0, 0]


@pytest.mark.promise("P1")
def test_a_cluster_goes_back_to_a_time_within_its_snapshots(
    tmp_path: Path, parts: tuple[EtcdServer, MinioServer]
) -> None:
    etcd, minio = parts
    store = tmp_path / "own-minio"
    settings = (*EAGER, "snapshot.retention.ms=86400000")
    cluster = FrazilCluster(tmp_path / "cluster", etcd, minio, *settings, agents=2)
    with cluster:
        agent = cluster.agents[0]
        clients = Clients(cluster.bootstrap)
        clients.until_more()
        snapshot(agent, store)
        opened = open_transaction(cluster.bootstrap)
        clients.until_more()
        before, at_ms = clients.mark(), time.time_ns() // 1_000_000
        time.sleep(0.002)  # Into the next ms: what is sent from now on is later.
        sent, begun = clients.sent, clients.begun
        for _ in range(2):
            clients.until_more()
            snapshot(agent, store)
        reader = following(cluster.bootstrap)
        read_to_the_end(reader, clients.mark().records)
        all_is_archived(store, *cluster.agents)
        every = clients.killed(cluster.agents)
        etcd.stop()
        shutil.rmtree(etcd.data)
        etcd.start()
        to = ("--to", datetime.fromtimestamp(at_ms / 1000, UTC).isoformat())
        told = planned(agent.child, *to, *settings_of(agent))
        assert (told["is_all"], told["newest_entry_ms"] <= at_ms) == (False, True)
        assert "open" in told["aborted"]
        recover_when_sessions_are_over(agent.child, *to, *settings_of(agent))
        cluster.start()
        found = assert_recovered(agent, before, every, told, sent=clients.sent)
        assert max(int(value) for value in found.values()) < sent, "nothing newer is served"
        assert max(whole_payments(cluster.bootstrap)) < begun
        with pytest.raises(KafkaException):
            opened.commit_transaction(10)
        # A consumer of the epoch before goes on by itself.
        read_to_the_end(reader, produced(cluster.bootstrap, "t", 20, 900_000))
        reader.close()
        assert cluster.stop() == [0, 0]


def open_transaction(bootstrap: str) -> Producer:
    """It has a record in each partition, and is not ended."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "open",
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce("paid", f"never-{partition}", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    return producer
