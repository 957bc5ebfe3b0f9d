"""Two workers of one machine over etcd and S3: clients at any of them, one killed, all ended by a signal."""

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from broker.cluster.nodes import STRIDE
from tests.clients.conftest import QUICK_PUTS, SETTINGS
from tests.clients.groups import Member, Stream, fresh, share_leave_and_go_on
from tests.clients.members import ConfluentMember, MemberHost
from tests.faults.load import Load, assert_nothing_lost
from tests.parts.secured import SecuredCluster
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer, get_text, readiness
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

PARTITIONS = 64
STEP = 10
"""Between a worker's own port and the one before: in the block of ports that this process has."""
TWO = ("workers=2", f"workers.port.step={STEP}")


def until(done: Callable[[], bool], agent: Frazil, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert agent.child.running, agent.child.tail()
        assert time.monotonic() < deadline, agent.child.tail()
        time.sleep(0.05)


def pids(agent: Frazil) -> dict[str, int]:
    """The newest process of each worker, as the supervisor's log has it."""
    started = re.findall(
        r"a worker was started worker=(w\d) pid=(\d+)", agent.child.log.read_text()
    )
    return {name: int(pid) for name, pid in started}


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    # Whoever should ask for its exit code may have died before it.
    return not stat.exists() or ") Z " not in stat.read_text()


def samples(agent: Frazil) -> dict[tuple[str, str], float]:
    """By name and worker; where there are other labels, the sum over them."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(get_text(agent.http_port, "/metrics")):
        for sample in family.samples:
            key = (sample.name, sample.labels.get("worker", ""))
            found[key] = found.get(key, 0.0) + sample.value
    return found


def all_serve(agent: Frazil) -> bool:
    with contextlib.suppress(OSError, ValueError):
        ready = {name: value for (name, worker), value in samples(agent).items() if worker == ""}
        return bool(ready) and readiness(agent.http_port) == {"ready": True, "reasons": []}
    return False


def nodes(agent: Frazil) -> dict[int, int]:
    """The port of each worker by its id, as clients are told; each is several nodes to librdkafka."""
    brokers = AdminClient({"bootstrap.servers": agent.bootstrap}).list_topics(timeout=30).brokers
    return {node.id: node.port for node in brokers.values() if node.id < STRIDE}


@contextlib.contextmanager
def two_workers(folder: Path, etcd: EtcdServer, minio: MinioServer, *more: str) -> Iterator[Frazil]:
    with FrazilCluster(
        folder, etcd, minio, *SETTINGS, *QUICK_PUTS, *TWO, *more, agents=1
    ) as cluster:
        agent = cluster.agents[0]
        until(lambda: all_serve(agent), agent)
        yield agent


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[Frazil]:
    with two_workers(tmp_path_factory.mktemp("workers"), etcd, minio) as agent:
        yield agent
        workers = pids(agent)
        assert agent.stop() == 0
        assert not [pid for pid in workers.values() if is_there(pid)]
        assert "Traceback" not in agent.child.log.read_text()


def test_each_worker_is_a_node_with_a_port_of_its_own(machine: Frazil) -> None:
    until(lambda: len(nodes(machine)) == 2, machine)
    assert sorted(nodes(machine).values()) == [machine.port + STEP, machine.port + 2 * STEP]
    assert "serving PLAINTEXT=" in machine.child.log.read_text()


@pytest.mark.parametrize("kind", ["librdkafka", "java", "java-848"])
def test_members_of_a_group_share_leave_and_go_on(
    machine: Frazil, java: MemberHost, kind: str
) -> None:
    name = fresh(kind)
    stream = Stream(machine.bootstrap, name)
    config: dict[str, Any] = {"group.protocol": "consumer"} if kind == "java-848" else {}

    def joined(member: str) -> Member:
        if kind == "librdkafka":
            return ConfluentMember(member, machine.bootstrap, name, [name])
        return java.open(member, machine.bootstrap, name, name, **config)

    share_leave_and_go_on(stream, name, joined)


def test_metrics_are_those_of_both(machine: Frazil) -> None:
    before = samples(machine)["frazil_produce_records_total", ""]
    stream = Stream(machine.bootstrap, fresh("counted"))
    stream.send(100)
    found = samples(machine)
    sent = 100 * len(stream.places)
    assert found["frazil_produce_records_total", ""] == before + sent
    assert found["frazil_ready", "w1"] == found["frazil_ready", "w2"] == 1
    assert found["frazil_worker_up", "w1"] == found["frazil_worker_up", "w2"] == 1
    assert ("frazil_ready", "") not in found


def test_a_worker_that_is_killed_comes_back_and_nothing_is_lost(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    with two_workers(tmp_path / "killed", etcd, minio) as agent:
        until(lambda: len(nodes(agent)) == 2, agent)
        before = nodes(agent)
        load = Load(agent.bootstrap, "kills")
        load.start()
        counted = 0.0
        for name in ("w1", "w2", "w1"):
            load.wait_for_acks(500, seconds=60)
            counted = max(counted, samples(agent)["frazil_produce_records_total", ""])
            killed = pids(agent)[name]
            os.kill(killed, signal.SIGKILL)
            load.wait_for_acks(500, seconds=60)
            until(lambda name=name, killed=killed: pids(agent)[name] != killed, agent)
            until(lambda: all_serve(agent), agent)
            assert samples(agent)["frazil_produce_records_total", ""] >= counted
        load.stop()
        assert nodes(agent) == before
        assert_nothing_lost(load.audit(agent.port))
        # As Ctrl-C does: all processes hear it, and the workers once more from their supervisor.
        os.killpg(agent.child.pid, signal.SIGINT)
        assert agent.child.wait(seconds=30) == 0


def test_over_tls_each_is_reached_at_its_own_port_with_the_same_certificate(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    cluster = SecuredCluster(tmp_path / "tls", etcd, minio, *TWO, agents=1)
    agent = cluster.agents[0]
    with cluster:
        until(lambda: all_serve(agent), agent)
        admin = AdminClient(cluster.client())
        # The topic's id draws which node leads a partition: that one leads all of so many is 2^-63.
        create_topic(admin, "both", PARTITIONS)
        found = admin.list_topics("both", timeout=30)
        ports = {node.port for node in found.brokers.values()}
        assert ports == {agent.port + STEP, agent.port + 2 * STEP}
        leaders = {each.leader % STRIDE for each in found.topics["both"].partitions.values()}
        assert leaders == {each for each in found.brokers if each < STRIDE}
        failed: list[object] = []
        producer = Producer(cluster.client())
        for partition in range(PARTITIONS):
            producer.produce(
                "both",
                b"secret",
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(30) == 0
        assert failed == []


def test_one_agent_becomes_two_workers_and_keeps_its_node_id(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    cluster = FrazilCluster(tmp_path / "more", etcd, minio, *SETTINGS, agents=1)
    agent = cluster.agents[0]
    with cluster:
        (node_id,) = nodes(agent)
    agent.child.argv += ["--workers", "2", "--set", TWO[1]]
    with cluster:
        until(lambda: all_serve(agent), agent)
        until(lambda: len(nodes(agent)) == 2, agent)
        assert nodes(agent)[node_id] == agent.port + STEP


def test_a_worker_that_cannot_have_its_port_ends_all_with_one_sentence(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    cluster = FrazilCluster(tmp_path / "taken", etcd, minio, *TWO, agents=1)
    agent = cluster.agents[0]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", agent.port + 2 * STEP))
        taken.listen()
        agent.child.start(lambda: True)
        assert agent.child.wait(seconds=60) == 1
    said = agent.child.log.read_text()
    sentence = f"frazil serve: cannot listen on 127.0.0.1:{agent.port + 2 * STEP} "
    assert said.count(sentence) == 1
    assert "Traceback" not in said
    assert not [pid for pid in pids(agent).values() if is_there(pid)]


def test_workers_leave_when_their_supervisor_is_killed(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    with two_workers(tmp_path / "alone", etcd, minio) as agent:
        workers = pids(agent)
        agent.child.kill()
        deadline = time.monotonic() + 30
        while [pid for pid in workers.values() if is_there(pid)]:
            assert time.monotonic() < deadline, agent.child.tail()
            time.sleep(0.05)
        assert agent.child.log.read_text().count("the supervisor is gone: leaving") == 2
