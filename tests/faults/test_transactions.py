"""Agents die, stand still and are restarted under transactions: everything exactly once."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol import apis
from protocol.errors import ErrorCode
from tests.anomalies import check
from tests.clients import raw
from tests.clients.groups import Place, Stream
from tests.clients.pipes import HostedPipe
from tests.clients.producers import TxnHost, java_txn_host
from tests.clients.raw_txn import (
    LIBRDKAFKA,
    OLD_JAVA,
    Dialect,
    Producer,
    set_transaction_version,
    until_all_know,
    visible,
)
from tests.clients.transactions import assert_piped_once, challenges, stopped, until_piped
from tests.faults.txn_load import Workers
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer

pytestmark = pytest.mark.integration

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
    # Of the default, 10, clients would get that many transactions a second.
    "puts.per.second=1000",
)
PARTITIONS = 4
EVERY_S = 8.0
"""From one fault to the next."""
PIPED_S = 150.0
WORKER_PAUSE_S = 10.0
"""More than session.timeout.ms and transaction.timeout.ms of a Java pipe."""


@pytest.fixture(scope="module")
def java() -> Iterator[TxnHost]:
    host = java_txn_host()
    yield host
    host.stop()


@pytest.fixture(scope="module")
def other_java() -> Iterator[TxnHost]:
    host = java_txn_host()
    yield host
    host.stop()


def _kill(agent: Frazil) -> None:
    agent.child.kill()
    # Beyond its lease, so that its shards and connections have gone to others.
    time.sleep(4)
    agent.start()


def _pause(agent: Frazil) -> None:
    agent.child.pause()
    time.sleep(5)
    agent.child.resume()
    agent.until_ready()


def _restart(agent: Frazil) -> None:
    assert agent.stop() == 0
    agent.start()


def _is_piped(agents: list[Frazil], stream: Stream, sink: str) -> bool:
    """Asked of the first agent that answers."""
    for agent in agents:
        try:
            return stream.committed(sink, agent.bootstrap) == stream.ends
        except (OSError, AssertionError):
            continue
    return False


@pytest.mark.parametrize(
    ("records", "rounds", "level", "disturb"),
    [(15_000, 3, 2, _kill), (6_000, 3, 1, _pause), (6_000, 3, 2, _restart)],
    ids=["kill", "pause-version-1", "restart"],
)
def test_two_workers_pass_each_record_once_whatever_befalls_the_agents(
    tmp_path: Path,
    etcd: EtcdServer,
    minio: MinioServer,
    java: TxnHost,
    records: int,
    rounds: int,
    level: int,
    disturb: Callable[[Frazil], None],
) -> None:
    source = f"pipe-{disturb.__name__.strip('_')}"
    sink = f"{source}-out"
    with FrazilCluster(tmp_path / source, etcd, minio, *SETTINGS) as cluster:
        everywhere = ",".join(agent.bootstrap for agent in cluster.agents)
        stream = Stream(everywhere, source, PARTITIONS)
        Stream(everywhere, sink, PARTITIONS)
        set_transaction_version(everywhere.split(",")[0], level)
        began_s = time.monotonic()
        pipes = [
            HostedPipe(java, everywhere, f"{source}-{index}", source, sink, seed=index)
            for index in range(2)
        ]
        for number in range(rounds):
            # However fast they are, there is work when the agent goes.
            stream.send(records // rounds // PARTITIONS)
            time.sleep(1)
            disturb(cluster.agents[number % len(cluster.agents)])
            time.sleep(max(0.0, began_s + EVERY_S * (number + 1) - time.monotonic()))
        while not _is_piped(cluster.agents, stream, sink):
            assert time.monotonic() < began_s + PIPED_S, f"not piped\n{java.noise()}"
            time.sleep(0.2)
        commits, aborts = stopped(pipes)
        took_s = time.monotonic() - began_s
        for agent in cluster.agents:
            agent.until_ready()
        assert sum(stream.ends) == records
        assert_piped_once([agent.bootstrap for agent in cluster.agents], stream, sink)
        assert aborts > 0
        print(
            f"{source}: {took_s:.0f} s, {commits} commits, {aborts} aborts; "
            f"{challenges(cluster)} challenges by agents as they are now"
        )
        assert cluster.stop() == [0, 0, 0]


@pytest.mark.parametrize("level", [1, 2])
def test_a_worker_that_stood_still_repeats_nothing_that_another_did_for_it(
    three: FrazilCluster, java: TxnHost, other_java: TxnHost, level: int
) -> None:
    """Longer than its session and its transaction: it is fenced, whatever it had begun."""
    source = f"zombies-{level}"
    sink = f"{source}-out"
    stream = Stream(three.bootstrap, source, PARTITIONS)
    Stream(three.bootstrap, sink, PARTITIONS)
    set_transaction_version(three.bootstrap, level)
    hosts = [java, other_java]
    pipes = [
        HostedPipe(host, three.bootstrap, f"{source}-{index}", source, sink, seed=index)
        for index, host in enumerate(hosts)
    ]
    for host in hosts:
        stream.send(250)
        time.sleep(1)
        host.pause()
        time.sleep(WORKER_PAUSE_S)
        host.resume()
    until_piped(stream, sink, pipes, 120)
    set_transaction_version(three.bootstrap, 2)
    assert_piped_once([agent.bootstrap for agent in three.agents], stream, sink)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("pause_s", [0.5, 5.0], ids=["shortly", "beyond-its-lease"])
@pytest.mark.parametrize("dialect", [LIBRDKAFKA, OLD_JAVA], ids=["librdkafka", "java-3"])
def test_an_end_that_waited_in_a_paused_agent_touches_no_later_transaction(
    three: FrazilCluster, dialect: Dialect, pause_s: float, *, commit: bool
) -> None:
    paused, other, third = three.agents
    name = f"paused-{dialect.end}-{pause_s}-{commit}"
    Stream(other.bootstrap, name, 1)
    place: Place = (name, 0)
    producer = Producer(name, dialect)
    with (
        raw.Connection(paused.bootstrap, seconds=30) as a,
        raw.Connection(other.bootstrap, seconds=30) as b,
    ):
        producer.init(a)
        producer.write(a, place, "1")
        paused.child.pause()
        began_s = time.monotonic()
        # Into the kernel's buffer, twice; the client waits in vain, and goes elsewhere.
        for _ in range(2):
            a.send(apis.END_TXN, dialect.end, producer.end_request(commit=commit))
        assert producer.end(b, commit=commit)[-1] == ErrorCode.NONE
        producer.write(b, place, "3-first")
        time.sleep(max(0.0, began_s + pause_s - time.monotonic()))
        paused.child.resume()
        late = {ErrorCode(a.receive().error_code) for _ in range(2)}
        assert late <= {
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        }
        paused.until_ready()
        earlier = ["1"] if commit else []
        for agent in (paused, third):
            assert visible(agent.bootstrap, place) == earlier
        producer.write(b, place, "3-second")
        assert producer.end(b, commit=not commit) == [ErrorCode.NONE]
        later = [] if commit else ["3-first", "3-second"]
        until_all_know([agent.bootstrap for agent in three.agents], place)
        for agent in (paused, third):
            assert visible(agent.bootstrap, place) == earlier + later


@pytest.fixture(scope="module")
def three(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[FrazilCluster]:
    with FrazilCluster(tmp_path_factory.mktemp("three-txn"), etcd, minio, *SETTINGS) as cluster:
        yield cluster
        assert cluster.stop() == [0, 0, 0]


def test_histories_of_transactions_show_no_anomaly_while_agents_are_killed(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    with FrazilCluster(tmp_path / "histories", etcd, minio, *SETTINGS) as cluster:
        everywhere = ",".join(agent.bootstrap for agent in cluster.agents)
        Stream(everywhere, "histories", PARTITIONS)
        workers = Workers(everywhere, "histories", PARTITIONS, 4)
        for agent in cluster.agents:
            time.sleep(5)
            _kill(agent)
        time.sleep(5)
        workers.stop()
        workers.read_all()
        print(workers.counts)
        assert check(workers.recorder.history, transactional=True) == []
        assert workers.counts["ok"] > 100
        assert workers.counts["fail"] > 0
        assert cluster.stop() == [0, 0, 0]
