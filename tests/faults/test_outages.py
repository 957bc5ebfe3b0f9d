"""etcd or the S3 server away, at start and while running: the agent stays up and recovers (P16).

The outages last `FRAZIL_OUTAGE_S` seconds (default 12, longer than the session's deadline and
lease); with 60 the whole file takes five minutes.
"""

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.faults.load import Load, assert_nothing_lost
from tests.parts.process import Child
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer, http_ok

pytestmark = pytest.mark.integration

OUTAGE_S = float(os.environ.get("FRAZIL_OUTAGE_S", "12"))


def _away(part: EtcdServer | MinioServer) -> Child:
    part.child.kill()
    return part.child


def _alive(agent: Frazil) -> bool:
    return agent.child.running and http_ok(agent.http_port, "/health/live")


def _until_ready(agent: Frazil, *, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not agent.ready:
        assert time.monotonic() < deadline, f"not ready again:\n{agent.child.tail()}"
        time.sleep(0.1)


@pytest.fixture
def parts(tmp_path: Path):
    """An etcd and an S3 server of the test's own, since it takes them away."""
    etcd, minio = EtcdServer(tmp_path / "own-etcd"), MinioServer(tmp_path / "own-minio")
    etcd.start()
    minio.start()
    yield etcd, minio
    etcd.stop()
    minio.stop()


@pytest.mark.parametrize("which", ["etcd", "s3"])
def test_an_outage_while_running_loses_nothing_and_ends_by_itself(
    tmp_path: Path, parts: tuple[EtcdServer, MinioServer], which: str
) -> None:
    part = parts[0] if which == "etcd" else parts[1]
    cluster = FrazilCluster(tmp_path / "cluster", *parts, agents=1)
    cluster.start()
    (agent,) = cluster.agents
    load = Load(agent.bootstrap, "outage", per_second=200)
    load.start()
    load.wait_for_acks(200, seconds=30)
    _away(part)
    ends = time.monotonic() + OUTAGE_S
    refused = _refusal(agent.bootstrap, seconds=OUTAGE_S)
    while time.monotonic() < ends:
        assert _alive(agent), agent.child.tail()
        time.sleep(0.2)
    assert not agent.ready
    assert refused, "a write during the outage got no retriable answer in time"
    part.start()
    _until_ready(agent)
    load.wait_for_acks(200, seconds=60)
    load.stop()
    assert not load.failed
    assert_nothing_lost(load.audit(agent.bootstrap))
    cluster.stop()


def _refusal(bootstrap: str, *, seconds: float) -> bool:
    """Does one write end with an error, not an acknowledgement, before the outage ends?"""
    outcome: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.timeout.ms": int(seconds * 1000 * 0.7),
            "socket.timeout.ms": 5000,
        }
    )
    producer.produce(
        "outage", value=b"refused", partition=0, on_delivery=lambda error, _: outcome.append(error)
    )
    producer.flush(seconds * 0.8)
    return bool(outcome) and outcome[0] is not None


@pytest.mark.parametrize("which", ["etcd", "s3"])
def test_an_agent_that_starts_during_an_outage_waits_and_then_serves(
    tmp_path: Path, parts: tuple[EtcdServer, MinioServer], which: str
) -> None:
    part = parts[0] if which == "etcd" else parts[1]
    cluster = FrazilCluster(tmp_path / "cluster", *parts, agents=1)
    (agent,) = cluster.agents
    _away(part)
    agent.child.start(lambda: http_ok(agent.http_port, "/health/live"), seconds=30)
    ends = time.monotonic() + OUTAGE_S
    while time.monotonic() < ends:
        assert _alive(agent), agent.child.tail()
        assert not agent.ready
        time.sleep(0.2)
    part.start()
    _until_ready(agent)
    load = Load(agent.bootstrap, "after", per_second=200)
    load.start()
    load.wait_for_acks(100, seconds=30)
    load.stop()
    assert_nothing_lost(load.audit(agent.bootstrap))
    cluster.stop()


def test_reads_below_the_end_go_on_while_the_log_is_away(
    tmp_path: Path, parts: tuple[EtcdServer, MinioServer]
) -> None:
    etcd, _ = parts
    cluster = FrazilCluster(tmp_path / "cluster", *parts, agents=1)
    cluster.start()
    (agent,) = cluster.agents
    load = Load(agent.bootstrap, "reads", per_second=500)
    load.start()
    load.wait_for_acks(500, seconds=30)
    load.stop()
    _away(etcd)
    time.sleep(OUTAGE_S)
    read = _read_some(agent.bootstrap)
    assert read > 0
    etcd.start()
    _until_ready(agent)
    cluster.stop()


def _read_some(bootstrap: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

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
