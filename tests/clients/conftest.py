"""The two kinds of cluster that every client is tried against, and Kafka to compare with.

With `FRAZIL_CLIENTS_KAFKA=1` in the environment Apache Kafka takes the place of both, so that one
sees whether it is the client, or the test, that behaves like that.
"""

import os
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.net.transport import KafkaSSLTransport

from tests.clients.bounded import EAGER, Bounded
from tests.clients.kafka_tools import KafkaTools
from tests.clients.members import MemberHost, java_host, kafkajs_host
from tests.clients.producers import TxnHost, java_txn_host, kafkajs_txn_host
from tests.clients.side_by_side import Pair, pair
from tests.clients.transactions import challenges
from tests.parts.servers import EtcdServer, FrazilCluster, FrazilDev, KafkaServer, MinioServer

QUICK_GROUPS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=300",
    "group.consumer.heartbeat.interval.ms=300",
)
"""So that members do not wait for each other longer than they must."""
QUICK_TIMEOUTS = ("transaction.abort.timed.out.transaction.cleanup.interval.ms=200",)
SETTINGS = ("num.partitions=4", *QUICK_GROUPS, *QUICK_TIMEOUTS)
QUICK_PUTS = ("puts.per.second=1000",)
"""Of agents in production, which spare objects: whoever waits for each answer gets ten a second."""
QUICK_CLEANER = ("log.cleaner.backoff.ms=100",)
"""Of Kafka, which cannot be asked to compact."""
AGAINST_KAFKA = os.environ.get("FRAZIL_CLIENTS_KAFKA") == "1"


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    with FrazilDev(tmp_path_factory.mktemp("embedded"), *settings) as agent:
        yield agent
        assert agent.stop() == 0


@pytest.fixture(scope="session")
def three_agents(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[FrazilCluster]:
    with FrazilCluster(
        tmp_path_factory.mktemp("three"), etcd, minio, *SETTINGS, *QUICK_PUTS
    ) as cluster:
        cluster.until_groups_settle()
        yield cluster
        assert cluster.stop() == [0, 0, 0]


@pytest.fixture(scope="session")
def eager_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bounded]:
    """An agent of its own, whose jobs find something to do whenever they are asked to."""
    settings = [word for setting in (*SETTINGS, *EAGER) for word in ("--set", setting)]
    with FrazilDev(tmp_path_factory.mktemp("eager"), *settings) as agent:
        yield Bounded(agent.bootstrap, agent.http_port)
        assert agent.stop() == 0


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), *SETTINGS, *QUICK_CLEANER)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tools() -> Iterator[KafkaTools]:
    """A JVM for Kafka's command line tools."""
    tools = KafkaTools()
    yield tools
    tools.stop()


@pytest.fixture(scope="session")
def java() -> Iterator[MemberHost]:
    """A JVM for the members of all tests."""
    host = java_host()
    yield host
    host.stop()


@pytest.fixture(scope="session")
def kafkajs() -> Iterator[MemberHost]:
    host = kafkajs_host()
    yield host
    host.stop()


@pytest.fixture
def python_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes those of kafka-python over TLS. It leaves one open whose handshake goes on while its client is closed,
    and the collector would warn of it in whatever test comes."""
    made: list[ssl.SSLSocket] = []
    begin = KafkaSSLTransport.__init__

    def recorded(self: KafkaSSLTransport, *arguments: Any, **configs: Any) -> None:
        begin(self, *arguments, **configs)
        made.append(self._sock)

    monkeypatch.setattr(KafkaSSLTransport, "__init__", recorded)
    yield
    for each in made:
        each.close()


@pytest.fixture(params=["kafka"] if AGAINST_KAFKA else ["embedded", "three_agents"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where a client is told to connect: the embedded agent, or one of three."""
    return request.getfixturevalue(request.param).bootstrap


@pytest.fixture(scope="session")
def java_txn() -> Iterator[TxnHost]:
    """A JVM for the transactional producers and pipes of all tests."""
    host = java_txn_host()
    yield host
    host.stop()


@pytest.fixture(scope="session")
def kafkajs_txn() -> Iterator[TxnHost]:
    host = kafkajs_txn_host()
    yield host
    host.stop()


@pytest.fixture
def unchallenged(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a client is told to connect that is never challenged at the end of a transaction.

    A challenge costs a client a tenth of a second, and should befall only those who reconnect in
    the middle of a transaction.
    """
    if AGAINST_KAFKA:
        yield request.getfixturevalue("kafka").bootstrap
        return
    cluster = request.getfixturevalue("three_agents")
    before = challenges(cluster)
    yield cluster.bootstrap
    assert challenges(cluster) == before


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Kafka and an agent of a module's own, to be asked the same."""
    with pair(tmp_path_factory.mktemp("beside")) as both:
        yield both
