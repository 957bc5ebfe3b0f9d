"""Real clients over TLS: with and without certificates of their own, and what they see when it fails."""

import asyncio
import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from tests.clients.host import java, javascript
from tests.kit.certificates import Authority, Signed
from tests.parts.process import free_port
from tests.parts.servers import Frazil, FrazilDev, get_text

pytestmark = pytest.mark.integration

PASSWORD = "hush hush"
COUNT = 2_000
QUICK = ("group.initial.rebalance.delay.ms=0", "num.partitions=4")


@dataclass
class Secured:
    """An agent with three listeners, and the files of its clients."""

    agent: FrazilDev
    folder: Path
    authority: Authority
    plain: int
    tls: int
    mutual: int

    def metric(self, name: str) -> float:
        """The sum over its labels."""
        text = get_text(self.agent.http_port, "/metrics")
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    def keystore(self, signed: Signed) -> None:
        """Put another one in place of the agent's, at once, and wait until it is taken."""
        before = self.metric("frazil_certificate_reloads_total")
        new = self.folder / "new.pem"
        new.write_text(signed.pem)
        new.replace(self.folder / "agent.pem")
        deadline = time.monotonic() + 30
        while self.metric("frazil_certificate_reloads_total") == before:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def librdkafka(self, port: int, **more: object) -> dict[str, object]:
        settings: dict[str, object] = {
            "bootstrap.servers": f"localhost:{port}",
            "broker.address.family": "v4",
        }
        if port != self.plain:
            settings |= {
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.folder / "authority.pem"),
            }
        if port == self.mutual:
            settings |= {
                "ssl.certificate.location": str(self.folder / "client.pem"),
                "ssl.key.location": str(self.folder / "client.pem"),
            }
        return settings | {name.replace("_", "."): value for name, value in more.items()}

    def python(self, port: int) -> dict[str, object]:
        """kafka-python's."""
        own = str(self.folder / "client.pem")
        certificates = {"ssl_certfile": own, "ssl_keyfile": own} if port == self.mutual else {}
        return {
            "bootstrap_servers": f"localhost:{port}",
            "security_protocol": "SSL",
            "ssl_cafile": str(self.folder / "authority.pem"),
            **certificates,
        }

    def context(self, port: int) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.folder / "authority.pem"))
        if port == self.mutual:
            context.load_cert_chain(self.folder / "client.pem")
        return context

    def java(self, name: str, port: int, **more: str) -> Path:
        """A file of settings."""
        lines = {
            "bootstrap.servers": f"localhost:{port}",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "authority.pem"),
        }
        if port == self.mutual:
            lines |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.folder / "client.pem"),
            }
        lines |= {key.replace("_", "."): value for key, value in more.items()}
        file = self.folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return file


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority()
    (folder / "authority.pem").write_text(authority.pem)
    (folder / "stranger.pem").write_text(Authority("a stranger").pem)
    (folder / "agent.pem").write_text(authority.sign("agent").pem)
    (folder / "agent.p12").write_bytes(authority.sign("agent").pkcs12(PASSWORD))
    (folder / "client.pem").write_text(authority.sign("CN=client1,O=Oracle").pem)
    plain, tls, mutual = (free_port() for _ in range(3))
    here = "127.0.0.1"
    told = f"PLAINTEXT://localhost:{plain},SSL://localhost:{tls},MUTUAL://localhost:{mutual}"
    settings = [
        *QUICK,
        f"listeners=PLAINTEXT://{here}:{plain},SSL://{here}:{tls},MUTUAL://{here}:{mutual}",
        f"advertised.listeners={told}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'agent.pem'}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / 'authority.pem'}",
        "listener.name.mutual.ssl.keystore.type=PKCS12",
        f"listener.name.mutual.ssl.keystore.location={folder / 'agent.p12'}",
        f"listener.name.mutual.ssl.keystore.password={PASSWORD}",
        "listener.name.mutual.ssl.client.auth=required",
    ]
    arguments = [word for setting in settings for word in ("--set", setting)]
    with FrazilDev(folder / "dev", *arguments) as agent:
        yield Secured(agent, folder, authority, plain, tls, mutual)
        assert agent.stop() == 0
    assert "Traceback" not in (folder / "dev" / "frazil.log").read_text()
    assert PASSWORD not in (folder / "dev" / "frazil.log").read_text()


@pytest.fixture(params=["tls", "mutual"])
def port(request: pytest.FixtureRequest, secured: Secured) -> int:
    return getattr(secured, request.param)


def topic_of(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W+", "-", request.node.name).strip("-")


def produce(settings: dict[str, object], topic: str, count: int = COUNT) -> None:
    errors: list[object] = []
    producer = Producer(settings | {"linger.ms": 5})
    for index in range(count):
        producer.produce(
            topic,
            value=f"value {index}" * 20,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert errors == []


def consume(settings: dict[str, object], topic: str, count: int = COUNT) -> set[bytes]:
    """By a group."""
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(read) < count:
        assert time.monotonic() < deadline, f"only {len(read)} of {count}"
        for message in consumer.consume(1_000, timeout=1):
            assert message.error() is None, message.error()
            read.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(read) == count
    return set(read)


VALUES = {(f"value {index}" * 20).encode() for index in range(COUNT)}


def test_librdkafka_writes_and_reads_over_tls(secured: Secured, port: int, request) -> None:
    topic = topic_of(request)
    produce(secured.librdkafka(port), topic)
    assert consume(secured.librdkafka(port), topic) == VALUES


def test_librdkafkas_transactions_end_over_tls(secured: Secured, request) -> None:
    topic = topic_of(request)
    producer = Producer(secured.librdkafka(secured.tls, transactional_id=topic))
    producer.init_transactions(30)
    for commits in (True, False, True):
        producer.begin_transaction()
        for _ in range(100):
            producer.produce(topic, value=b"kept" if commits else b"dropped")
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    assert consume(secured.librdkafka(secured.tls), topic, 200) == {b"kept"}


@pytest.mark.usefixtures("python_sockets")
def test_kafka_python_writes_and_reads_over_tls(secured: Secured, port: int, request) -> None:
    topic = topic_of(request)
    producer = KafkaProducer(**secured.python(port), linger_ms=5)
    for value in VALUES:
        producer.send(topic, value=value)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        topic, **secured.python(port), group_id=topic, auto_offset_reset="earliest"
    )
    read: set[bytes] = set()
    deadline = time.monotonic() + 60
    while read != VALUES:
        assert time.monotonic() < deadline
        polled = consumer.poll(timeout_ms=1_000)
        read |= {message.value for batch in polled.values() for message in batch}
    consumer.close()


def test_aiokafka_writes_and_reads_over_tls(secured: Secured, port: int, request) -> None:
    topic = topic_of(request)

    async def play() -> None:
        settings = {
            "bootstrap_servers": f"localhost:{port}",
            "security_protocol": "SSL",
            "ssl_context": secured.context(port),
        }
        producer = AIOKafkaProducer(**settings, linger_ms=5)
        await producer.start()
        await asyncio.gather(*[await producer.send(topic, value) for value in VALUES])
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
        await consumer.start()
        read: set[bytes] = set()
        async with asyncio.timeout(60):
            while read != VALUES:
                read.add((await consumer.getone()).value)
        await consumer.stop()

    asyncio.run(play())


def run_java(file: Path, topic: str, count: int = COUNT) -> list[str]:
    """What the program told."""
    return run([*java("Secure.java"), str(file), topic, str(count)])


def run(command: list[str]) -> list[str]:
    """Lines that it told, which begin with @."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [line[1:] for line in done.stdout.splitlines() if line.startswith("@")]


def test_the_java_client_writes_and_reads_over_tls(secured: Secured, port: int, request) -> None:
    topic = topic_of(request)
    assert run_java(secured.java(topic, port), topic) == [f"read {COUNT + 1}"]


def run_kafkajs(secured: Secured, port: int, topic: str, *own: str) -> list[str]:
    """What the program told."""
    authority = str(secured.folder / "authority.pem")
    command = javascript("secure.js")
    return run([*command, f"localhost:{port}", authority, topic, str(COUNT), *own])


def test_kafkajs_writes_and_reads_over_tls(secured: Secured, port: int, request) -> None:
    own = [str(secured.folder / "client.pem")] if port == secured.mutual else []
    assert run_kafkajs(secured, port, topic_of(request), *own) == [f"read {COUNT}"]


def test_kafkajs_is_refused_without_a_certificate_where_one_is_required(
    secured: Secured,
) -> None:
    (said,) = run_kafkajs(secured, secured.mutual, "never")
    assert said.startswith("failed ")


def test_metadata_names_the_address_of_the_listener_that_was_asked(secured: Secured) -> None:
    for port in (secured.plain, secured.tls, secured.mutual):
        brokers = AdminClient(secured.librdkafka(port)).list_topics(timeout=30).brokers.values()
        assert {(broker.host, broker.port) for broker in brokers} == {("localhost", port)}


# What fails.


def said_by_librdkafka(settings: dict[str, object]) -> str:
    """What a client is told that cannot connect."""
    said: list[str] = []
    client = AdminClient(settings | {"error_cb": lambda error: said.append(error.str())})
    deadline = time.monotonic() + 30
    while not any("SSL" in each for each in said):
        assert time.monotonic() < deadline, said
        client.poll(0.2)
    return " ".join(said)


def test_librdkafka_refuses_an_agent_of_another_authority(secured: Secured) -> None:
    before = secured.metric("frazil_handshakes_failed_total")
    stranger = {"ssl.ca.location": str(secured.folder / "stranger.pem")}
    said = said_by_librdkafka(secured.librdkafka(secured.tls) | stranger)
    assert "certificate" in said
    assert secured.metric("frazil_handshakes_failed_total") > before


def test_librdkafka_is_refused_without_a_certificate_where_one_is_required(
    secured: Secured,
) -> None:
    settings = secured.librdkafka(secured.tls, bootstrap_servers=f"localhost:{secured.mutual}")
    assert "certificate" in said_by_librdkafka(settings)


def test_the_java_client_refuses_an_agent_of_another_authority(secured: Secured) -> None:
    file = secured.java(
        "stranger", secured.tls, ssl_truststore_location=str(secured.folder / "stranger.pem")
    )
    said = run_java(file, "never", 0)
    assert any(line.startswith("failed SslAuthenticationException") for line in said), said


def test_the_java_client_is_refused_without_a_certificate_where_one_is_required(
    secured: Secured,
) -> None:
    file = secured.java("nobody", secured.tls, bootstrap_servers=f"localhost:{secured.mutual}")
    said = run_java(file, "never", 0)
    assert any(line.startswith("failed SslAuthenticationException") for line in said), said


def test_clients_refuse_a_certificate_that_has_ended(secured: Secured) -> None:
    secured.keystore(secured.authority.sign("ended", days=-1, begun_days=3))
    assert secured.metric("frazil_certificate_days") < 30
    try:
        assert "certificate" in said_by_librdkafka(secured.librdkafka(secured.tls))
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            asyncio.run(shaken(secured.context(secured.tls), secured.tls))
    finally:
        secured.keystore(secured.authority.sign("agent"))


# Certificates that change.


async def shaken(context: ssl.SSLContext, port: int) -> bytes:
    """The agent's certificate, as a new client sees it."""
    _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    seen = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    # The loop ends with this: what is not closed by then never is.
    await writer.wait_closed()
    return seen


def test_a_certificate_changes_under_load_and_no_connection_is_dropped(
    secured: Secured, request
) -> None:
    topic = topic_of(request)
    errors: list[object] = []
    delivered = 0

    def on_delivery(error, _message) -> None:
        nonlocal delivered
        delivered += error is None
        if error is not None:
            errors.append(error)

    settings = secured.librdkafka(
        secured.tls, linger_ms=1, error_cb=lambda error: errors.append(error.str())
    )
    settings["error_cb"] = settings.pop("error.cb")
    producer = Producer(settings)

    def load(until: int) -> None:
        deadline = time.monotonic() + 60
        while delivered < until:
            assert time.monotonic() < deadline
            producer.produce(topic, value=bytes(1_000), on_delivery=on_delivery)
            producer.poll(0.001)

    load(500)
    closed = secured.metric("frazil_connections_closed_total")
    accepted = secured.metric("frazil_connections_accepted_total")
    for name in ("first", "second"):
        signed = secured.authority.sign(name)
        secured.keystore(signed)
        load(delivered + 500)
        assert secured.metric("frazil_connections_accepted_total") == accepted
        seen = asyncio.run(shaken(secured.context(secured.tls), secured.tls))
        assert seen == signed.der
        accepted += 1
    assert producer.flush(30) == 0
    assert errors == []
    assert secured.metric("frazil_connections_closed_total") <= closed + 2


def test_a_broken_file_leaves_the_certificate_as_it_was(secured: Secured) -> None:
    file = secured.folder / "agent.pem"
    before = asyncio.run(shaken(secured.context(secured.tls), secured.tls))
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    deadline = time.monotonic() + 30
    while not secured.metric("frazil_certificate_failures_total"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert asyncio.run(shaken(secured.context(secured.tls), secured.tls)) == before
    secured.keystore(secured.authority.sign("mended"))


# A broker's own file.


def test_a_brokers_server_properties_start_an_agent(
    tmp_path: Path, secured: Secured, request
) -> None:
    """What Kafka comes with, with TLS added as its documentation says; store and log are Frazil's."""
    topic, tls, plain = topic_of(request), free_port(), free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"""\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://0.0.0.0:{plain},SSL://localhost:{tls},CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{plain},SSL://localhost:{tls},CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
ssl.keystore.location={secured.folder}/agent.p12
ssl.keystore.password={PASSWORD}
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
num.partitions=4
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
log.retention.hours=168
"""
    )
    agent = Frazil(tmp_path / "agent", "serve", "--config", str(properties))
    places = (
        f"store=file://{tmp_path}/objects",
        f"log=sqlite://{tmp_path}/log.db",
        f"http=127.0.0.1:{agent.http_port}",
    )
    agent.child.argv += [word for place in places for word in ("--set", place)]
    with agent:
        produce(secured.librdkafka(secured.tls, bootstrap_servers=f"localhost:{tls}"), topic)
        plaintext = {"bootstrap.servers": f"localhost:{plain}", "broker.address.family": "v4"}
        assert consume(plaintext, topic) == VALUES
        log = agent.child.log.read_text()
    (told,) = [line for line in log.splitlines() if "settings that have no effect" in line]
    assert all(name in told for name in ("process.roles", "num.network.threads", "log.dirs"))
    assert "listener PLAINTEXT (PLAINTEXT) takes clients from the network" in log
    assert PASSWORD not in log
