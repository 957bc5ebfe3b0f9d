"""aiokafka: what it writes it reads back, in every codec."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.clients.records import CODECS, Sent, in_order, records

pytestmark = pytest.mark.integration


async def produce(bootstrap: str, topic: str, codec: str, sent: list[Sent]) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic,
                value=item.value,
                key=item.key,
                headers=list(item.headers),
                timestamp_ms=item.timestamp_ms,
            )
            for item in sent
        ]
        await asyncio.gather(*futures)
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        # aiokafka learns of a topic by its metadata, which assign() does not wait for.
        await consumer._client.fetch_all_metadata()
        names = consumer.partitions_for_topic(topic) or range(4)
        partitions = [TopicPartition(topic, index) for index in sorted(names)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        read: list[Sent] = []
        while len(read) < count:
            polled = await consumer.getmany(timeout_ms=30_000, max_records=5000)
            assert polled, f"only {len(read)} of {count} records came"
            for message in (message for batch in polled.values() for message in batch):
                read.append(
                    Sent(message.key, message.value, tuple(message.headers), message.timestamp)
                )
    finally:
        await consumer.stop()
    return in_order(read)


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_back_what_it_wrote(bootstrap: str, codec: str) -> None:
    async def both(topic: str, sent: list[Sent]) -> list[Sent]:
        await produce(bootstrap, topic, codec, sent)
        return await consume(bootstrap, topic, len(sent))

    sent = records()
    assert asyncio.run(both(f"aiokafka-{codec}", sent)) == sent
