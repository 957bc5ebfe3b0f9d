"""Logs of one partition as clients write them, read them, and as they should be after compaction.

`write` gives the committed records with their offsets, `READERS` is one function for each client
that reads a partition from an offset to its end, committed records only. Both take any cluster
that speaks Kafka's protocol. Readers stop at the end offset, not after a count: a client must get
there over holes, over batches of which nothing is left, and over ends of transactions.
"""

import asyncio
import random
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from tests.clients.records import CODECS, FIRST_TIMESTAMP_MS
from tests.parts import install
from tests.parts.topics import create_topic

READ_S = 60.0
"""A reader that has not reached the end by then never will."""
TOMBSTONES = 0.1
"""Share of records without value."""
RECORDS_PER_MS = 100
"""By the timestamps that they get."""
ABORTED = 0.2
"""Share of transactions."""


Reader = Callable[..., "list[list[Row]]"]


class Row(NamedTuple):
    """A record that a reader of committed records may see."""

    offset: int
    key: bytes
    value: bytes | None


def create(bootstrap: str, topic: str, **configs: str) -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = {name.replace("_", "."): value for name, value in configs.items()}
    create_topic(admin, topic, 1, told)


def write(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    keys: int,
    seed: int,
    first: int = 0,
    sizes: Sequence[int] = (1, 20, 100, 400),
    since_ms: int = FIRST_TIMESTAMP_MS,
) -> Iterator[Row]:
    """`records` records in transactions of which some abort, in all codecs; those committed.

    The same arguments give the same records in the same order on every cluster. Not the same
    offsets: Kafka may write the end of a transaction behind the first records of the next one. There
    is a producer for each codec, and they take turns. `first` numbers the records; `sizes` are those
    that transactions have; timestamps begin at `since_ms`.
    """
    chance = random.Random(seed)
    producers = [_producer(bootstrap, f"{topic}-{codec}", codec) for codec in CODECS]
    at = first
    while at < first + records:
        count = min(chance.choice(sizes), first + records - at)
        sent = [_record(chance, at + index, keys) for index in range(count)]
        producer, abort = chance.choice(producers), chance.random() < ABORTED
        at_ms = since_ms + at // RECORDS_PER_MS
        yield from _transaction(producer, topic, sent, at_ms, abort=abort)
        at += count


def _record(chance: random.Random, number: int, keys: int) -> tuple[bytes, bytes | None]:
    key = b"key %d" % chance.randrange(keys)
    is_tombstone = chance.random() < TOMBSTONES
    return key, None if is_tombstone else b"value %d " % number * chance.randint(1, 5)


def _producer(bootstrap: str, name: str, codec: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "compression.type": codec,
            "linger.ms": 2,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(60)
    return producer


def write_plainly(bootstrap: str, topic: str, *values: bytes, at_ms: int) -> list[Row]:
    """Records that are their own keys, of one timestamp, without a transaction."""
    sent = [(value, value) for value in values]
    return _produce(Producer({"bootstrap.servers": bootstrap}), topic, sent, at_ms)


def _transaction(
    producer: Producer,
    topic: str,
    sent: Sequence[tuple[bytes, bytes | None]],
    at_ms: int,
    *,
    abort: bool,
) -> list[Row]:
    producer.begin_transaction()
    rows = _produce(producer, topic, sent, at_ms)
    if abort:
        producer.abort_transaction(60)
        return []
    producer.commit_transaction(60)
    return rows


def _produce(
    producer: Producer, topic: str, sent: Sequence[tuple[bytes, bytes | None]], at_ms: int
) -> list[Row]:
    offsets: list[int] = []

    def delivered(error, message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for key, value in sent:
        producer.produce(topic, value, key, partition=0, timestamp=at_ms, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    # Not dense: Kafka may write the end of a transaction among the next one's records.
    assert all(before < after for before, after in pairwise(offsets))
    return [Row(offset, *each) for offset, each in zip(offsets, sent, strict=True)]


def compacted(log: Iterable[Row]) -> list[Row]:
    """The newest record of each key, tombstones too."""
    newest = {row.key: row for row in log}
    return sorted(newest.values())


def read_librdkafka(bootstrap: str, topic: str, start: int = 0) -> list[Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    rows: list[Row] = []
    deadline = time.monotonic() + READ_S
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    rows.append(Row(message.offset(), message.key(), message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return rows
                else:
                    raise AssertionError(message.error())
    finally:
        consumer.close()
    raise AssertionError(f"not at the end after {len(rows)} records")


def read_kafka_python(bootstrap: str, topic: str, start: int = 0) -> list[Row]:
    partition = PythonPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="none",
    )
    try:
        consumer.assign([partition])
        consumer.seek(partition, start)
        end = consumer.end_offsets([partition])[partition]
        rows: list[Row] = []
        deadline = time.monotonic() + READ_S
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline, f"not at the end after {len(rows)} records"
            for records in consumer.poll(timeout_ms=200, max_records=5000).values():
                rows += [Row(record.offset, record.key, record.value) for record in records]
        return rows
    finally:
        consumer.close()


def read_aiokafka(bootstrap: str, topic: str, start: int = 0) -> list[Row]:
    return asyncio.run(_read_aiokafka(bootstrap, AioPartition(topic, 0), start))


async def _read_aiokafka(bootstrap: str, partition: AioPartition, start: int) -> list[Row]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="none",
    )
    await consumer.start()
    try:
        consumer.assign([partition])
        consumer.seek(partition, start)
        end = (await consumer.end_offsets([partition]))[partition]
        rows: list[Row] = []
        async with asyncio.timeout(READ_S):
            while await consumer.position(partition) < end:
                polled = await consumer.getmany(timeout_ms=200, max_records=5000)
                for records in polled.values():
                    rows += [Row(record.offset, record.key, record.value) for record in records]
        return rows
    finally:
        await consumer.stop()


def read_java(bootstrap: str, topic: str, *starts: int) -> list[list[Row]]:
    """From each of the offsets; starting a JVM takes longer than reading."""
    program = Path(__file__).parent / "java" / "Reads.java"
    done = subprocess.run(
        [
            *install.java_program(program, install.kafka_jars()),
            *(bootstrap, topic, *map(str, starts)),
        ],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    read: list[list[Row]] = [[] for _ in starts]
    for line in done.stdout.splitlines():
        number, offset, key, value = line.split(b"\t")
        read[int(number)].append(Row(int(offset), key, None if value == b"null" else value))
    return read


def _each(read: Callable[[str, str, int], list[Row]]) -> Reader:
    return lambda bootstrap, topic, *starts: [read(bootstrap, topic, start) for start in starts]


READERS: dict[str, Reader] = {
    "librdkafka": _each(read_librdkafka),
    "java": read_java,
    "kafka-python": _each(read_kafka_python),
    "aiokafka": _each(read_aiokafka),
}
"""Given offsets, what each client reads from there on."""
