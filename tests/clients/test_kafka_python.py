"""kafka-python: what it writes it reads back, in every codec."""

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.clients.records import CODECS, Sent, in_order, records

pytestmark = pytest.mark.integration


def produce(bootstrap: str, topic: str, codec: str, sent: list[Sent]) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    futures = [
        producer.send(
            topic,
            value=item.value,
            key=item.key,
            headers=list(item.headers),
            timestamp_ms=item.timestamp_ms,
        )
        for item in sent
    ]
    producer.flush(60)
    for future in futures:
        future.get(timeout=30)
    producer.close()


def consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    partitions = [
        TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic) or ()
    ]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    read: list[Sent] = []
    while len(read) < count:
        polled = consumer.poll(timeout_ms=30_000, max_records=5000)
        assert polled, f"only {len(read)} of {count} records came"
        for message in (message for batch in polled.values() for message in batch):
            read.append(Sent(message.key, message.value, tuple(message.headers), message.timestamp))
    consumer.close()
    return in_order(read)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_back_what_it_wrote(bootstrap: str, codec: str) -> None:
    topic, sent = f"kafka-python-{codec}", records()
    produce(bootstrap, topic, codec, sent)
    assert consume(bootstrap, topic, len(sent)) == sent
