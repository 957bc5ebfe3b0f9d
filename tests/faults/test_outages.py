"""etcd or the S3 server away, at start and while running: the agent stays up and recovers (P16).

The outages last `FRAZIL_OUTAGE_S` seconds (default 12, longer than the session's deadline and
lease); with 60 the whole file takes five minutes.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.errors import ErrorCode
from tests.faults.load import Load, assert_nothing_lost
from tests.faults.wire import batch, produce_error
from tests.parts.servers import (
    EtcdServer,
    Frazil,
    FrazilCluster,
    MinioServer,
    http_ok,
    readiness,
)
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

OUTAGE_S = float(os.environ.get("FRAZIL_OUTAGE_S", "12"))
PATIENCE_MS = 2000
RETRIABLE = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}

Parts = tuple[EtcdServer, MinioServer]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    """An etcd and an S3 server of the test's own, since it takes them away."""
    etcd, minio = EtcdServer(tmp_path / "own-etcd"), MinioServer(tmp_path / "own-minio")
    etcd.start()
    minio.start()
    yield etcd, minio
    etcd.stop()
    minio.stop()


def _part(parts: Parts, which: str) -> EtcdServer | MinioServer:
    return parts[0] if which == "etcd" else parts[1]


def _alive(agent: Frazil) -> bool:
    return agent.child.running and http_ok(agent.http_port, "/health/live", seconds=30)


def _create(agent: Frazil, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    create_topic(admin, topic, 1)


@pytest.mark.alone
@pytest.mark.parametrize("which", ["etcd", "s3"])
def test_an_outage_while_running_loses_nothing_and_ends_by_itself(
    tmp_path: Path, parts: Parts, which: str
) -> None:
    part = _part(parts, which)
    with FrazilCluster(tmp_path / "cluster", *parts, agents=1) as cluster:
        (agent,) = cluster.agents
        load = Load(agent.bootstrap, "outage", per_second=200)
        load.start()
        load.wait_for_acks(200, seconds=30)
        _create(agent, "refused")
        part.child.kill()
        ends = time.monotonic() + OUTAGE_S
        while time.monotonic() < ends:
            assert _alive(agent), agent.child.tail()
            asked = time.monotonic()
            error = produce_error(agent.port, "refused", batch(), timeout_ms=PATIENCE_MS)
            assert error in RETRIABLE
            assert time.monotonic() - asked < PATIENCE_MS / 1000 + 1
            time.sleep(0.2)
        assert not agent.ready
        part.start()
        agent.until_ready()
        load.wait_for_acks(200, seconds=60)
        load.stop()
        assert_nothing_lost(load.audit(agent.port))
        assert cluster.stop() == [0]


@pytest.mark.fault_code("etcd-unreachable", "store-unreachable")
@pytest.mark.parametrize(
    ("which", "code"), [("etcd", "etcd-unreachable"), ("s3", "store-unreachable")]
)
def test_an_agent_that_starts_during_an_outage_waits_and_then_serves(
    tmp_path: Path, parts: Parts, which: str, code: str
) -> None:
    part = _part(parts, which)
    cluster = FrazilCluster(tmp_path / "cluster", *parts, agents=1)
    (agent,) = cluster.agents
    part.child.kill()
    try:
        agent.child.start(lambda: http_ok(agent.http_port, "/health/live"))
        ends = time.monotonic() + OUTAGE_S
        while time.monotonic() < ends:
            assert _alive(agent), agent.child.tail()
            assert not agent.ready
            time.sleep(0.2)
        assert f"clients are refused meanwhile [{code}]" in agent.child.log.read_text()
        assert readiness(agent.http_port)["codes"] == [code]
        part.start()
        agent.until_ready()
        load = Load(agent.bootstrap, "after", per_second=200)
        load.start()
        load.wait_for_acks(100, seconds=30)
        load.stop()
        assert_nothing_lost(load.audit(agent.port))
        assert cluster.stop() == [0]
    finally:
        cluster.stop()


def test_reads_below_the_end_go_on_while_the_log_is_away(tmp_path: Path, parts: Parts) -> None:
    etcd, _ = parts
    with FrazilCluster(tmp_path / "cluster", *parts, agents=1) as cluster:
        (agent,) = cluster.agents
        load = Load(agent.bootstrap, "reads", per_second=500)
        load.start()
        load.wait_for_acks(500, seconds=30)
        load.stop()
        etcd.child.kill()
        time.sleep(OUTAGE_S)
        assert _read_some(agent.bootstrap) > 0
        etcd.start()
        agent.until_ready()
        assert cluster.stop() == [0]


def _read_some(bootstrap: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("reads", 0, 0)])
    try:
        return sum(1 for message in consumer.consume(50, timeout=20) if message.error() is None)
    except KafkaException:
        return 0
    finally:
        consumer.close()
