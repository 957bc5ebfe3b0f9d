"""kafka-delete-records.sh and kafka-log-dirs.sh of Kafka 4.3, and what consumers see afterwards.

Tried against Apache Kafka too: what holds there must hold here.
"""

import asyncio
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka.errors
import kafka.errors
import pytest
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient

from broker.cli.admin_client import AgentPlace, ask
from tests.clients.bounded import until
from tests.clients.kafka_tools import DELETE_RECORDS, LOG_DIRS, KafkaTools
from tests.parts.servers import FrazilCluster, FrazilDev
from tests.parts.topics import NotNowError, create_topic, patiently, told

pytestmark = pytest.mark.integration

PARTITIONS = 3
RECORDS = 10
"""In each partition."""


REFUSALS = (kafka.errors.KafkaError, aiokafka.errors.KafkaError)


class Cluster(NamedTuple):
    bootstrap: str
    http_port: int | None
    """None: it is Apache Kafka."""


@pytest.fixture(params=["kafka", "embedded", "three_agents"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    server = request.getfixturevalue(request.param)
    if isinstance(server, FrazilDev):
        return Cluster(server.bootstrap, server.http_port)
    if isinstance(server, FrazilCluster):
        return Cluster(server.bootstrap, server.agents[0].http_port)
    return Cluster(server.bootstrap, None)


def fill(cluster: Cluster, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    told = {name.replace("_", "."): value for name, value in configs.items()}
    create_topic(admin, topic, PARTITIONS, told)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for index in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, f"value {index}", f"key {index}", partition=partition)
    assert producer.flush(30) == 0


def delete(
    tools: KafkaTools, cluster: Cluster, folder: Path, topic: str, *offsets: int
) -> list[str]:
    """What kafka-delete-records.sh says of the partitions, which get an offset each."""
    told = [
        {"topic": topic, "partition": partition, "offset": offset}
        for partition, offset in enumerate(offsets)
    ]
    file = folder / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": told}))
    printed = tools.run(DELETE_RECORDS, cluster.bootstrap, "--offset-json-file", str(file))
    return sorted(line for line in printed.splitlines() if line.startswith("partition:"))


def test_records_are_deleted_and_the_rest_is_read(
    cluster: Cluster, tools: KafkaTools, tmp_path: Path
) -> None:
    topic = "deleted-from"
    fill(cluster, topic)
    assert delete(tools, cluster, tmp_path, topic, 3, -1, 0) == [
        f"partition: {topic}-0\tlow_watermark: 3",
        f"partition: {topic}-1\tlow_watermark: {RECORDS}",
        f"partition: {topic}-2\tlow_watermark: 0",
    ]
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "deleted-from",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    bounds = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        for partition in range(PARTITIONS)
    ]
    assert bounds == [(3, RECORDS), (RECORDS, RECORDS), (0, RECORDS)]
    # Positions from before the deletion: out of range, and reset to the log's start.
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    expected = [(0, offset) for offset in range(3, RECORDS)]
    expected += [(2, offset) for offset in range(RECORDS)]
    read: list[tuple[int, int]] = []
    while len(read) < len(expected):
        message = consumer.poll(30)
        assert message is not None, f"only {read} came"
        assert message.error() is None
        read.append((message.partition(), message.offset()))
    assert sorted(read) == expected
    consumer.close()


def test_what_cannot_be_deleted_is_said(
    cluster: Cluster, tools: KafkaTools, tmp_path: Path
) -> None:
    fill(cluster, "deleted-beyond")
    beyond, *others = delete(tools, cluster, tmp_path, "deleted-beyond", RECORDS + 1, 0, -1)
    assert beyond.startswith("partition: deleted-beyond-0\terror: ")
    assert "OffsetOutOfRangeException" in beyond
    assert [line.partition("\t")[2] for line in others] == [
        "low_watermark: 0",
        f"low_watermark: {RECORDS}",
    ]
    fill(cluster, "deleted-compacted", cleanup_policy="compact")
    for line in delete(tools, cluster, tmp_path, "deleted-compacted", 1, 0, -1):
        assert "PolicyViolationException" in line


def delete_by_librdkafka(bootstrap: str, topic: str, offset: int) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    return told(deleted).low_watermark


def delete_by_kafka_python(bootstrap: str, topic: str, offset: int) -> int:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        (row,) = admin.delete_records({PythonPartition(topic, 0): offset}).values()
    finally:
        admin.close()
    if row["error_code"] != 0:
        raise NotNowError(row)
    return row["low_watermark"]


def delete_by_aiokafka(bootstrap: str, topic: str, offset: int) -> int:
    async def deleted() -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            asked = {AioPartition(topic, 0): RecordsToDelete(offset)}
            (low_watermark,) = (await admin.delete_records(asked)).values()
            return low_watermark
        finally:
            await admin.close()

    return asyncio.run(deleted())


def test_every_admin_client_deletes_records(cluster: Cluster) -> None:
    topic = "deleted-by-many"
    fill(cluster, topic)
    ways = (delete_by_librdkafka, delete_by_kafka_python, delete_by_aiokafka)
    for offset, way in enumerate(ways, start=1):
        low_watermark = patiently(
            functools.partial(way, cluster.bootstrap, topic, offset), NotNowError, *REFUSALS
        )
        assert low_watermark == offset, way.__name__


def log_dirs(tools: KafkaTools, cluster: Cluster, *topics: str) -> list[dict[str, Any]]:
    """Of all brokers."""
    arguments = ("--describe", *(("--topic-list", ",".join(topics)) if topics else ()))
    printed = tools.run(LOG_DIRS, cluster.bootstrap, *arguments)
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    return [each for broker in json.loads(line)["brokers"] for each in broker["logDirs"]]


def test_the_bytes_of_every_partition_are_told_once(cluster: Cluster, tools: KafkaTools) -> None:
    topic = "in-log-dirs"
    fill(cluster, topic)
    dirs = log_dirs(tools, cluster, topic)
    assert {each["error"] for each in dirs} == {None}
    assert all(each["logDir"] for each in dirs)
    rows = [row for each in dirs for row in each["partitions"]]
    assert sorted(row["partition"] for row in rows) == [
        f"{topic}-{partition}" for partition in range(PARTITIONS)
    ]
    assert {(row["offsetLag"], row["isFuture"]) for row in rows} == {(0, False)}
    assert all(row["size"] > 0 for row in rows)
    if cluster.http_port is not None:
        agent = AgentPlace(f"http://127.0.0.1:{cluster.http_port}")

        def sizes() -> list[int]:
            view = ask(agent, f"/topics/{topic}")
            return [row["chunk_bytes"] + row["segment_bytes"] for row in view["partitions"]]

        # An agent may hear of what others wrote a moment later than they.
        sizes_told = [row["size"] for row in sorted(rows, key=lambda row: row["partition"])]
        until(sizes, lambda found: found == sizes_told)


@pytest.mark.parametrize("cluster", ["embedded", "three_agents"], indirect=True)
def test_deleted_records_take_no_bytes(cluster: Cluster, tools: KafkaTools, tmp_path: Path) -> None:
    """Unlike in Kafka, which keeps the segment that is written to."""
    topic = "emptied"
    fill(cluster, topic)
    delete(tools, cluster, tmp_path, topic, -1, -1, -1)
    rows = [row for each in log_dirs(tools, cluster, topic) for row in each["partitions"]]
    assert [row["size"] for row in rows] == [0] * PARTITIONS
