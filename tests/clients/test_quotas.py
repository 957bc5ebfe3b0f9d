"""Producers and consumers, of librdkafka and of Java, are held to their quotas, and mutations are refused
as by Apache Kafka.

Without a quota they would be a hundred times as fast, so a rate is only held between wide bounds here,
whatever else the machine does; how near it is, `python -m tests.bench.bench_quotas` measures over a minute.
"""

import json
import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from protocol import apis
from protocol.errors import ErrorCode
from tests.broker.handlers.test_quotas import FILTERS, altering, entry, found
from tests.clients.bounded import until
from tests.clients.kafka_tools import KafkaTools
from tests.clients.raw import Connection
from tests.kit import requests
from tests.parts.servers import FrazilDev, KafkaServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

QUOTA = 1_000_000
MESSAGE_BYTES = 1_000
SECONDS, WARM_S = 8.0, 3.0
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
"""kafka-producer-perf-test.sh"""


def is_held(rate: float) -> bool:
    return QUOTA / 2 < rate < QUOTA * 1.5


def limit(bootstrap: str, client_id: str, key: str, value: float | None) -> None:
    """Sets the quota, or removes it."""
    with Connection(bootstrap) as connection:
        request = altering(entry((("client-id", client_id),), (key, value)))
        (row,) = connection.ask(apis.ALTER_CLIENT_QUOTAS, 1, request).entries
        assert row.error_code == 0


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    """Its window is short: what may be used up at once is that of one second, not of ten."""
    settings = ("puts.per.second=1000", "quota.window.num=2")
    words = [word for setting in settings for word in ("--set", setting)]
    with FrazilDev(tmp_path_factory.mktemp("held"), *words) as agent:
        yield agent


def test_a_producer_of_librdkafka_writes_as_much_as_its_quota_says(agent: FrazilDev) -> None:
    create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "librdkafka", 1)
    limit(agent.bootstrap, "librdkafka", "producer_byte_rate", QUOTA)
    acknowledged: list[float] = []
    throttles: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": agent.bootstrap,
            "client.id": "librdkafka",
            "batch.size": 20_000,
            "queue.buffering.max.kbytes": 1_000,
            "statistics.interval.ms": 500,
            "stats_cb": lambda text: throttles.extend(
                each["throttle"]["max"] for each in json.loads(text)["brokers"].values()
            ),
        }
    )
    begun = time.monotonic()
    while time.monotonic() < begun + SECONDS:
        try:
            producer.produce(
                "librdkafka",
                bytes(MESSAGE_BYTES),
                on_delivery=lambda error, _: acknowledged.append(time.monotonic()),
            )
        except BufferError:
            producer.poll(0.01)
    warm, end = begun + WARM_S, begun + SECONDS
    count = sum(warm < each <= end for each in acknowledged)
    assert is_held(count * MESSAGE_BYTES / (end - warm))
    assert max(throttles) > 0, "the client is told"
    producer.purge()
    producer.flush(10)


def test_a_producer_of_java_writes_as_much_as_its_quota_says(
    agent: FrazilDev, tools: KafkaTools
) -> None:
    create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "java", 1)
    limit(agent.bootstrap, "perf-producer-client", "producer_byte_rate", QUOTA)
    count = 12_000
    printed = tools.run(
        PRODUCER_PERFORMANCE,
        agent.bootstrap,
        *("--topic", "java", "--num-records", str(count), "--record-size", str(MESSAGE_BYTES)),
        *("--throughput", "-1", "--print-metrics"),
        # One request is more than what the quota allows while it is written.
        *("--producer-props", "batch.size=65536", "linger.ms=50"),
    )
    # A line for each five seconds, in the first of which a second's worth came at once.
    rates = [float(each) for each in re.findall(r"records sent, ([0-9.]+) records/sec", printed)]
    assert is_held(rates[1] * MESSAGE_BYTES)
    throttle = re.search(r"produce-throttle-time-max\S*\s*:\s*([0-9.]+)", printed)
    assert throttle is not None
    assert float(throttle[1]) > 0


def test_a_consumer_of_librdkafka_reads_no_more_than_its_quota_says(agent: FrazilDev) -> None:
    create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "read", 1)
    producer = Producer({"bootstrap.servers": agent.bootstrap, "batch.size": 50_000})
    for _ in range(3_000):
        producer.produce("read", bytes(MESSAGE_BYTES))
    producer.flush(30)
    limit(agent.bootstrap, "reader", "consumer_byte_rate", QUOTA / 4)
    throttles: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": agent.bootstrap,
            "client.id": "reader",
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 100_000,
            "statistics.interval.ms": 500,
            "stats_cb": lambda text: throttles.extend(
                each["throttle"]["max"] for each in json.loads(text)["brokers"].values()
            ),
        }
    )
    consumer.subscribe(["read"])
    until(lambda: consumer.poll(0.1), lambda message: message is not None, seconds=30)
    begun, read = time.monotonic(), 1
    while time.monotonic() < begun + SECONDS:
        read += consumer.poll(0.1) is not None
    rate = read * MESSAGE_BYTES / SECONDS
    assert QUOTA / 4 / 4 < rate < QUOTA / 4 * 1.5
    assert max(throttles) > 0
    consumer.close()


def test_mutations_over_a_quota_are_refused_as_by_kafka(
    agent: FrazilDev, kafka: KafkaServer
) -> None:
    told = []
    for bootstrap in (agent.bootstrap, kafka.bootstrap):
        limit(bootstrap, "raw", "controller_mutation_rate", 1.0)
        with Connection(bootstrap) as connection:
            # Kafka's broker knows a moment later, and the keeper of its quotas a moment after it.
            until(
                lambda asking=connection: asking.ask(
                    apis.DESCRIBE_CLIENT_QUOTAS, 1, FILTERS["everything"]
                ),
                lambda answer: any("raw" in str(each) for each in found(answer)),
            )
        time.sleep(1)
        answers = []
        # The connection is not heard while it waits, so each request has its own.
        for version, partitions in ((7, 18), (7, 1), (5, 1)):
            with Connection(bootstrap, seconds=20) as connection:
                topics = {f"mutation{version}-{partitions}": partitions}
                request = requests.create_topics(topics)
                answer = connection.ask(apis.CREATE_TOPICS, version, request)
                (row,) = answer.topics
                answers.append((row.error_code, row.error_message, answer.throttle_time_ms))
        told.append(answers)
        # Other tests ask this Kafka for all of its quotas.
        limit(bootstrap, "raw", "controller_mutation_rate", None)
    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    for answers in told:
        assert [code for code, _, _ in answers] == [ErrorCode.NONE, exceeded, ErrorCode.NONE]
        # Eleven are there, eighteen were taken: seven seconds, less what has passed since.
        waits_ms = [wait_ms for _, _, wait_ms in answers]
        assert waits_ms[0] == 0
        assert all(1_000 < wait_ms <= 8_000 for wait_ms in waits_ms[1:]), waits_ms
    assert [message for _, message, _ in told[0]] == [message for _, message, _ in told[1]]
