"""Rights against real clients: kafka-acls.sh, librdkafka, Kafka's Java clients, and `frazil acl`.

Without authentication everybody is User:ANONYMOUS, so the cluster lets everybody do what they like
with what has no ACL, and topics are closed one by one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from broker.cli.main import main
from protocol import apis
from tests.clients.conftest import SETTINGS
from tests.clients.kafka_tools import ACLS, TOPICS, KafkaTools
from tests.clients.raw import ask
from tests.kit import requests
from tests.parts.servers import EtcdServer, FrazilCluster, FrazilDev, MinioServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

RIGHTS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
EVERYBODY = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    settings = [word for setting in (*SETTINGS, *RIGHTS) for word in ("--set", setting)]
    with FrazilDev(tmp_path_factory.mktemp("guarded"), *settings) as agent:
        yield agent
        assert agent.stop() == 0


@pytest.fixture(scope="module")
def admin(guarded: FrazilDev) -> AdminClient:
    return AdminClient({"bootstrap.servers": guarded.bootstrap})


def write(bootstrap: str, topic: str) -> KafkaError | None:
    """What a producer of librdkafka hears of one record."""
    heard: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"value", on_delivery=lambda error, _: heard.append(error))
    assert producer.flush(30) == 0
    return heard[0]


def read(bootstrap: str, topic: str, group: str) -> list[object]:
    """What a consumer of librdkafka gets first: a value, or the code of an error."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    error = message.error()
    return [message.value() if error is None else error.code()]


def test_kafkas_tool_prints_what_it_has_added_and_removed(
    tools: KafkaTools, guarded: FrazilDev
) -> None:
    what = ("--topic", "printed", "--producer", "--allow-principal", "User:alice")
    added = tools.run(ACLS, guarded.bootstrap, "--add", *what)
    assert "Exception" not in added
    listed = tools.run(ACLS, guarded.bootstrap, "--list", "--topic", "printed")
    head = (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=printed,"
        " patternType=LITERAL)`:"
    )
    assert head in listed
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        row = f"(principal=User:alice, host=*, operation={operation}, permissionType=ALLOW)"
        assert row in listed
    removed = tools.run(ACLS, guarded.bootstrap, "--remove", "--force", *what)
    assert "Exception" not in removed
    assert head not in tools.run(ACLS, guarded.bootstrap, "--list", "--topic", "printed")


def test_kafkas_tool_finds_prefixes_that_apply_to_a_name(
    tools: KafkaTools, guarded: FrazilDev
) -> None:
    bootstrap = guarded.bootstrap
    prefix = ("--topic", "pre", "--resource-pattern-type", "prefixed")
    who = ("--allow-principal", "User:carol", "--operation", "Read")
    assert "Exception" not in tools.run(ACLS, bootstrap, "--add", *prefix, *who)
    matching = ("--topic", "prefixed", "--resource-pattern-type", "match")
    assert "name=pre, patternType=PREFIXED" in tools.run(ACLS, bootstrap, "--list", *matching)
    assert "Exception" not in tools.run(ACLS, bootstrap, "--remove", "--force", *prefix, *who)


def test_a_producer_of_librdkafka_is_refused_and_let_in_at_once(
    guarded: FrazilDev, admin: AdminClient
) -> None:
    create_topic(admin, "closed-to-writers", 1)
    denied = AclBinding(
        ResourceType.TOPIC,
        "closed-to-writers",
        ResourcePatternType.LITERAL,
        EVERYBODY,
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    allowed = AclBinding(
        ResourceType.TOPIC,
        "closed-to-writers",
        ResourcePatternType.LITERAL,
        EVERYBODY,
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([denied, allowed]).values():
        future.result(30)
    error = write(guarded.bootstrap, "closed-to-writers")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    filters = [
        AclBindingFilter(
            ResourceType.TOPIC,
            "closed-to-writers",
            ResourcePatternType.LITERAL,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.DENY,
        )
    ]
    (deleted,) = [future.result(30) for future in admin.delete_acls(filters).values()]
    assert deleted == [denied]
    assert write(guarded.bootstrap, "closed-to-writers") is None


def test_a_consumer_of_librdkafka_is_refused_a_topic_and_a_group(
    guarded: FrazilDev, admin: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(admin, "closed-to-readers", 1)
    bootstrap = guarded.bootstrap
    assert write(bootstrap, "closed-to-readers") is None
    topic = ["--topic", "closed-to-readers", "--operation", "Read"]
    change = ["--bootstrap", bootstrap, "--deny-principal", EVERYBODY, "--allow-principal"]
    assert main(["acl", "add", *change, "User:x", *topic]) == 0
    # Nothing else of it is allowed any more, since it has ACLs now.
    assert read(bootstrap, "closed-to-readers", "g1") == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert main(["acl", "remove", *change, "User:x", *topic]) == 0
    assert read(bootstrap, "closed-to-readers", "g1") == [b"value"]
    group = ["--group", "g1", "--operation", "Read"]
    assert main(["acl", "add", *change, "User:x", *group]) == 0
    assert read(bootstrap, "closed-to-readers", "g1") == [KafkaError.GROUP_AUTHORIZATION_FAILED]
    assert main(["acl", "list", "--bootstrap", bootstrap, "--group", "g1"]) == 0
    printed = capsys.readouterr().out
    assert "GROUP" in printed
    assert "DENY" in printed


def test_javas_admin_client_does_not_see_what_it_may_not_describe(
    tools: KafkaTools, guarded: FrazilDev, admin: AdminClient
) -> None:
    create_topic(admin, "seen-by-nobody", 1)
    bootstrap = guarded.bootstrap
    assert "seen-by-nobody" in tools.run(TOPICS, bootstrap, "--list")
    what = ["--topic", "seen-by-nobody", "--operation", "Describe"]
    who = ["--bootstrap", bootstrap, "--allow-principal", "User:x"]
    assert main(["acl", "add", *who, *what]) == 0
    assert "seen-by-nobody" not in tools.run(TOPICS, bootstrap, "--list")
    printed = tools.run(TOPICS, bootstrap, "--describe", "--topic", "seen-by-nobody")
    assert "seen-by-nobody" not in printed.replace("Topic 'seen-by-nobody' does not exist", "")
    deleted = tools.run(TOPICS, bootstrap, "--delete", "--topic", "seen-by-nobody")
    assert "does not exist" in deleted or "TopicAuthorizationException" in deleted
    assert main(["acl", "remove", *who, *what]) == 0
    assert "seen-by-nobody" in tools.run(TOPICS, bootstrap, "--list")


def test_a_change_is_in_force_on_each_of_three_agents_when_it_is_answered(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    with FrazilCluster(tmp_path / "three", etcd, minio, *RIGHTS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create_topic(admin, "logs", 1)
        denied = AclBinding(
            ResourceType.TOPIC,
            "logs",
            ResourcePatternType.LITERAL,
            EVERYBODY,
            "*",
            AclOperation.DESCRIBE,
            AclPermissionType.DENY,
        )
        fitting = AclBindingFilter(
            ResourceType.TOPIC,
            "logs",
            ResourcePatternType.LITERAL,
            EVERYBODY,
            "*",
            AclOperation.DESCRIBE,
            AclPermissionType.DENY,
        )
        addresses = [agent.bootstrap for agent in cluster.agents]
        for _ in range(10):
            admin.create_acls([denied])[denied].result(30)
            assert [described(each) for each in addresses] == [29, 29, 29]
            admin.delete_acls([fitting])[fitting].result(30)
            assert [described(each) for each in addresses] == [0, 0, 0]


def described(address: str) -> int:
    """The error code of the topic, as one agent tells it."""
    (topic,) = ask(address, apis.METADATA, 9, requests.metadata("logs")).topics
    code: int = topic.error_code
    return code
