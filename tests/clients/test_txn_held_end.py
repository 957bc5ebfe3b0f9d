"""What `test_txn_late_end` plays by hand befalls librdkafka itself, behind a proxy.

The proxy keeps back what librdkafka sends at the end of its first transaction. After its
socket.timeout.ms librdkafka ends it by another connection and goes on with the next one; then what
was kept back arrives.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from protocol import apis
from tests.clients import raw_txn
from tests.clients.groups import Place, fresh
from tests.clients.transactions import challenges
from tests.parts.proxy import HoldingProxy
from tests.parts.servers import EtcdServer, FrazilCluster, KafkaServer, MinioServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

SOCKET_TIMEOUT_MS = 1_000
CALL_S = 20.0
LATE_IS_DEALT_WITH_S = 1.0
"""The answer to what arrives late goes nowhere, so nobody can wait for it."""
WHOLE = {"3-first", "3-other"}


class Seen(NamedTuple):
    """What became of the later transaction."""

    before: set[str]
    """What was visible of it before its end."""
    at_last: set[str]


class Scene:
    """librdkafka behind a proxy, and two partitions to write to."""

    def __init__(self, proxy: HoldingProxy, address: str) -> None:
        name = fresh("held-end")
        create_topic(AdminClient({"bootstrap.servers": address}), name, 2)
        self._proxy, self._address = proxy, address
        self._places: list[Place] = [(name, 0), (name, 1)]
        self._client = confluent_kafka.Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{proxy.port}",
                "transactional.id": name,
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 100,
                "log_level": 2,
            }
        )
        self._client.init_transactions(CALL_S)

    def play(self, *, commit: bool, pipelined: bool, ends: bool = False) -> Seen:
        """`commit`: the first transaction is committed and the later one aborted; or the other way
        round. `pipelined`: what is kept back is an AddPartitionsToTxn with an EndTxn behind it.
        `ends`: what is late ends the later transaction, which can be waited for.
        """
        first, second = self._places
        client = self._client
        client.begin_transaction()
        self._write(first, "1-first")
        if pipelined:
            self._proxy.hold_next(apis.ADD_PARTITIONS_TO_TXN)
            client.produce(second[0], "1-other", partition=second[1])
            self._until_held()
        else:
            self._proxy.hold_next(apis.END_TXN)
        self._end(commit=commit)
        client.begin_transaction()
        self._write(first, "3-first")
        self._proxy.release()
        assert self._proxy.arrived_late.wait(CALL_S), "nothing was kept back"
        if ends:
            raw_txn.until_stable(self._address, first)
        else:
            time.sleep(LATE_IS_DEALT_WITH_S)
        before = self._visible()
        self._write(second, "3-other")
        self._end(commit=not commit)
        for place in self._places:
            raw_txn.until_stable(self._address, place)
        client.flush(CALL_S)
        return Seen(before, self._visible())

    def _until_held(self) -> None:
        deadline = time.monotonic() + CALL_S
        while not self._proxy.holds:
            assert time.monotonic() < deadline, "it adds no partition"
            time.sleep(0.01)

    def _write(self, place: Place, value: str) -> None:
        self._client.produce(place[0], value, partition=place[1])
        assert self._client.flush(CALL_S) == 0

    def _end(self, *, commit: bool) -> None:
        if commit:
            self._client.commit_transaction(CALL_S)
        else:
            self._client.abort_transaction(CALL_S)

    def _visible(self) -> set[str]:
        shown = raw_txn.visible(self._address, *self._places)
        return {value for value in shown if value.startswith("3")}


@pytest.fixture(scope="module")
def frazil(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[tuple[FrazilCluster, HoldingProxy]]:
    folder = tmp_path_factory.mktemp("held-end")
    cluster = FrazilCluster(folder, etcd, minio, agents=1)
    (agent,) = cluster.agents
    with HoldingProxy(agent.port) as proxy:
        agent.child.argv += ["--set", f"advertise=127.0.0.1:{proxy.port}"]
        with cluster:
            yield cluster, proxy


@pytest.fixture(scope="module")
def proxied_kafka(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[KafkaServer, HoldingProxy]]:
    server = KafkaServer(tmp_path_factory.mktemp("held-kafka"))
    with HoldingProxy(server.port) as proxy:
        server.advertise(proxy.port)
        server.start()
        yield server, proxy
        server.stop()


@pytest.mark.parametrize(
    ("commit", "pipelined"),
    [(True, False), (False, False), (False, True)],
    ids=["commit", "abort", "pipelined-abort"],
)
def test_a_late_end_of_librdkafka_touches_no_later_transaction(
    frazil: tuple[FrazilCluster, HoldingProxy], *, commit: bool, pipelined: bool
) -> None:
    cluster, proxy = frazil
    challenged = challenges(cluster)
    seen = Scene(proxy, cluster.bootstrap).play(commit=commit, pipelined=pipelined)
    assert seen == Seen(set(), set() if commit else WHOLE)
    assert challenges(cluster) >= challenged + 2


def test_apache_kafka_commits_half_of_a_transaction_by_a_late_end_of_librdkafka(
    proxied_kafka: tuple[KafkaServer, HoldingProxy],
) -> None:
    server, proxy = proxied_kafka
    # Its client has aborted it.
    seen = Scene(proxy, server.bootstrap).play(commit=True, pipelined=False, ends=True)
    assert seen == Seen({"3-first"}, {"3-first"})


@pytest.mark.parametrize("pipelined", [False, True], ids=["abort", "pipelined-abort"])
def test_apache_kafka_aborts_half_of_a_transaction_by_a_late_end_of_librdkafka(
    proxied_kafka: tuple[KafkaServer, HoldingProxy], *, pipelined: bool
) -> None:
    server, proxy = proxied_kafka
    # Its client has committed it.
    seen = Scene(proxy, server.bootstrap).play(commit=False, pipelined=pipelined, ends=True)
    assert seen == Seen(set(), {"3-other"})
