"""Spark Structured Streaming reads a topic while agents are killed, and its own drivers."""

import itertools
from collections import Counter
from pathlib import Path

import pytest

from tests.anomalies.history import SENDS, completions
from tests.clients import raw_txn
from tests.faults.load import Load
from tests.faults.stream_query import Row, StreamQuery
from tests.faults.txn_load import Workers
from tests.parts.servers import EtcdServer, FrazilCluster, MinioServer

# Spark gives its Python workers 10 s to come up, whatever else the machine does.
pytestmark = [pytest.mark.integration, pytest.mark.long]

SETTINGS = (
    "lease.ttl.ms=3000",
    "session.deadline.ms=2000",
    "session.read.ms=500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
)
TOPIC = "streamed"
PARTITIONS = 4


def source_options(cluster: FrazilCluster, minio: MinioServer) -> dict[str, str]:
    """All agents, in their order: the first is asked unless it does not answer."""
    agents = [f"http://127.0.0.1:{agent.http_port}" for agent in cluster.agents]
    return {
        "agent": ",".join(agents),
        "topic": TOPIC,
        "startingOffsets": "earliest",
        "store.access.key": minio.access_key,
        "store.secret.key": minio.secret_key,
    }


class Written:
    """What is written meanwhile: a steady load, and transactions, some of which are aborted."""

    def __init__(self, cluster: FrazilCluster) -> None:
        self._everywhere = ",".join(agent.bootstrap for agent in cluster.agents)
        self._load = Load(self._everywhere, TOPIC, per_second=100, partitions=PARTITIONS)
        self._load.start()

    def begin_transactions(self) -> None:
        self._workers = Workers(self._everywhere, TOPIC, PARTITIONS, 2)

    def wait_for_more(self, count: int = 100) -> None:
        self._load.wait_for_acks(count, seconds=60)

    def stop(self) -> None:
        self._workers.stop()
        self._load.stop()

    def placed(self) -> dict[bytes, tuple[int, int]]:
        """Where each record is that was acknowledged outside of transactions."""
        return self._load.acknowledged

    def of_transactions(self, type_: str) -> set[bytes]:
        """Values of transactions that ended so: "ok", committed, or "fail", aborted."""
        ended = [op for op in completions(self._workers.recorder.history) if op.f in SENDS]
        return {
            str(one.value).encode()
            for op in ended
            if op.type == type_
            for one in itertools.chain.from_iterable(op.writes.values())
        }


def ends(cluster: FrazilCluster) -> dict[int, int]:
    """Of each partition, once no transaction is open."""
    addresses = [agent.bootstrap for agent in cluster.agents]
    raw_txn.until_all_know(addresses, *[(TOPIC, partition) for partition in range(PARTITIONS)])
    address = addresses[-1]
    return {
        partition: raw_txn.end_offset(address, (TOPIC, partition), stable=True)
        for partition in range(PARTITIONS)
    }


def assert_each_once(rows: list[Row], written: Written, cluster: FrazilCluster) -> None:
    places = {(row.partition, row.offset): row.value for row in rows}
    assert len(places) == len(rows), "records are in the sink more than once"
    lost = [value for value, place in written.placed().items() if places.get(place) != value]
    assert not lost, f"{len(lost)} acknowledged records are not in the sink"
    counts = Counter(row.value for row in rows)
    committed, aborted = written.of_transactions("ok"), written.of_transactions("fail")
    assert len(committed) > 10
    assert aborted
    assert {counts[value] for value in committed} == {1}
    assert not aborted & set(counts)
    for partition in range(PARTITIONS):
        shown = raw_txn.visible(cluster.agents[-1].bootstrap, (TOPIC, partition))
        at = sorted(row for row in rows if row.partition == partition)
        assert [row.value.decode() for row in at] == shown


def test_a_streaming_query_has_each_record_once_whatever_is_killed(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    with FrazilCluster(tmp_path / "streamed", etcd, minio, *SETTINGS) as cluster:
        written = Written(cluster)
        with StreamQuery(tmp_path / "query", source_options(cluster, minio)) as query:
            written.begin_transactions()
            asked, other = cluster.agents[:2]
            asked.child.kill()
            written.wait_for_more()
            query.until_under_way()
            query.kill()
            asked.start()
            other.child.kill()
            query.start()
            written.wait_for_more()
            asked.child.kill()
            other.start()
            written.wait_for_more()
            asked.start()
            written.stop()
            query.until_at(ends(cluster))
        assert_each_once(query.rows(), written, cluster)
        assert cluster.stop() == [0, 0, 0]
