"""Real clients log in by SASL: each mechanism, wrong passwords, users that are changed under load."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from broker.cli.admin_client import AgentPlace
from broker.cli.log.log_tail import tail
from tests.clients.bounded import until
from tests.clients.kafka_tools import CONFIGS, TOPICS, KafkaTools
from tests.clients.sasl import (
    FIRST_USER,
    MECHANISMS,
    PLAIN_USERS,
    SETTINGS,
    SaslCluster,
    by_aiokafka,
    by_kafka_python,
    by_librdkafka,
    client_properties,
    java,
    librdkafka_config,
    librdkafka_error,
)
from tests.kit.certificates import Authority
from tests.parts import install
from tests.parts.servers import EtcdServer, MinioServer, get_text

pytestmark = pytest.mark.integration

INVALID = "due to invalid credentials with SASL mechanism"
PASSWORD = "alice-secret"
BY_CLIENT = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[SaslCluster]:
    folder = tmp_path_factory.mktemp("sasl")
    with SaslCluster(folder, etcd, minio, *SETTINGS, agents=2) as agents:
        agents.until_groups_settle()
        yield agents
        assert agents.stop() == [0, 0]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's tools log in with this file."""
    return client_properties(tmp_path_factory.mktemp("admin"), *FIRST_USER)


@pytest.fixture(scope="module")
def alice(cluster: SaslCluster, tools: KafkaTools, admin: str) -> str:
    """A user of both mechanisms, made by Kafka's own tool."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        told = alter(tools, cluster, admin, "alice", f"{mechanism}=[password={PASSWORD}]")
        assert "Completed updating config for user alice" in told
    return "alice"


def alter(tools: KafkaTools, cluster: SaslCluster, admin: str, user: str, added: str) -> str:
    words = ["--command-config", admin, "--alter", "--entity-type", "users", "--entity-name", user]
    return tools.run(CONFIGS, cluster.bootstrap, *words, "--add-config", added)


def users(cluster: SaslCluster, admin: str) -> str:
    """What `frazil user list` says, which logs in by the same file as Kafka's tools."""
    command = str(Path(sys.executable).parent / "frazil")
    words = ["user", "list", "--bootstrap", cluster.bootstrap, "--command-config", admin]
    return subprocess.run([command, *words], capture_output=True, text=True, check=True).stdout


def credentials(user: str, mechanism: str) -> tuple[str, str]:
    """Name and password for a mechanism."""
    if mechanism == "PLAIN":
        return next(iter(PLAIN_USERS.items()))
    return user, PASSWORD


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", BY_CLIENT)
def test_a_client_logs_in_writes_and_reads(
    client: str, mechanism: str, cluster: SaslCluster, alice: str
) -> None:
    user, password = credentials(alice, mechanism)
    topic = f"{client}-{mechanism}"
    for agent in cluster.agents:
        assert BY_CLIENT[client](agent.bootstrap, topic, mechanism, user, password) == [
            user.encode()
        ]


def test_the_java_client_logs_in_or_is_told_why_not(cluster: SaslCluster, alice: str) -> None:
    words: list[str] = []
    expected: list[str] = []
    for mechanism in MECHANISMS:
        user, password = credentials(alice, mechanism)
        refused = "Authentication failed during authentication " + f"{INVALID} {mechanism}"
        if mechanism == "PLAIN":
            refused = "Authentication failed: Invalid username or password"
        words += [mechanism, user, password]
        expected.append(f"{mechanism} {user} ok")
        for name, wrong in ((user, "wrong"), ("nobody", password)):
            words += [mechanism, name, wrong]
            expected.append(f"{mechanism} {name} SaslAuthenticationException: {refused}")
    assert java(cluster, "java-logins", *words) == expected


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", ["password", "user"])
def test_librdkafka_is_told_that_it_could_not_log_in(
    wrong: str, mechanism: str, cluster: SaslCluster, alice: str
) -> None:
    user, password = credentials(alice, mechanism)
    named = ("nobody", password) if wrong == "user" else (user, "wrong")
    told = librdkafka_error(cluster.bootstrap, mechanism, *named)
    assert told is not None
    assert told[0] == KafkaError._AUTHENTICATION
    assert ("Invalid username or password" if mechanism == "PLAIN" else INVALID) in told[1]


def test_a_client_without_sasl_is_not_served(cluster: SaslCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 2_000})
    with pytest.raises(Exception, match=r"_TRANSPORT|_TIMED_OUT|transport|timed out"):
        producer.list_topics(timeout=3)


def test_kafkas_tool_describes_users_and_deletes_them(
    cluster: SaslCluster, tools: KafkaTools, admin: str
) -> None:
    words = ["--command-config", admin, "--entity-type", "users", "--entity-name", "carol"]
    alter(tools, cluster, admin, "carol", "SCRAM-SHA-256=[iterations=8192,password=x]")
    described = tools.run(CONFIGS, cluster.bootstrap, *words, "--describe")
    assert "SCRAM credential configs for user-principal 'carol' are" in described
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "carol: SCRAM-SHA-256 (8192)" in users(cluster, admin)
    deleted = tools.run(
        CONFIGS, cluster.bootstrap, *words, "--alter", "--delete-config", "SCRAM-SHA-256"
    )
    assert "Completed updating config for user carol" in deleted
    again = tools.run(
        CONFIGS, cluster.bootstrap, *words, "--alter", "--delete-config", "SCRAM-SHA-256"
    )
    assert "does not exist" in again or "Invalid config(s): SCRAM-SHA-256" in again
    assert "carol" not in users(cluster, admin)


def test_kafkas_tools_log_in_as_plain_and_by_either_scram(
    cluster: SaslCluster, tools: KafkaTools, alice: str, tmp_path: Path
) -> None:
    for mechanism in MECHANISMS:
        file = client_properties(tmp_path, *credentials(alice, mechanism), mechanism)
        told = tools.run(TOPICS, cluster.bootstrap, "--command-config", file, "--list")
        assert "Exception" not in told


def test_a_password_that_is_changed_or_deleted_under_load_counts_for_whoever_logs_in_next(
    cluster: SaslCluster, tools: KafkaTools, admin: str
) -> None:
    """Those that are logged in go on; who comes with the old password is refused."""
    topic, mechanism = "under-load", "SCRAM-SHA-512"
    alter(tools, cluster, admin, "dora", f"{mechanism}=[password=old]")
    assert by_librdkafka(cluster.bootstrap, topic, mechanism, "dora", "old") == [b"dora"]
    failures: list[object] = []
    done = threading.Event()
    writer = threading.Thread(
        target=write_until, args=(done, cluster.bootstrap, topic, failures), daemon=True
    )
    writer.start()
    try:
        alter(tools, cluster, admin, "dora", f"{mechanism}=[password=new]")
        for agent in cluster.agents:
            assert by_librdkafka(agent.bootstrap, topic, mechanism, "dora", "new") == [b"dora"]
            refused = librdkafka_error(agent.bootstrap, mechanism, "dora", "old")
            assert refused is not None
            assert refused[0] == KafkaError._AUTHENTICATION
        words = ["--entity-type", "users", "--entity-name", "dora", "--delete-config", mechanism]
        tools.run(CONFIGS, cluster.bootstrap, "--command-config", admin, "--alter", *words)
        for agent in cluster.agents:
            # An agent hears of it a moment after the one that was asked.
            refused = until(
                lambda at=agent.bootstrap: librdkafka_error(at, mechanism, "dora", "new"),
                lambda told: told is not None,
            )
            assert refused is not None
            assert refused[0] == KafkaError._AUTHENTICATION
    finally:
        done.set()
        writer.join(60)
    assert failures == []


def write_until(done: threading.Event, bootstrap: str, topic: str, failures: list[object]) -> None:
    producer = Producer(librdkafka_config(bootstrap, "SCRAM-SHA-512", "dora", "old"))

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    while not done.is_set():
        producer.produce(topic, value=b"dora", on_delivery=delivered)
        producer.poll(0.01)
    if producer.flush(30):
        failures.append("not all was written")


def test_clients_authenticate_again_before_their_sessions_end(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> None:
    """KIP-368: Java's client renews at 85 to 95 % of a session's life, on the same connection."""
    more = ("connections.max.reauth.ms=10000",)
    folder = tmp_path_factory.mktemp("sasl-again")
    with SaslCluster(folder, etcd, minio, *SETTINGS, *more, agents=1) as agents:
        began_s = time.monotonic()
        assert java(agents, "again", "SCRAM-SHA-512", *FIRST_USER, seconds=25) == [
            f"SCRAM-SHA-512 {FIRST_USER[0]} ok"
        ]
        assert time.monotonic() - began_s > 25
        (agent,) = agents.agents
        metrics = get_text(agent.http_port, "/metrics")
        assert 'reason="expired"' not in metrics
        assert 'outcome="refused"' not in metrics


def test_no_password_is_in_what_agents_tell(cluster: SaslCluster, alice: str) -> None:
    """Their output, their metrics, and the metadata log as people see it."""
    secrets = [PASSWORD, FIRST_USER[1], *PLAIN_USERS.values()]
    for agent in cluster.agents:
        place = AgentPlace(f"http://127.0.0.1:{agent.http_port}")
        entries = "\n".join(tail(place, after=0, follow=False, as_json=True))
        assert '"command": "UpsertScramCredential"' in entries
        output = agent.child.log.read_text(errors="replace")
        for told in (entries, output, get_text(agent.http_port, "/metrics")):
            assert not [secret for secret in secrets if secret in told]
        assert "stored_key_bytes" in entries
        assert '"stored_key"' not in entries


def test_rights_are_those_of_the_user_who_has_logged_in(
    tmp_path_factory: pytest.TempPathFactory,
    etcd: EtcdServer,
    minio: MinioServer,
    tools: KafkaTools,
    admin: str,
) -> None:
    """Who may do nothing at first may write where an ACL says so, and nobody else may."""
    topic, mechanism = "allowed", "SCRAM-SHA-256"
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    more = (f"authorizer.class.name={authorizer}", f"super.users=User:{FIRST_USER[0]}")
    folder = tmp_path_factory.mktemp("sasl-rights")
    with SaslCluster(folder, etcd, minio, *SETTINGS, *more, agents=1) as agents:
        for user in ("erin", "frank"):
            alter(tools, agents, admin, user, f"{mechanism}=[password={PASSWORD}]")
        created = tools.run(
            TOPICS, agents.bootstrap, "--command-config", admin, "--create", "--topic", topic
        )
        assert "Created topic allowed" in created
        refused = f"{mechanism} erin TopicAuthorizationException: "
        (told,) = java(agents, topic, mechanism, "erin", PASSWORD)
        assert told.startswith(refused)
        allow(agents, admin, "erin", topic)
        assert java(agents, topic, mechanism, "erin", PASSWORD) == [f"{mechanism} erin ok"]
        (told,) = java(agents, topic, mechanism, "frank", PASSWORD)
        assert told.startswith(refused.replace("erin", "frank"))


def allow(cluster: SaslCluster, admin: str, user: str, topic: str) -> None:
    command = str(Path(sys.executable).parent / "frazil")
    for operation in ("read", "write"):
        words = ["acl", "add", "--bootstrap", cluster.bootstrap, "--command-config", admin]
        words += ["--allow-principal", f"User:{user}", "--operation", operation, "--topic", topic]
        subprocess.run([command, *words], capture_output=True, text=True, check=True)


def test_sasl_goes_over_tls_as_well(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> None:
    """The user counts, and no certificate is asked for."""
    folder = tmp_path_factory.mktemp("sasl-tls")
    authority = Authority()
    (folder / "authority.pem").write_text(authority.pem)
    (folder / "agent.pem").write_text(authority.sign("agent").pem)
    more = (
        "listener.security.protocol.map=SASL_PLAINTEXT:SASL_SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'agent.pem'}",
    )
    with SaslCluster(folder, etcd, minio, *SETTINGS, *more, agents=1) as agents:
        for mechanism, user in (("SCRAM-SHA-512", FIRST_USER), ("PLAIN", credentials("", "PLAIN"))):
            config = librdkafka_config(agents.bootstrap, mechanism, *user) | {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(folder / "authority.pem"),
            }
            producer = Producer(config)
            producer.produce("over-tls", value=user[0])
            assert producer.flush(30) == 0


def kafkajs(cluster: SaslCluster, mechanism: str, user: str, password: str) -> str:
    program = Path(__file__).parent / "js" / "login.js"
    done = subprocess.run(
        [
            *(install.node(), str(program), cluster.bootstrap, f"kafkajs-{mechanism}"),
            *(mechanism, user, password),
        ],
        env={
            "NODE_PATH": str(install.kafkajs() / "node_modules"),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkajs_logs_in_or_is_told_why_not(
    mechanism: str, cluster: SaslCluster, alice: str
) -> None:
    user, password = credentials(alice, mechanism)
    assert kafkajs(cluster, mechanism, user, password) == "ok"
    told = kafkajs(cluster, mechanism, user, "wrong")
    assert told.startswith("KafkaJSSASLAuthenticationError")
    assert "authentication failed" in told
