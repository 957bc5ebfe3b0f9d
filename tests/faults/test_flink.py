"""Flink's exactly-once sink while agents, and the job itself, are killed, and answers are lost."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol import apis
from protocol.messages import ListTransactionsRequest
from tests.clients import raw
from tests.clients.raw_txn import end_offset
from tests.faults.drawn.link import Link
from tests.faults.flink_copy import FlinkCopy
from tests.faults.fronts import fronted, losing_answers
from tests.faults.load import Load, assert_nothing_lost
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer
from tests.parts.topics import create_topic

pytestmark = [pytest.mark.integration, pytest.mark.long]

SETTINGS = (
    *("lease.ttl.ms=3000", "session.deadline.ms=2000", "session.read.ms=500"),
    "puts.per.second=1000",
)
SEED = 25
PARTITIONS = 4
SOURCE = "flink"
COPIES = {"POOLING": "flink-pooling", "INCREMENTING": "flink-incrementing"}
"""By the strategies that Flink has to name transactions, and to find those that were left open."""
SUBTASKS = 2
STEP = 200
"""Records that get to all copies between two faults."""


class Copies:
    """A reader of what is committed of all copies."""

    def __init__(self, bootstrap: str) -> None:
        self.found: dict[tuple[str, int], list[bytes]] = {
            (topic, partition): [] for topic in COPIES.values() for partition in range(PARTITIONS)
        }
        self._ended: set[tuple[str, int]] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.assign([TopicPartition(*place, 0) for place in self.found])

    def until(self, count: int, seconds: float = 300.0) -> None:
        """Read until every copy has so many records."""
        deadline = time.monotonic() + seconds
        while min(self._counts().values()) < count:
            assert time.monotonic() < deadline, f"{self._counts()}, not {count}"
            self._take()

    def read_on(self) -> None:
        """Until every copy has a step more than now."""
        self.until(max(self._counts().values()) + STEP)

    def read_all(self, seconds: float = 300.0) -> None:
        """To the ends."""
        deadline = time.monotonic() + seconds
        while self._ended != self.found.keys():
            assert time.monotonic() < deadline, f"read to the end: {self._ended}"
            self._take()

    def close(self) -> None:
        self._consumer.close()

    def _take(self) -> None:
        for message in self._consumer.consume(500, timeout=0.1):
            place = (message.topic(), message.partition())
            if message.error() is None:
                self.found[place].append(message.value())
                self._ended.discard(place)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._ended.add(place)

    def _counts(self) -> dict[str, int]:
        return {
            topic: sum(len(self.found[topic, partition]) for partition in range(PARTITIONS))
            for topic in COPIES.values()
        }


def open_transactions(bootstraps: Sequence[str]) -> list[str]:
    """All that any agent coordinates."""
    request = ListTransactionsRequest(state_filters=["Ongoing"])
    return [
        row.transactional_id
        for bootstrap in bootstraps
        for row in raw.ask(bootstrap, apis.LIST_TRANSACTIONS, 1, request).transaction_states
    ]


def disturb(
    job: FlinkCopy, copies: Copies, agents: Sequence[Frazil], links: Sequence[Link]
) -> None:
    """Answers are lost, and one agent dies under the job; another one when the job begins again to commit what a
    checkpoint holds; and the job begins again when that has been committed."""
    with losing_answers(links):
        copies.read_on()
    agents[0].child.kill()
    job.until("checkpoint", 3)
    copies.read_on()
    agents[0].start()
    job.ask("hold", "held")
    agents[1].child.kill()
    job.ask("fail", "opened")
    job.until("checkpoint", 3)
    agents[1].start()
    job.ask("fail", "opened")


def test_flink_copies_each_record_once_while_agents_and_the_job_are_killed(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    """What a checkpoint holds, and nobody has committed yet, is committed by the job's next
    attempt, as another producer; what else is open is aborted."""
    cluster = FrazilCluster(tmp_path / "flink", etcd, minio, *SETTINGS)
    with fronted(cluster) as links:
        agents = random.Random(SEED).sample(cluster.agents, k=3)
        everywhere = ",".join(f"127.0.0.1:{link.port}" for link in links)
        for topic in COPIES.values():
            create_topic(AdminClient({"bootstrap.servers": everywhere}), topic, PARTITIONS)
        load = Load(everywhere, SOURCE, 200, PARTITIONS)
        load.start()
        copies = Copies(everywhere)
        with FlinkCopy(everywhere, tmp_path / "checkpoints", SOURCE, COPIES) as job:
            disturb(job, copies, agents[:2], links)
            job.ask("hold", "held")
            agents[2].child.kill()
            job.kill()
        with FlinkCopy(everywhere, tmp_path / "checkpoints", SOURCE, COPIES) as job:
            job.until("opened", SUBTASKS)
            agents[2].start()
            copies.read_on()
            load.stop()
            total = len(load.acknowledged)
            copies.until(total)
            job.ask("stop", "stopped")
        copies.close()
        for agent in agents:
            agent.until_ready()
        assert_copied_once(everywhere, total)
        assert open_transactions([agent.bootstrap for agent in agents]) == []
        assert_nothing_lost(load.audit(agents[0].port))
        assert cluster.stop() == [0, 0, 0]


def assert_copied_once(everywhere: str, total: int) -> None:
    """As one sees it who has read nothing before."""
    copies = Copies(everywhere)
    copies.read_all()
    copies.close()
    wanted = [
        [f"{number:08d}".encode() for number in range(partition, total, PARTITIONS)]
        for partition in range(PARTITIONS)
    ]
    for (topic, partition), found in copies.found.items():
        assert found == wanted[partition], f"{topic}, {partition}: {len(found)} records"
        address, place = everywhere.split(",", maxsplit=1)[0], (topic, partition)
        ends = [end_offset(address, place, stable=stable) for stable in (True, False)]
        assert ends[0] == ends[1], f"{place} has an open transaction"
