"""Topics that get more partitions while clients use them, and configs of tables, by Kafka's tools.

What is said of partitions is tried against Apache Kafka too: what holds there must hold here.
"""

import asyncio
import time
from contextlib import closing
from typing import NamedTuple

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.admin import KafkaAdminClient
from kafka.admin import NewPartitions as PythonPartitions

from tests.clients.groups import until
from tests.clients.kafka_tools import CONFIGS, TOPICS, KafkaTools
from tests.parts.topics import NotNowError, create_topic, patiently, told

pytestmark = pytest.mark.integration

PATIENCE_S = 60


class Cluster(NamedTuple):
    bootstrap: str


@pytest.fixture(params=["kafka", "embedded", "three_agents"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.getfixturevalue(request.param).bootstrap)


def widen_by_librdkafka(bootstrap: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (widened,) = admin.create_partitions([NewPartitions(topic, count)]).values()
    told(widened)


def widen_by_kafka_python(bootstrap: str, topic: str, count: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_partitions({topic: PythonPartitions(count)})
    finally:
        admin.close()


def widen_by_aiokafka(bootstrap: str, topic: str, count: int) -> None:
    async def widen() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({topic: AioPartitions(count)})
        finally:
            await admin.close()

    asyncio.run(widen())


def partitions_of(bootstrap: str, topic: str) -> int:
    listed = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=30)
    return len(listed.topics[topic].partitions)


def until_wide(bootstrap: str, topic: str, count: int, what: str) -> None:
    """An admin client's answer may be ahead of what another broker of Apache Kafka tells."""
    until(lambda: partitions_of(bootstrap, topic) == count, [], what, PATIENCE_S)


def test_every_admin_client_makes_a_topic_wider(cluster: Cluster, tools: KafkaTools) -> None:
    topic = "widened-by-many"
    create_topic(AdminClient({"bootstrap.servers": cluster.bootstrap}), topic, 1)
    ways = (widen_by_librdkafka, widen_by_kafka_python, widen_by_aiokafka)
    for count, way in enumerate(ways, start=2):
        patiently(lambda way=way, count=count: way(cluster.bootstrap, topic, count), NotNowError)
        until_wide(cluster.bootstrap, topic, count, way.__name__)
    printed = tools.run(
        TOPICS, cluster.bootstrap, *f"--alter --topic {topic} --partitions 6".split()
    )
    until_wide(cluster.bootstrap, topic, 6, printed)


def test_a_topic_does_not_get_narrower(cluster: Cluster, tools: KafkaTools) -> None:
    topic = "not-narrower"
    create_topic(AdminClient({"bootstrap.servers": cluster.bootstrap}), topic, 3)
    for count in (3, 2):
        with pytest.raises(KafkaException) as refused:
            patiently(
                lambda count=count: widen_by_librdkafka(cluster.bootstrap, topic, count),
                NotNowError,
            )
        assert refused.value.args[0].name() == "INVALID_PARTITIONS"
        told_by_tool = tools.run(
            TOPICS, cluster.bootstrap, *f"--alter --topic {topic} --partitions {count}".split()
        )
        assert refused.value.args[0].str() in told_by_tool, "one sentence, whoever asks"
    assert partitions_of(cluster.bootstrap, topic) == 3


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_gets_the_records_of_partitions_that_come_later(
    cluster: Cluster, protocol: str
) -> None:
    topic = f"widened-under-{protocol}"
    create_topic(AdminClient({"bootstrap.servers": cluster.bootstrap}), topic, 1)
    quick = {"bootstrap.servers": cluster.bootstrap, "topic.metadata.refresh.interval.ms": 500}
    settings = {
        **quick,
        "group.id": topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    producer = Producer(quick)
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        for partition in range(3):
            if partition > 0:
                patiently(
                    lambda count=partition + 1: widen_by_librdkafka(
                        cluster.bootstrap, topic, count
                    ),
                    NotNowError,
                )
            # The producer hears of the partition when it asks for metadata again.
            patiently(
                lambda at=partition: producer.produce(topic, f"{at}", partition=at),
                KafkaException,
            )
            assert producer.flush(30) == 0
            deadline = time.monotonic() + PATIENCE_S
            # What is not committed may come again after a rebalance.
            while (message := consumer.poll(1)) is None or message.value() != b"%d" % partition:
                assert message is None or message.error() is None
                assert time.monotonic() < deadline, f"nothing came of partition {partition}"
            assert message.partition() == partition


@pytest.mark.parametrize("cluster", ["embedded", "three_agents"], indirect=True)
def test_configs_of_tables_are_set_with_kafkas_own_tool(
    cluster: Cluster, tools: KafkaTools
) -> None:
    topic = "with-a-table"
    create_topic(AdminClient({"bootstrap.servers": cluster.bootstrap}), topic, 1)
    named = ("--entity-type", "topics", "--entity-name", topic)

    def alter(config: str) -> str:
        return tools.run(CONFIGS, cluster.bootstrap, *named, "--alter", "--add-config", config)

    until(lambda: "Completed" in alter("frazil.iceberg.value.mode=avro"), [], "it may be set")
    assert "partition.by" in alter("frazil.iceberg.partition.by=week(a)")
    assert "InvalidConfigurationException" in alter("frazil.iceberg.mode=merge")
    printed = tools.run(CONFIGS, cluster.bootstrap, *named, "--describe", "--all")
    shown = {line.split()[0] for line in printed.splitlines() if "=" in line}
    assert {"frazil.iceberg.value.mode=avro", "frazil.iceberg.mode=append"} <= shown
