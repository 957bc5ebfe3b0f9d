"""Kills, stalls and certificates that change, where every client logs in over TLS and has just its rights.

The loads and their verdicts are those of the other tests here; who has no right tries all the while.
"""

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient, ResourcePatternType

from tests.anomalies import check
from tests.faults.load import Load, assert_nothing_lost
from tests.faults.test_kills import QUICK
from tests.faults.txn_load import Workers
from tests.parts.secured import (
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Identity,
    SecuredCluster,
    give,
    make_users,
    right,
)
from tests.parts.servers import EtcdServer, MinioServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

LOADED, HISTORIES = "loaded", "histories"
PARTITIONS = 4
READ, WRITE = AclOperation.READ, AclOperation.WRITE
SETTINGS = (
    *QUICK,
    "connections.max.reauth.ms=20000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
    "puts.per.second=1000",
)
REFUSALS = {KafkaError.TOPIC_AUTHORIZATION_FAILED}
PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
}
"""What a client says of agents that are away."""


class Intruder:
    """Somebody who is known, has no right, and writes again and again, until `stop`."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._producer = Producer({**settings, "message.timeout.ms": 5_000, "log_level": 0})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.heard: list[int] = []
        """0: it was let in."""
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._producer.produce(LOADED, b"mine", on_delivery=self._delivered)
            except KafkaException as error:  # It has heard before that it may not.
                self.heard.append(error.args[0].code())
            self._producer.poll(0)
            time.sleep(0.1)  # Refusals come at once.
        self._producer.flush(10)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        self.heard.append(0 if error is None else error.code())

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the intruder does not end"
        assert set(self.heard) <= REFUSALS | PASSING, set(self.heard)
        assert set(self.heard) & REFUSALS


def set_up(cluster: SecuredCluster) -> dict[str, Identity]:
    """Topics, users, and to each user the rights that it needs."""
    who = {name: cluster.security.who(name) for name in ("writer", "worker", "reader", "intruder")}
    admin = AdminClient(cluster.client())
    create_topic(admin, LOADED, PARTITIONS)
    create_topic(admin, HISTORIES, PARTITIONS)
    make_users(admin, who.values())
    own = {"pattern": ResourcePatternType.PREFIXED}
    give(
        admin,
        [
            right("writer", TOPIC, LOADED, WRITE),
            right("reader", TOPIC, LOADED, READ),
            right("worker", TOPIC, HISTORIES, READ),
            right("worker", TOPIC, HISTORIES, WRITE),
            right("worker", GROUP, HISTORIES, READ, **own),
            right("worker", TRANSACTIONAL_ID, HISTORIES, WRITE, **own),
        ],
    )
    return who


def test_clients_with_just_their_rights_lose_nothing_over_kills_stalls_and_new_certificates(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    with SecuredCluster(tmp_path / "secured", etcd, minio, *SETTINGS) as cluster:
        who = set_up(cluster)
        everywhere = ",".join(agent.bootstrap for agent in cluster.agents)
        load = Load(everywhere, LOADED, partitions=PARTITIONS, who=who["writer"])
        load.start()
        workers = Workers(everywhere, HISTORIES, PARTITIONS, 4, who["worker"])
        intruder = Intruder(cluster.client(who["intruder"]))
        first, second, third = cluster.agents
        load.wait_for_acks(300, seconds=60)
        first.child.kill()
        load.wait_for_acks(300, seconds=60)
        # Whoever connects from now on is shown another certificate.
        cluster.security.renew()
        first.start()
        load.wait_for_acks(300, seconds=60)
        second.child.pause()
        time.sleep(5)  # Beyond its lease.
        second.child.resume()
        second.until_ready()
        load.wait_for_acks(300, seconds=60)
        assert third.stop() == 0
        third.start()
        load.wait_for_acks(300, seconds=60)
        load.stop()
        intruder.stop()
        workers.stop()
        workers.read_all()
        for agent in cluster.agents:
            agent.until_ready()
            assert_nothing_lost(load.audit(agent.port, who["reader"]))
        assert check(workers.recorder.history, transactional=True) == []
        assert workers.counts["ok"] > 50
        print(f"{workers.counts}, the intruder heard {len(intruder.heard)} refusals")
        assert cluster.stop() == [0, 0, 0]


def test_nobody_is_let_in_by_an_agent_that_has_just_begun(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    """It has read users and ACLs before it serves: whoever had no right before has none then."""
    with SecuredCluster(tmp_path / "begun", etcd, minio, *SETTINGS, agents=1) as cluster:
        (agent,) = cluster.agents
        who = set_up(cluster)
        agent.child.kill()
        wrong = cluster.security.who("writer", "not its secret")
        heard: list[int] = []
        settings = {**cluster.client(wrong), "log_level": 0}
        stranger = Producer({**settings, "error_cb": lambda error: heard.append(error.code())})
        intruder = Intruder(cluster.client(who["intruder"]))
        agent.start()
        deadline = time.monotonic() + 60
        while KafkaError._AUTHENTICATION not in heard or not set(intruder.heard) & REFUSALS:
            assert time.monotonic() < deadline, (heard, intruder.heard)
            stranger.poll(0.1)
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=1)
        intruder.stop()
        assert cluster.stop() == [0]
