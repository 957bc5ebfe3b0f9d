"""Kafka Connect in distributed mode over agents that are killed: a file into a topic, and into a file again."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients import raw_txn
from tests.faults.fronts import fronted, losing_answers
from tests.parts.connect_cluster import ConnectNode
from tests.parts.servers import EtcdServer, FrazilCluster, MinioServer
from tests.parts.topics import create_topic

pytestmark = [pytest.mark.integration, pytest.mark.long]

SETTINGS = (
    "lease.ttl.ms=3000",
    "session.deadline.ms=2000",
    "session.read.ms=500",
    "group.initial.rebalance.delay.ms=0",
    "puts.per.second=100",
)
TOPIC = "lines"
PATIENCE_S = 120.0
BATCH = 20
"""Lines; each batch is a transaction of its own."""
LINE_CHARS = 99
IN_BUFFER = 11
"""Lines, at most, in the 1,024 bytes that the connector reads at once: fewer than a batch."""


class Lines:
    """A file that grows, and what has become of its lines."""

    def __init__(self, source: Path, sink: Path) -> None:
        self._source, self._sink = source, sink
        self._count = 0
        source.touch()

    def add(self, count: int = 200) -> None:
        with self._source.open("a") as file:
            file.writelines(f"{_line(self._count + one)}\n" for one in range(count))
        self._count += count

    @property
    def wanted(self) -> list[str]:
        return [_line(number) for number in range(self._count)]

    def sunk(self) -> list[str]:
        return self._sink.read_text().splitlines() if self._sink.exists() else []

    def until_some_are_sunk(self) -> None:
        """Wait until some more have, so that others are on their way."""
        self._until_missing(self._missing() - 1)

    def until_sunk(self) -> None:
        """Wait until each has come to the other file."""
        self._until_missing(IN_BUFFER)
        # What fills a batch leaves the rest of the connector's buffer for when the file grows.
        self.add(1)
        self._until_missing(0)

    def _missing(self) -> int:
        return len(set(self.wanted) - set(self.sunk()))

    def _until_missing(self, most: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (missing := self._missing()) > most:
            assert time.monotonic() < deadline, f"{missing} of {self._count} lines are not there"
            time.sleep(0.1)


def _line(number: int) -> str:
    return f"line {number}".ljust(LINE_CHARS, ".")


def test_connect_brings_each_line_once_while_agents_and_its_worker_are_killed(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    lines = Lines(tmp_path / "source.txt", tmp_path / "sink.txt")
    with ExitStack() as ends:
        cluster = FrazilCluster(tmp_path / "connected", etcd, minio, *SETTINGS)
        links = ends.enter_context(fronted(cluster))
        everywhere = ",".join(f"127.0.0.1:{link.port}" for link in links)
        create_topic(AdminClient({"bootstrap.servers": everywhere}), TOPIC, 1)
        worker = ConnectNode(tmp_path / "worker", everywhere, "connect")
        ends.callback(worker.child.kill)
        worker.start()
        files = "org.apache.kafka.connect.file.FileStream"
        source = {"file": str(tmp_path / "source.txt"), "topic": TOPIC, "batch.size": str(BATCH)}
        sink = {"file": str(tmp_path / "sink.txt"), "topics": TOPIC}
        worker.create("source", {"connector.class": f"{files}SourceConnector", **source})
        worker.create("sink", {"connector.class": f"{files}SinkConnector", **sink})
        first, second = cluster.agents[:2]
        with losing_answers(links):
            lines.add()
            lines.until_sunk()
        lines.add()
        lines.until_some_are_sunk()
        first.child.kill()
        lines.add()
        lines.until_sunk()
        first.start()
        second.child.kill()
        lines.add()
        lines.until_some_are_sunk()
        worker.child.kill()
        worker.start()
        # At least once: what the sink had not told when it was killed may be there again.
        lines.until_sunk()
        second.start()
        for name in ("source", "sink"):
            worker.until_running(name)
        raw_txn.until_all_know([agent.bootstrap for agent in cluster.agents], (TOPIC, 0))
        for agent in cluster.agents:
            assert raw_txn.visible(agent.bootstrap, (TOPIC, 0)) == lines.wanted
        worker.child.kill()
        assert cluster.stop() == [0, 0, 0]
