"""One agent that is four nodes to librdkafka, and one broker to everybody else."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from tests.clients.kafka_tools import (
    ALL_GROUPS,
    BROKER_API_VERSIONS,
    CONFIGS,
    LOG_DIRS,
    TOPICS,
    TRANSACTIONS,
    KafkaTools,
    columns,
    table,
)
from tests.clients.records import in_order, records
from tests.clients.test_confluent import consume, produce
from tests.parts import install
from tests.parts.servers import FrazilDev, get_text
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

NODES = 4
STRIDE = 1_000_000


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    nodes = ("--set", f"frazil.nodes.per.agent={NODES}")
    with FrazilDev(tmp_path_factory.mktemp("nodes"), *nodes) as agent:
        yield agent
        assert agent.stop() == 0


@pytest.fixture(scope="module")
def admin(agent: FrazilDev) -> AdminClient:
    return AdminClient({"bootstrap.servers": agent.bootstrap})


def connections(agent: FrazilDev) -> int:
    found = re.search(
        r"^frazil_connections (\S+)$", get_text(agent.http_port, "/metrics"), re.MULTILINE
    )
    assert found is not None
    return int(float(found[1]))


def test_a_producer_of_librdkafka_has_a_connection_to_each_node(
    agent: FrazilDev, admin: AdminClient
) -> None:
    create_topic(admin, "wide", 64)
    producer = Producer({"bootstrap.servers": agent.bootstrap, "enable.idempotence": True})
    for partition in range(64):
        producer.produce("wide", b"x", partition=partition)
    assert producer.flush(30) == 0
    for topic in ("wide", None):  # Of one topic, and of all.
        check_nodes(producer, agent, topic)
    assert connections(agent) >= NODES


def check_nodes(producer: Producer, agent: FrazilDev, topic: str | None) -> None:
    """The producer is led to all nodes alike, each at the agent's address."""
    found = producer.list_topics(topic, timeout=30)
    assert sorted(found.brokers) == [number * STRIDE for number in range(NODES)]
    assert {broker.port for broker in found.brokers.values()} == {agent.port}
    leaders = Counter(row.leader for row in found.topics["wide"].partitions.values())
    assert leaders == dict.fromkeys(found.brokers, 64 // NODES)


def test_what_a_producer_writes_by_all_nodes_is_read_back_whole_and_in_order(
    agent: FrazilDev, admin: AdminClient
) -> None:
    create_topic(admin, "read-back", 64)
    sent = records(20_000)
    produce(agent.bootstrap, "read-back", "none", sent)
    assert consume(agent.bootstrap, "read-back", len(sent)) == in_order(sent)


def test_transactions_over_all_nodes_are_whole_or_not_at_all(
    agent: FrazilDev, admin: AdminClient
) -> None:
    create_topic(admin, "transacted", 16)
    producer = Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": "over-nodes"})
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        for partition in range(16):
            producer.produce("transacted", str(number), partition=partition)
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.flush(30)  # What is aborted has been written, too.
            producer.abort_transaction(30)
    reader = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "committed"})
    reader.assign([TopicPartition("transacted", partition, 0) for partition in range(16)])
    read = []
    while len(read) < 6 * 16:
        messages = reader.consume(6 * 16 - len(read), timeout=30)
        assert messages, f"only {len(read)} records came"
        read += [(message.partition(), int(message.value())) for message in messages]
    assert sorted(read) == [(each, number) for each in range(16) for number in (1, 2, 4, 5, 7, 8)]
    assert not reader.consume(1, timeout=1)
    reader.close()


def test_a_consumer_of_librdkafka_fetches_from_one_node(
    agent: FrazilDev, admin: AdminClient
) -> None:
    create_topic(admin, "fetched", 64)
    reader = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "fetching"})
    found = reader.list_topics("fetched", timeout=30)
    assert len(found.brokers) == NODES
    assert {row.leader for row in found.topics["fetched"].partitions.values()} == {0}
    reader.close()


def test_a_group_is_listed_once(agent: FrazilDev, admin: AdminClient, tools: KafkaTools) -> None:
    create_topic(admin, "grouped", 1)
    offsets = ConsumerGroupTopicPartitions("once", [TopicPartition("grouped", 0, 5)])
    admin.alter_consumer_group_offsets([offsets])["once"].result(30)
    assert len(admin.list_topics(timeout=30).brokers) == NODES  # And it asks each of them.
    listed = admin.list_consumer_groups().result()
    assert not listed.errors
    assert [group.group_id for group in listed.valid].count("once") == 1
    printed = tools.run(ALL_GROUPS, agent.bootstrap, "--list")
    assert [row["GROUP"] for row in table(printed)].count("once") == 1


def test_a_node_has_the_configs_of_its_agent(admin: AdminClient) -> None:
    told = []
    for node in ("0", str(3 * STRIDE)):
        resource = ConfigResource(ResourceType.BROKER, node)
        configs = admin.describe_configs([resource])[resource].result(30)
        told.append({name: entry.value for name, entry in configs.items()})
    assert told[0] == told[1]


def test_an_admin_client_finds_leaders_whatever_it_has_asked_before(
    agent: FrazilDev, admin: AdminClient
) -> None:
    """It keeps leaders of one answer, and looks for them among the brokers of another."""
    create_topic(admin, "looked-up", 8)
    admin.list_topics("looked-up", timeout=30)
    for partition in range(8):
        asked = {TopicPartition("looked-up", partition): OffsetSpec.latest()}
        (future,) = admin.list_offsets(asked).values()
        assert future.result(30).offset == 0


def test_kafkas_tools_see_one_broker_and_count_nothing_twice(
    agent: FrazilDev, admin: AdminClient, tools: KafkaTools
) -> None:
    create_topic(admin, "seen", 8)
    producer = Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": "seen-once"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(8):
        producer.produce("seen", b"x", partition=partition)
    producer.commit_transaction(30)

    versions = tools.run(BROKER_API_VERSIONS, agent.bootstrap)
    assert re.findall(r"\(id: (\d+) ", versions) == ["0"], versions
    described = tools.run(TOPICS, agent.bootstrap, "--describe", "--topic", "seen")
    assert (
        re.findall(r"Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)", described)
        == [("0", "0", "0")] * 8
    ), described
    transactions = columns(tools.run(TRANSACTIONS, agent.bootstrap, "list"))
    ids = [row["TransactionalId"] for row in transactions]
    assert ids.count("seen-once") == 1, transactions
    dirs = tools.run(LOG_DIRS, agent.bootstrap, "--describe", "--topic-list", "seen")
    (told,) = [json.loads(line) for line in dirs.splitlines() if line.startswith("{")]
    (broker,) = told["brokers"]
    (folder,) = broker["logDirs"]
    assert sorted(row["partition"] for row in folder["partitions"]) == sorted(
        f"seen-{partition}" for partition in range(8)
    )
    arguments = ("--entity-type", "brokers", "--entity-name", "0", "--describe", "--all")
    assert "num.partitions=" in tools.run(CONFIGS, agent.bootstrap, *arguments)


def test_the_java_client_reads_back_what_it_wrote(agent: FrazilDev) -> None:
    program = Path(__file__).parent / "java" / "RoundTrip.java"
    done = subprocess.run(
        [*install.java_program(program, install.kafka_jars()), agent.bootstrap, "2000", "none"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "none equal 2000" in done.stdout
