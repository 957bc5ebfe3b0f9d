"""docs/howto/migrate.md, done as it stands there: MirrorMaker brings topics, records and groups' places from Kafka."""

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.clients.bounded import until
from tests.docs.blocks import ROOT, blocks
from tests.parts import install
from tests.parts.process import Child
from tests.parts.servers import FrazilDev, KafkaServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "howto" / "migrate.md"
TOPIC, GROUP = "orders", "readers"
PARTITIONS, RECORDS, READ = 3, 600, 200
PATIENCE_S = 120.0
CONFIGS = {"retention.ms": "86400000", "cleanup.policy": "compact,delete"}


def said(kafka: str, frazil: str) -> str:
    """The page's file, with the addresses of this machine."""
    (text,) = (block.text for block in blocks(PAGE) if block.title == "mirror.properties")
    text = text.replace("kafka1.example.com:9092", kafka)
    return text.replace("agent1.example.com:9092", frazil)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Kafka, whose group has read a part of a topic, and an agent that has all of it by MirrorMaker."""
    kafka = KafkaServer(tmp_path / "kafka")
    kafka.start()
    try:
        fill(kafka.bootstrap)
        with FrazilDev(tmp_path / "frazil") as agent:
            file = tmp_path / "mirror.properties"
            file.write_text(said(kafka.bootstrap, agent.bootstrap))
            program = [*install.jvm("384m"), "-cp", f"{install.mirror()}/*"]
            main = "org.apache.kafka.connect.mirror.MirrorMaker"
            mirror = Child([*program, main, str(file)], log=tmp_path / "mirror.log")
            mirror.start(lambda: place(agent.bootstrap) is not None, seconds=PATIENCE_S)
            try:
                yield kafka.bootstrap, agent.bootstrap
            finally:
                mirror.kill()
    finally:
        kafka.stop()


def fill(bootstrap: str) -> None:
    create_topic(AdminClient({"bootstrap.servers": bootstrap}), TOPIC, PARTITIONS, CONFIGS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, key=f"k{number % 7}", value=f"{number}")
    assert producer.flush(30) == 0
    consumer = reader(bootstrap)
    got = 0
    while got < READ:
        got += len(consumer.consume(READ - got, timeout=5))
    consumer.commit(asynchronous=False)
    consumer.close()


def reader(bootstrap: str, group: str = GROUP) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def place(bootstrap: str) -> int | None:
    """How many records the group has behind it there, once MirrorMaker has said."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ConsumerGroupTopicPartitions(GROUP)]
    told = admin.list_consumer_group_offsets(asked)[GROUP].result(10).topic_partitions
    offsets = [each.offset for each in told if each.topic == TOPIC and each.offset >= 0]
    return sum(offsets) or None


def configs(bootstrap: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    told = admin.describe_configs([asked])[asked].result(10)
    return {name: entry.value for name, entry in told.items() if name in CONFIGS}


def everything(bootstrap: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """Keys and values of the topic, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks"})
    consumer.assign([TopicPartition(TOPIC, one, 0) for one in range(PARTITIONS)])
    found = defaultdict(list)
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < RECORDS:
        assert time.monotonic() < deadline, found
        for message in consumer.consume(RECORDS, timeout=1):
            found[message.partition()].append((message.key(), message.value()))
    consumer.close()
    return found


def test_all_is_where_it_was_and_a_group_goes_on_without_leaving_a_record_out(
    pair: tuple[str, str],
) -> None:
    kafka, frazil = pair
    assert everything(frazil) == everything(kafka)
    # MirrorMaker brings configs by a task of their own.
    until(lambda: configs(frazil), lambda found: found == CONFIGS)
    assert configs(kafka) == CONFIGS
    assert 0 < (place(frazil) or 0) <= READ
    before = reader(kafka)
    left = {message.value() for message in fetched(before, RECORDS - READ)}
    after = reader(frazil)
    assert left <= {message.value() for message in fetched(after, RECORDS - (place(frazil) or 0))}


def fetched(consumer: Consumer, count: int) -> list:
    found: list = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, len(found)
        found += consumer.consume(count - len(found), timeout=1)
    consumer.close()
    return found
