"""Real clients log in by OAUTHBEARER: tokens by an issuer over HTTPS, refusals, keys and tokens that change."""

import asyncio
import contextlib
import json
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.net.sasl.oauth import AbstractTokenProvider

from broker.cli.kafka_client import KafkaClient, addresses
from broker.cli.main import main
from broker.client.bearer_tokens import BearerTokens
from broker.client.client_settings import client_settings_of
from broker.client.token_settings import BearerLogin
from tests.clients.bounded import until
from tests.clients.commands import frazil
from tests.clients.sasl import SaslCluster, java, round_trip_by_aiokafka
from tests.kit.issuer import CLIENT_ID, CLIENT_SECRET, IssuerServer
from tests.kit.tokens import EcIssuer, RsaIssuer, key_set, unsigned
from tests.parts.process import free_port
from tests.parts.servers import EtcdServer, MinioServer, get_text

pytestmark = pytest.mark.integration

ISSUER = "https://issuer.example"
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    ".OAuthBearerUnsecuredValidatorCallbackHandler"
)
REFRESH_MS = 300
TRIALS = "TRIALS"
"""A listener beside the first one."""
FIRST, SECOND = RsaIssuer(), EcIssuer("second")


def claims(user: str = "alice", *, seconds: int = 600, **more: Any) -> dict[str, Any]:
    now_s = int(time.time())
    times = {"iat": now_s - 1, "exp": now_s + seconds}
    return {"sub": user, "iss": ISSUER, "aud": ["kafka"]} | times | more


@pytest.fixture(scope="module")
def jwks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IssuerServer]:
    server = IssuerServer(tmp_path_factory.mktemp("issuer"), key_set(FIRST))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def trials() -> str:
    """Where clients with tokens without a signature are told to connect."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    etcd: EtcdServer,
    minio: MinioServer,
    jwks: IssuerServer,
    trials: str,
) -> Iterator[SaslCluster]:
    trust = f'ssl.truststore.location="{jwks.trusted}" ssl.truststore.type="PEM"'
    oauth = "listener.name.sasl_plaintext.oauthbearer.sasl"
    settings = (
        "num.partitions=1",
        "puts.per.second=1000",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"{oauth}.jaas.config={BEARER_MODULE} required {trust};",
        f"{oauth}.oauthbearer.jwks.endpoint.url={jwks.keys_url}",
        f"{oauth}.oauthbearer.jwks.endpoint.refresh.ms={REFRESH_MS}",
        f"{oauth}.oauthbearer.expected.audience=kafka",
        f"{oauth}.oauthbearer.expected.issuer={ISSUER}",
        f"{oauth}.oauthbearer.clock.skew.seconds=0",
        f"listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,{TRIALS}:SASL_PLAINTEXT",
        f"listener.name.{TRIALS.lower()}.oauthbearer.sasl.server.callback.handler.class={UNSECURED}",
    )
    folder = tmp_path_factory.mktemp("oauth")
    made = SaslCluster(folder, etcd, minio, *settings, agents=1)
    (agent,) = made.agents
    agent.child.argv = [
        f"{word},{TRIALS}://{trials}" if word.startswith("listeners=") else word
        for word in agent.child.argv
    ]
    with made as agents:
        yield agents
        assert agents.stop() == [0]


# Each writes a record and reads it back.


def librdkafka_config(
    bootstrap: str, token: Callable[[], str], *, early_s: int = 0, **more: Any
) -> dict[str, Any]:
    """`early_s`: the client is told that a token ends by so much sooner than it does."""

    def told(_config: str) -> tuple[str, float]:
        made = token()
        part = made.split(".")[1]
        said = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return made, float(said["exp"]) - early_s

    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": told,
    } | more


def by_librdkafka(bootstrap: str, topic: str, token: Callable[[], str]) -> list[bytes]:
    producer = Producer(librdkafka_config(bootstrap, token))
    producer.produce(topic, value=b"a")
    assert producer.flush(30) == 0
    config = librdkafka_config(bootstrap, token)
    consumer = Consumer({**config, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return [message.value()]
    finally:
        consumer.close()


def by_kafka_python(bootstrap: str, topic: str, token: Callable[[], str]) -> list[bytes]:
    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return token()

    config = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    producer = KafkaProducer(**config, max_block_ms=20_000)
    try:
        producer.send(topic, value=b"a").get(timeout=30)
    finally:
        producer.close(timeout=5)
    consumer = KafkaConsumer(**config, enable_auto_commit=False)
    try:
        partition = PythonPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        polled = consumer.poll(timeout_ms=30_000, max_records=1)
        return [message.value for batch in polled.values() for message in batch]
    finally:
        consumer.close()


def by_aiokafka(bootstrap: str, topic: str, token: Callable[[], str]) -> list[bytes]:
    class Provider(AsyncTokenProvider):
        async def token(self) -> str:
            return token()

    config = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    return round_trip_by_aiokafka(config, topic, b"a")


BY_CLIENT = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


@pytest.mark.parametrize("client", BY_CLIENT)
def test_a_client_logs_in_writes_and_reads(client: str, cluster: SaslCluster) -> None:
    made = BY_CLIENT[client](cluster.bootstrap, client, lambda: FIRST.token(claims()))
    assert made == [b"a"]


def test_the_java_client_logs_in_or_is_told_why_not(cluster: SaslCluster, tmp_path: Path) -> None:
    """Its tokens are in files, as a side-car of Kubernetes keeps them."""
    words = []
    tokens = {
        "alice": FIRST.token(claims()),
        "mallory": FIRST.token(claims(aud="another")),
    }
    for user, token in tokens.items():
        file = tmp_path / f"{user}.jwt"
        file.write_text(token)
        words += ["OAUTHBEARER", user, f"file://{file}"]
    assert java(cluster, "java", *words) == [
        "OAUTHBEARER alice ok",
        'OAUTHBEARER mallory SaslAuthenticationException: {"status":"invalid_token"}',
    ]


def refusal(bootstrap: str, token: str) -> tuple[int, str] | None:
    """What librdkafka is told; None: nothing is wrong."""
    errors: list[KafkaError] = []
    producer = Producer(librdkafka_config(bootstrap, lambda: token, error_cb=errors.append))
    producer.produce("nothing", value=b"")
    for _ in range(600):
        if producer.poll(0.1) or errors or not len(producer):
            break
    producer.purge()
    told = [(error.code(), error.str()) for error in errors]
    return told[0] if told else None


BAD: dict[str, Callable[[], str]] = {
    "signed by a stranger": lambda: _as(FIRST.key_id, RsaIssuer("stranger")).token(claims()),
    "for another audience": lambda: FIRST.token(claims(aud="another")),
    "of another issuer": lambda: FIRST.token(claims(iss="https://other")),
    "without a signature": lambda: unsigned(claims()),
    "not yet": lambda: FIRST.token(claims(nbf=int(time.time()) + 300)),
}


def _as(key_id: str, issuer: RsaIssuer) -> RsaIssuer:
    issuer.key_id = key_id
    return issuer


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_token_is_refused_and_librdkafka_is_told(kind: str, cluster: SaslCluster) -> None:
    told = refusal(cluster.bootstrap, BAD[kind]())
    assert told is not None
    assert told[0] == KafkaError._AUTHENTICATION
    assert "invalid_token" in told[1]


@contextlib.contextmanager
def writer(
    bootstrap: str, topic: str, token: Callable[[], str], *, early_s: int = 0
) -> Iterator[list[Any]]:
    """Writes all the time; gives what went wrong."""
    failures: list[Any] = []
    done = threading.Event()
    config = librdkafka_config(bootstrap, token, early_s=early_s, error_cb=failures.append)
    producer = Producer(config)

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    def run() -> None:
        while not done.is_set():
            producer.produce(topic, value=b"a", on_delivery=delivered)
            producer.poll(0.01)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield failures
    finally:
        done.set()
        thread.join(30)
        if producer.flush(30):
            failures.append("not all was written")


def accepts(bootstrap: str, issuer: RsaIssuer) -> bool:
    return refusal(bootstrap, issuer.token(claims())) is None


def test_an_issuer_changes_its_keys_under_load(cluster: SaslCluster, jwks: IssuerServer) -> None:
    """Old and new side by side, then the old one is gone; nobody who is logged in notices."""
    bootstrap = cluster.bootstrap
    with writer(bootstrap, "rotation", lambda: FIRST.token(claims())) as failures:
        assert not accepts(bootstrap, SECOND)
        jwks.keys = key_set(FIRST, SECOND)
        until(lambda: accepts(bootstrap, SECOND), bool)
        assert accepts(bootstrap, FIRST)
        jwks.keys = key_set(SECOND)
        until(lambda: accepts(bootstrap, FIRST), lambda taken: not taken)
        assert accepts(bootstrap, SECOND)
        jwks.keys = key_set(FIRST)
        until(lambda: accepts(bootstrap, FIRST), bool)
    assert failures == []


class Ends(NamedTuple):
    expired: float
    refused: float


def ended(cluster: SaslCluster) -> Ends:
    """Connections that were closed since a token had ended, and logins that were refused."""
    return Ends(
        counted(cluster, "connections_closed", 'reason="expired"'),
        counted(cluster, "authentications", 'outcome="refused"'),
    )


def counted(cluster: SaslCluster, *words: str) -> float:
    (agent,) = cluster.agents
    lines = get_text(agent.http_port, "/metrics").splitlines()
    found = [line for line in lines if all(word in line for word in words)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found if not line.startswith("#"))


def test_clients_renew_their_sessions_before_their_tokens_end(cluster: SaslCluster) -> None:
    """Short-lived tokens, always new ones: nothing is lost and nobody is cut off (KIP-368).

    librdkafka asks for the next token long before the one that it has ends: a session that began
    with a token's last second would be renewed within a second, which KIP-368 forbids.
    """

    def logins() -> float:
        return counted(cluster, "authentications", 'outcome="accepted"')

    before, logged_in = ended(cluster), logins()

    def token() -> str:
        return FIRST.token(claims(seconds=7))

    with writer(cluster.bootstrap, "renewed", token, early_s=5) as failures:
        until(logins, lambda count: count >= logged_in + 4, seconds=30)
    assert failures == []
    assert ended(cluster) == before


def test_a_connection_ends_with_the_token_of_a_client_that_shows_no_other(
    cluster: SaslCluster,
) -> None:
    token, before = FIRST.token(claims(seconds=2)), ended(cluster)
    with writer(cluster.bootstrap, "expired", lambda: token) as failures:
        until(lambda: [*failures], bool)
        until(lambda: ended(cluster), lambda now: now != before)


def test_no_token_is_in_what_an_agent_tells(cluster: SaslCluster) -> None:
    (agent,) = cluster.agents
    token = FIRST.token(claims(aud="another"))
    assert refusal(cluster.bootstrap, token) is not None
    output = agent.child.log.read_text(errors="replace")
    assert "audience" in output
    for part in token.split("."):
        assert part not in output
    assert "alice" not in output


def test_tokens_without_a_signature_are_taken_on_a_listener_that_asks_for_them(
    cluster: SaslCluster, trials: str
) -> None:
    made = by_librdkafka(trials, "unsigned", lambda: unsigned(claims()))
    assert made == [b"a"]
    assert java(cluster, "unsigned-java", "OAUTHBEARER", "alice", "", bootstrap=trials) == [
        "OAUTHBEARER alice ok"
    ]
    told = refusal(trials, FIRST.token(claims()))
    assert told is not None
    assert "invalid_token" in told[1]


# Frazil's own tools.


def listed(
    cluster: SaslCluster, folder: Path, capsys: pytest.CaptureFixture[str], *settings: str
) -> tuple[int, str]:
    """What `frazil group list` ends with and says, by a file of these settings."""
    file = folder / "client.properties"
    protocol = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER")
    file.write_text("\n".join([*protocol, f"bootstrap.servers={cluster.bootstrap}", *settings]))
    code = main(["group", "list", "--command-config", str(file), "--timeout-ms", "20000"])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_a_tool_logs_in_with_the_token_in_a_file_and_is_told_that_another_is_refused(
    cluster: SaslCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    settings = (
        f"sasl.jaas.config={BEARER_MODULE} required extension_cluster='one';",
        f"sasl.oauthbearer.token.endpoint.url=file://{file}",
    )
    file.write_text(FIRST.token(claims()) + "\n")
    assert listed(cluster, tmp_path, capsys, *settings)[0] == 0
    file.write_text(FIRST.token(claims(aud="another")))
    code, said = listed(cluster, tmp_path, capsys, *settings)
    assert code != 0
    assert '{"status":"invalid_token"}' in said


def test_records_are_produced_and_consumed_with_the_token_in_a_file(
    cluster: SaslCluster, tmp_path: Path
) -> None:
    token, file = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(FIRST.token(claims()))
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"bootstrap.servers={cluster.bootstrap}\n"
        f"sasl.jaas.config={BEARER_MODULE} required;\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{token}\n"
    )
    login = ("--command-config", str(file), "--timeout-ms", "20000")
    assert frazil("topic", "create", "by-frazil", *login).code == 0
    assert frazil("produce", "by-frazil", *login, given=b"hello\n") == (0, b"", "")
    assert frazil("consume", "by-frazil", "-e", *login) == (0, b"hello\n", "")
    token.write_text(FIRST.token(claims(aud="another")))
    done = frazil("consume", "by-frazil", "-e", *login)
    assert done.code == 1
    assert "SASL" in done.err


def test_a_tool_has_its_token_from_the_issuer_by_id_and_secret(
    cluster: SaslCluster, jwks: IssuerServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jwks.issue = lambda: {"access_token": FIRST.token(claims()), "expires_in": 600}
    trust = f'ssl.truststore.location="{jwks.trusted}" ssl.truststore.type="PEM"'
    settings = (
        f"sasl.oauthbearer.token.endpoint.url={jwks.tokens_url}",
        f"sasl.jaas.config={BEARER_MODULE} required {trust};",
        f"sasl.oauthbearer.client.credentials.client.id={CLIENT_ID}",
        "sasl.oauthbearer.client.credentials.client.secret=",
    )
    assert listed(cluster, tmp_path, capsys, *settings[:3], settings[3] + CLIENT_SECRET)[0] == 0
    code, said = listed(cluster, tmp_path, capsys, *settings[:3], settings[3] + "another one")
    assert code != 0
    assert "answers 401 (invalid_client)" in said
    assert "another one" not in said


def test_a_tool_goes_on_with_a_new_token_when_its_session_has_ended(
    cluster: SaslCluster, jwks: IssuerServer
) -> None:
    """Tokens of a few seconds; the agent closes the connection at their end, and nobody has to know."""
    jwks.issue = lambda: {"access_token": FIRST.token(claims(seconds=4)), "expires_in": 4}
    trust = f'ssl.truststore.location="{jwks.trusted}" ssl.truststore.type="PEM"'
    login = client_settings_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{BEARER_MODULE} required {trust};",
            "sasl.oauthbearer.token.endpoint.url": jwks.tokens_url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
        }
    ).login
    assert isinstance(login, BearerLogin)

    async def work() -> None:
        places = addresses(cluster.bootstrap)
        async with KafkaClient(places, timeout_ms=60_000, login=BearerTokens(login)) as client:
            for _ in range(2):
                await asyncio.sleep(4.5)
                await client.until_done(client.refresh)

    before = ended(cluster)
    asyncio.run(work())
    assert ended(cluster).expired == before.expired + 2
    assert ended(cluster).refused == before.refused
