"""The log is lost, and `frazil recover` begins it anew from the object store: the drill of docs/design/running.md §7.

Over etcd under three agents, with transactions, a group, and a consumer that has read what is lost; and over a file under
one, with an older log, and a copy of the store that was made in the middle of it.
"""

import json
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.cli.admin_client import AgentPlace, ask
from protocol.types import Position
from storage.formats import log_archive
from tests.faults import wire
from tests.parts.process import Child
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, FrazilDev, MinioServer, at_once
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

EAGER = ("jobs.start.delay.ms=0", "log.archive.ms=100")
Place = tuple[str, int]
Acknowledged = dict[tuple[str, int, int], bytes]
"""By topic, partition and offset."""
PATIENCE_S = 60.0


def produced(bootstrap: str, topic: str, count: int, first: int) -> Acknowledged:
    """So many records, alternating between two partitions, each acknowledged."""
    found: Acknowledged = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        found[topic, message.partition(), message.offset()] = message.value()

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    for number in range(first, first + count):
        producer.produce(topic, f"{number:06d}", partition=number % 2, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def archived_to(store: Path) -> Position:
    """Where the newest archive in a store on this machine ends."""
    keys = [f"{log_archive.FOLDER}/{path.name}" for path in store.rglob("archive/*-*")]
    return max([log_archive.range_of(key)[1] for key in keys], default=Position(0))


def all_is_archived(agent: Frazil, store: Path) -> None:
    """What the agent has applied by now is in the store, too."""
    head = ask(AgentPlace(f"http://127.0.0.1:{agent.http_port}"), "/jobs")["position"]
    until(lambda: archived_to(store) >= head, f"nothing is archived up to {head}")


def recover(child: Child, *flags: str) -> str:
    done = subprocess.run(
        [child.argv[0], "recover", *flags],
        env=child.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def settings_of(agent: Frazil) -> list[str]:
    """The flags that say what an agent of a cluster was told."""
    return agent.child.argv[2:]


def read_all(port: int, topic: str) -> Acknowledged:
    return {
        (topic, partition, record.offset): bytes(record.value or b"")
        for partition in range(2)
        for record in wire.read(port, topic, partition, end=wire.end_offset(port, topic, partition))
    }


def assert_only_the_listed_is_lost(
    acknowledged: Acknowledged, found: Acknowledged, told: dict[str, Any]
) -> None:
    """What was acknowledged is where it was, or came last in its partition and is listed."""
    lost = {place for place, value in acknowledged.items() if found.get(place) != value}
    listed = {(row["topic"], row["partition"]): row for row in told["unarchived"]}
    for topic, partition in {place[:2] for place in lost}:
        row = listed[topic, partition]
        offsets = sorted(place[2] for place in lost if place[:2] == (topic, partition))
        assert offsets[0] >= row["end_offset"], "what came before the newest archive is there"
        assert len(offsets) <= row["records"]


@pytest.mark.promise("P1")
def test_a_cluster_whose_etcd_is_destroyed_goes_on_from_its_store(
    tmp_path: Path, parts: tuple[EtcdServer, MinioServer]
) -> None:
    etcd, minio = parts
    store = tmp_path / "own-minio"
    cluster = FrazilCluster(tmp_path / "cluster", etcd, minio, *EAGER, agents=3)
    with cluster:
        bootstrap, agent = cluster.bootstrap, cluster.agents[0]
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), "t", 2)
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), "paid", 2)
        committed, open_one = transactions(bootstrap)
        kept = produced(bootstrap, "t", 300, 0)
        commit_offsets(bootstrap, "readers", {("t", 0): 40, ("t", 1): 41})
        all_is_archived(agent, store)
        reader = following(bootstrap)
        late = produced(bootstrap, "t", 100, 300)
        read_to_the_end(reader, kept | late)
        at_once(lambda each: each.child.kill(), cluster.agents)
        etcd.stop()
        shutil.rmtree(etcd.data)
        etcd.start()
        told = json.loads(recover(agent.child, "--dry-run", "--json", *settings_of(agent)))
        assert told["aborted"] == ["open"]
        recover(agent.child, "--yes", *settings_of(agent))
        cluster.start()
        found = read_all(agent.port, "t")
        assert kept.items() <= found.items(), "it was archived"
        assert_only_the_listed_is_lost(kept | late, found, told)
        assert committed_values(bootstrap) == committed
        assert committed_offsets(bootstrap, "readers") == {("t", 0): 40, ("t", 1): 41}
        with pytest.raises(KafkaException):
            open_one.commit_transaction(10)
        # A consumer that has read what is lost now goes on by itself.
        new = produced(bootstrap, "t", 20, 900)
        read_to_the_end(reader, new)
        reader.close()
        again, other = transactions(bootstrap, "again")
        other.abort_transaction(PATIENCE_S)
        assert committed_values(bootstrap) == committed | again
        assert cluster.stop() == [0, 0, 0]


def transactions(bootstrap: str, name: str = "whole") -> tuple[set[bytes], Producer]:
    """What one producer has committed, and another one whose transaction is open. The same ids each time."""
    done = Producer({"bootstrap.servers": bootstrap, "transactional.id": "done"})
    opened = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open", "log_level": 0})
    for producer in (done, opened):
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for partition in range(2):
        done.produce("paid", f"{name}-{partition}", partition=partition)
        opened.produce("paid", f"never-{partition}", partition=partition)
    done.commit_transaction(PATIENCE_S)
    opened.flush(PATIENCE_S)
    return {f"{name}-{partition}".encode() for partition in range(2)}, opened


def committed_values(bootstrap: str) -> set[bytes]:
    """All that a reader of committed records finds, up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditors",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("paid", partition, 0) for partition in range(2)])
    found, ended = set(), set()
    while len(ended) < 2:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "a transaction is open for ever"
        if message.error() is None:
            found.add(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return found


def commit_offsets(bootstrap: str, group: str, offsets: dict[Place, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(*place, offset) for place, offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


def committed_offsets(bootstrap: str, group: str) -> dict[Place, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition("t", partition) for partition in range(2)]
    found = {
        (each.topic, each.partition): each.offset for each in consumer.committed(places, PATIENCE_S)
    }
    consumer.close()
    return found


def following(bootstrap: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "followers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(2)])
    return consumer


def read_to_the_end(consumer: Consumer, wanted: Acknowledged) -> None:
    """Until every one of these has come, at its place."""
    left = dict(wanted)
    deadline = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, f"{len(left)} records do not come"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            place = (message.topic(), message.partition(), message.offset())
            if left.get(place) == message.value():
                del left[place]


def test_an_older_log_file_is_begun_anew_instead_of_the_newer_one_that_is_gone(
    tmp_path: Path,
) -> None:
    agent = FrazilDev(tmp_path, *flags_of(EAGER))
    data = tmp_path / "data"
    with agent:
        create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "t", 2)
        kept = produced(agent.bootstrap, "t", 100, 0)
        backup(data / "log.db", tmp_path / "older.db")
        kept |= produced(agent.bootstrap, "t", 100, 100)
        all_is_archived(agent, data)
        late = produced(agent.bootstrap, "t", 50, 200)
        agent.child.kill()
    put_back(data / "log.db", tmp_path / "older.db")
    told = json.loads(recover(agent.child, "--dry-run", "--json", "--data", str(data)))
    recover(agent.child, "--yes", "--data", str(data))
    with agent:
        found = read_all(agent.port, "t")
        assert kept.items() <= found.items()
        assert_only_the_listed_is_lost(kept | late, found, told)


def test_a_copy_of_the_store_that_was_made_in_the_middle_is_a_cluster_elsewhere(
    tmp_path: Path,
) -> None:
    agent = FrazilDev(tmp_path / "here", *flags_of(EAGER))
    there = tmp_path / "there" / "data"
    with agent:
        create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "t", 2)
        kept = produced(agent.bootstrap, "t", 100, 0)
        here = tmp_path / "here" / "data"
        all_is_archived(agent, here)
        shutil.copytree(here / "objects", there / "objects")
        produced(agent.bootstrap, "t", 100, 100)
    other = FrazilDev(tmp_path / "there", *flags_of(EAGER))
    recover(other.child, "--yes", "--data", str(there))
    with other:
        assert kept.items() <= read_all(other.port, "t").items()
        new = produced(other.bootstrap, "t", 10, 500)
        assert new.items() <= read_all(other.port, "t").items()


def flags_of(settings: tuple[str, ...]) -> list[str]:
    return [word for each in settings for word in ("--set", each)]


def backup(log: Path, to: Path) -> None:
    with closing(sqlite3.connect(log)) as here, closing(sqlite3.connect(to)) as there:
        here.backup(there)


def put_back(log: Path, older: Path) -> None:
    for beside in ("-wal", "-shm"):
        log.with_name(log.name + beside).unlink(missing_ok=True)
    shutil.copy(older, log)
