"""Requests up to Kafka's own limits pass, against an agent with its defaults."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from protocol import apis, messages
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch
from protocol.types import Buffer
from tests.clients.raw import Connection
from tests.harm.honest.kit import metrics, refusals, run
from tests.kit import requests
from tests.parts import install
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration

MiB = 1 << 20
MESSAGE_MAX_BYTES = 1_048_588
"""Kafka's default."""
PATIENCE_S = 60.0
PRODUCE_VERSION, FETCH_VERSION, CREATE_TOPICS_VERSION, METADATA_VERSION = 9, 12, 5, 12
JOIN_VERSION, DESCRIBE_CONFIGS_VERSION = 5, 4


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    with FrazilDev(tmp_path_factory.mktemp("honest")) as agent:
        yield agent
        assert not refusals(agent.http_port)
        assert agent.stop() == 0
        assert "Traceback" not in agent.child.log.read_text()


def connection(agent: FrazilDev) -> Connection:
    return Connection(agent.bootstrap, seconds=PATIENCE_S)


def create(agent: FrazilDev, name: str, partitions: int = 1, **configs: str) -> None:
    wanted = requests.create_topics(
        {name: partitions}, {key.replace("_", "."): value for key, value in configs.items()}
    )
    with connection(agent) as client:
        answer = client.ask(apis.CREATE_TOPICS, CREATE_TOPICS_VERSION, wanted)
    assert requests.error_of(answer) == ErrorCode.NONE, answer


def noise(length: int) -> bytes:
    return random.Random(length).randbytes(length)


def batch_of(length: int) -> bytes:
    """A batch of one record, of exactly so many bytes."""
    value = noise(length)
    short = length - len(build_batch([Record(timestamp=1, key=b"k", value=value[:-100])]))
    batch = build_batch([Record(timestamp=1, key=b"k", value=value[: short - 100])])
    assert len(batch) == length
    return batch


def errors_of(client: Connection, batches: dict[tuple[str, int], Buffer]) -> set[int]:
    answer = client.ask(apis.PRODUCE, PRODUCE_VERSION, requests.produce(batches))
    rows = requests.rows_of(answer)
    assert set(rows) == set(batches)
    return {row.error_code for row in rows.values()}


def error_of_first_request(agent: FrazilDev, topic: str, batch: bytes) -> int:
    """Of the first request on a connection: old clients do not begin with ApiVersions."""
    with connection(agent) as client:
        (error,) = errors_of(client, {(topic, 0): batch})
    return error


def test_a_batch_of_exactly_message_max_bytes_passes_without_a_request_before(
    agent: FrazilDev,
) -> None:
    create(agent, "exact")
    batch = batch_of(MESSAGE_MAX_BYTES)
    assert error_of_first_request(agent, "exact", batch) == ErrorCode.NONE
    larger = batch_of(MESSAGE_MAX_BYTES + 1)
    assert error_of_first_request(agent, "exact", larger) == ErrorCode.MESSAGE_TOO_LARGE


def read_all(client: Connection, topic: str, partitions: int, wanted: int) -> list[int]:
    """Read the one batch of each partition, as a consumer does, answer by answer: bytes of each answer."""
    places = dict.fromkeys(((topic, index) for index in range(partitions)), 0)
    sizes = []
    while places:
        asked = requests.fetch(places, max_bytes=wanted, partition_max_bytes=wanted)
        rows = requests.rows_of(client.ask(apis.FETCH, FETCH_VERSION, asked))
        assert {row.error_code for row in rows.values()} == {ErrorCode.NONE}
        given = {place: len(row.records or b"") for place, row in rows.items()}
        assert {*given.values()} <= {0, MESSAGE_MAX_BYTES}
        sizes.append(sum(given.values()))
        assert sizes[-1], "an answer has something"
        places = {place: 0 for place in places if not given.get(place)}
    return sizes


def test_a_request_of_many_full_batches_passes_and_is_read(agent: FrazilDev) -> None:
    """64 MiB in, 64 MiB asked for; an answer has 8 MiB at most, or as much as is asked for at least."""
    create(agent, "full", 64)
    batch = batch_of(MESSAGE_MAX_BYTES)
    with connection(agent) as client:
        client.ask(apis.API_VERSIONS, 0, messages.ApiVersionsRequest())
        assert errors_of(client, {("full", i): batch for i in range(64)}) == {ErrorCode.NONE}
        for wanted in (50 * MiB, 128 * MiB):
            sizes = read_all(client, "full", 64, wanted)
            assert max(sizes) <= 8 * MiB
            assert sum(sizes) == 64 * MESSAGE_MAX_BYTES


@pytest.mark.parametrize("size", [10 * MiB, 50 * MiB])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_of_a_topic_that_takes_large_ones_are_written_and_read(
    agent: FrazilDev, size: int, codec: str
) -> None:
    topic = f"large-{codec}-{size}"
    create(agent, topic, max_message_bytes=str(size + 1000))
    config = {"bootstrap.servers": agent.bootstrap}
    large = {"message.max.bytes": size + 100_000, "compression.type": codec}
    producer = Producer({**config, **large})
    failed: list[object] = []
    value = noise(size)
    producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == [None]
    consumer = Consumer({**config, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None
    assert message.value() == value
    consumer.close()


def log_lines(count: int) -> bytes:
    """What services write, line by line: JSON of which most is alike."""
    chance = random.Random(1)
    return b"".join(
        json.dumps(
            {
                "timestamp": f"2026-01-01T00:00:{i % 60:02}.{i % 1000:03}Z",
                "level": "INFO",
                "logger": "com.example.orders.checkout.OrderService",
                "message": "order was accepted and sent on to the warehouse",
                "status": 200,
                "order": chance.randrange(10_000),
                "host": f"orders-{i % 8}.eu-central-1.internal",
            }
        ).encode()
        for i in range(count)
    )


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_full_of_log_lines_passes_where_batches_are_opened(
    agent: FrazilDev, codec: Codec
) -> None:
    """A compacted topic's records are looked at. Of such lines gzip makes a 26th, zstd the same, LZ4 a
    17th and snappy a 10th; where lines repeat within its window zstd makes a 900th, and up to 64 times
    `max.message.bytes` pass."""
    topic = f"lines-{codec.name.lower()}"
    create(agent, topic, cleanup_policy="compact")
    lines = log_lines(4_000)
    records = [Record(timestamp=1, key=b"%d" % i, value=lines) for i in range(60)]
    batch = build_batch(records, codec=codec)
    while len(batch) > MESSAGE_MAX_BYTES:
        records = records[: len(records) // 2]
        batch = build_batch(records, codec=codec)
    print(f"{codec.name}: {len(batch):,} bytes become {len(records) * len(lines):,}")
    assert error_of_first_request(agent, topic, batch) == ErrorCode.NONE


def test_a_member_that_subscribes_to_two_thousand_topics_joins(agent: FrazilDev) -> None:
    names = [f"team-{i % 50}.service-{i % 200}.events-{i}" for i in range(2_000)]
    metadata = b"\0\0" + len(names).to_bytes(4)
    metadata += b"".join(len(name).to_bytes(2) + name.encode() for name in names) + b"\xff" * 4
    protocols = [
        messages.JoinGroupRequestProtocol(name=name, metadata=metadata)
        for name in ("range", "roundrobin")
    ]

    def join(client: Connection, member: str) -> messages.JoinGroupResponse:
        request = messages.JoinGroupRequest(
            group_id="subscribed",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type="consumer",
            protocols=protocols,
        )
        answer: messages.JoinGroupResponse = client.ask(apis.JOIN_GROUP, JOIN_VERSION, request)
        return answer

    with connection(agent) as client:
        answer = join(client, "")
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = join(client, answer.member_id)
        assert answer.error_code == ErrorCode.NONE, answer
        assert bytes(answer.members[0].metadata) == metadata


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[FrazilDev]:
    """An agent that takes none of a busy machine's pauses for a stall: it refuses no change as stale."""
    with FrazilDev(tmp_path, "--set", "stall.ms=60000") as agent:
        yield agent


def test_thousands_of_topics_are_created_listed_and_described(patient: FrazilDev) -> None:
    names = [f"many-{i}" for i in range(3_000)]
    with connection(patient) as client:
        for first in range(0, len(names), 1_000):
            wanted = requests.create_topics(dict.fromkeys(names[first : first + 1_000], 1))
            wanted.timeout_ms = 30_000
            answer = client.ask(apis.CREATE_TOPICS, CREATE_TOPICS_VERSION, wanted)
            assert {topic.error_code for topic in answer.topics} == {ErrorCode.NONE}
    by_name = [messages.MetadataRequestTopic(name=name) for name in names]
    for asked in (None, by_name):
        # The first request of a connection, as of clients that know the versions already.
        with connection(patient) as client:
            request = messages.MetadataRequest(topics=asked)
            answer = client.ask(apis.METADATA, METADATA_VERSION, request)
            found = {topic.name for topic in answer.topics if topic.error_code == ErrorCode.NONE}
            assert found >= set(names)
    resources = [
        messages.DescribeConfigsResource(resource_type=2, resource_name=name)
        for name in names[:1_000]
    ]
    with connection(patient) as client:
        described = client.ask(
            apis.DESCRIBE_CONFIGS,
            DESCRIBE_CONFIGS_VERSION,
            messages.DescribeConfigsRequest(resources=resources),
        )
    assert len(described.results) == len(resources)
    assert {result.error_code for result in described.results} == {ErrorCode.NONE}


def test_a_transaction_of_librdkafka_spans_a_thousand_partitions(agent: FrazilDev) -> None:
    create(agent, "wide-transaction", 1_000)
    producer = Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": "wide"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    failed: list[object] = []
    for index in range(1_000):
        producer.produce(
            "wide-transaction",
            b"v",
            partition=index,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    producer.commit_transaction(PATIENCE_S)
    assert not failed


def test_a_reader_that_pauses_gets_the_whole_answer_and_holds_up_nobody(agent: FrazilDev) -> None:
    create(agent, "paused", 32)
    create(agent, "beside")
    batch = batch_of(MESSAGE_MAX_BYTES)
    with connection(agent) as reader, connection(agent) as other:
        assert errors_of(other, {("paused", i): batch for i in range(12)}) == {ErrorCode.NONE}
        asked = requests.fetch(
            {("paused", i): 0 for i in range(12)}, max_bytes=50 * MiB, partition_max_bytes=50 * MiB
        )
        reader.send(apis.FETCH, FETCH_VERSION, asked)
        for _ in range(20):  # Meanwhile.
            small = build_batch([Record(timestamp=1, key=None, value=b"v")])
            assert errors_of(other, {("beside", 0): small}) == {ErrorCode.NONE}
        rows = requests.rows_of(reader.receive())
        sizes = [len(row.records or b"") for row in rows.values()]
        assert {*sizes} <= {0, MESSAGE_MAX_BYTES}
        assert 6 * MiB < sum(sizes) <= 8 * MiB
        assert errors_of(reader, {("beside", 0): small}) == {ErrorCode.NONE}


def idle_closed_after(agent: FrazilDev, before: float) -> float:
    """How many connections were closed since they were idle, once these are more than `before`."""
    deadline = time.monotonic() + PATIENCE_S
    name = ("frazil_connections_closed", "idle")
    while (closed := metrics(agent.http_port).get(name, 0.0)) <= before:
        assert time.monotonic() < deadline, "no connection was closed"
        time.sleep(0.05)
    return closed


def test_a_client_whose_idle_connection_was_closed_goes_on_without_an_error(
    tmp_path: Path,
) -> None:
    """As in Kafka (connections.max.idle.ms, 10 minutes; here half a second)."""
    with FrazilDev(tmp_path, "--set", "connections.max.idle.ms=500") as agent:
        create(agent, "idle")
        told: list[object] = []
        closed = 0.0
        producer = Producer({"bootstrap.servers": agent.bootstrap})
        for _ in range(3):
            producer.produce("idle", b"v", on_delivery=lambda error, _: told.append(error))
            assert producer.flush(PATIENCE_S) == 0
            closed = idle_closed_after(agent, closed)
        assert told == [None] * 3


@pytest.mark.real_loop
async def test_java_sends_equal_records_and_large_ones(agent: FrazilDev) -> None:
    program = Path(__file__).parent / "programs" / "Limits.java"
    java = install.java_program(program, install.kafka_jars())
    told = await run([*java, agent.bootstrap])
    assert set(told) == {"equal_records", "large_records"}
