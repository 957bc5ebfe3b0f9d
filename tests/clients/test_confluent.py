"""confluent-kafka (librdkafka): what it writes it reads back, in every codec."""

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.clients.records import CODECS, Sent, in_order, records

pytestmark = pytest.mark.integration


def produce(bootstrap: str, topic: str, codec: str, sent: list[Sent]) -> None:
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
        }
    )

    def delivered(error, _message) -> None:
        if error is not None:
            failures.append(error)

    for item in sent:
        producer.produce(
            topic,
            value=item.value,
            key=item.key,
            headers=list(item.headers),
            timestamp=item.timestamp_ms,
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures


def consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    """`count` records from the beginning of all partitions, assigned by hand."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
    read: list[Sent] = []
    while len(read) < count:
        messages = consumer.consume(min(5000, count - len(read)), timeout=30)
        assert messages, f"only {len(read)} of {count} records came"
        for message in messages:
            assert message.error() is None
            headers = tuple((name, value) for name, value in message.headers() or ())
            read.append(Sent(message.key(), message.value(), headers, message.timestamp()[1]))
    consumer.close()
    return in_order(read)


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_back_what_it_wrote(bootstrap: str, codec: str) -> None:
    topic, sent = f"confluent-{codec}", records()
    produce(bootstrap, topic, codec, sent)
    assert consume(bootstrap, topic, len(sent)) == sent
