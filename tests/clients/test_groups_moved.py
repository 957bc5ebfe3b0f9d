"""A group's coordinator moves, and consumers learn of that only by what they ask next."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients import raw
from tests.clients.bounded import until
from tests.parts.servers import EtcdServer, FrazilCluster, MinioServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

TOPIC = "moved"
GROUPS = [f"moved-{number}" for number in range(8)]
"""So many that some of them move to the second agent, and some do not."""
READ_S = 60.0


def reader(bootstrap: str, group: str) -> Consumer:
    """Knows its coordinator; it has no membership, so no heartbeat tells it of another one."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def reads(consumer: Consumer) -> int | None:
    """The offset of the first record that it is given when it begins where its group stands."""
    consumer.assign([TopicPartition(TOPIC, 0)])
    message = consumer.poll(READ_S)
    consumer.unassign()
    if message is None:
        return None
    assert message.error() is None, message.error()
    return message.offset()


def test_librdkafka_reads_on_where_its_group_stands_after_the_coordinator_has_moved(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    """It asks the agent that it knows for offsets, once; NOT_COORDINATOR would leave it without."""
    cluster = FrazilCluster(tmp_path, etcd, minio, agents=2)
    first, second = cluster.agents
    try:
        first.start()
        create_topic(AdminClient({"bootstrap.servers": first.bootstrap}), TOPIC, 1)
        producer = Producer({"bootstrap.servers": first.bootstrap})
        for value in (b"zero", b"one"):
            producer.produce(TOPIC, value)
        assert producer.flush(30) == 0
        readers = {group: reader(first.bootstrap, group) for group in GROUPS}
        for consumer in readers.values():
            assert reads(consumer) == 0
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
        second.start()
        cluster.until_groups_settle()
        # The first one may hear a moment later than the second that those are the second's now.
        until(
            lambda: {raw.coordinator(first.bootstrap, group) for group in GROUPS},
            lambda coordinators: coordinators == {first.bootstrap, second.bootstrap},
        )
        offsets = {group: reads(consumer) for group, consumer in readers.items()}
        assert offsets == dict.fromkeys(GROUPS, 1)
        for consumer in readers.values():
            consumer.close()
    finally:
        cluster.stop()
