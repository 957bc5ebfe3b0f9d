"""The log is lost, and `frazil recover` begins it anew from the object store: the drill of docs/design/running.md §7.

Over etcd under three agents, with transactions, a group, and a consumer that has read what is lost; and over a file under
one, with an older log, and copies of the store that were made in the middle of it.
"""

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.reports.log_lines import place
from tests.faults import wire
from tests.faults.disaster import (
    EAGER,
    PATIENCE_S,
    Clients,
    Place,
    all_is_archived,
    assert_only_the_listed_is_lost,
    committed_offsets,
    consumed,
    flags_of,
    following,
    planned,
    position_now,
    produced,
    read_all,
    read_to_the_end,
    recover,
    settings_of,
)
from tests.parts.servers import EtcdServer, FrazilCluster, FrazilDev, MinioServer, at_once
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration


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
        all_is_archived(store, *cluster.agents)
        reader = following(bootstrap)
        late = produced(bootstrap, "t", 100, 300)
        read_to_the_end(reader, kept | late)
        at_once(lambda each: each.child.kill(), cluster.agents)
        etcd.stop()
        shutil.rmtree(etcd.data)
        etcd.start()
        told = planned(agent.child, *settings_of(agent))
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
    return set(consumed(bootstrap, "paid").values())


def commit_offsets(bootstrap: str, group: str, offsets: dict[Place, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(*place, offset) for place, offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


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
        all_is_archived(data, agent)
        late = produced(agent.bootstrap, "t", 50, 200)
        agent.child.kill()
    put_back(data / "log.db", tmp_path / "older.db")
    told = planned(agent.child, "--data", str(data))
    recover(agent.child, "--yes", "--data", str(data))
    with agent:
        found = read_all(agent.port, "t")
        assert kept.items() <= found.items()
        assert_only_the_listed_is_lost(kept | late, found, told)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.promise("P1")
def test_a_group_reads_all_that_came_after_a_recovery_though_a_member_had_read_what_is_lost(
    tmp_path: Path, protocol: str
) -> None:
    agent = FrazilDev(tmp_path, *flags_of(EAGER))
    data = tmp_path / "data"
    with agent:
        create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "t", 2)
        member = member_of(agent.bootstrap, protocol)
        read_to_the_end(member, produced(agent.bootstrap, "t", 100, 0))
        member.commit(asynchronous=False)
        kept = position_now(agent)
        read_to_the_end(member, produced(agent.bootstrap, "t", 40, 100))
        all_is_archived(data, agent)
        agent.child.kill()
    for file in data.glob("log.db*"):
        file.unlink()
    recover(agent.child, "--yes", "--to-position", place(kept), "--data", str(data))
    with agent:
        # It stands behind records that are lost.
        with suppress(KafkaException):
            member.commit(asynchronous=False)
        new = produced(agent.bootstrap, "t", 100, 900)
        member.close()
        successor = member_of(agent.bootstrap, protocol)
        read_to_the_end(successor, new)
        successor.close()


def member_of(bootstrap: str, protocol: str) -> Consumer:
    """Of the group of readers of `t`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "members",
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    return consumer


def test_a_copy_of_the_store_that_was_made_in_the_middle_is_a_cluster_elsewhere(
    tmp_path: Path,
) -> None:
    agent = FrazilDev(tmp_path / "here", *flags_of(EAGER))
    there = tmp_path / "there" / "data"
    with agent:
        create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "t", 2)
        kept = produced(agent.bootstrap, "t", 100, 0)
        here = tmp_path / "here" / "data"
        all_is_archived(here, agent)
        shutil.copytree(here / "objects", there / "objects")
        produced(agent.bootstrap, "t", 100, 100)
    other = FrazilDev(tmp_path / "there", *flags_of(EAGER))
    recover(other.child, "--yes", "--data", str(there))
    with other:
        assert kept.items() <= read_all(other.port, "t").items()
        new = produced(other.bootstrap, "t", 10, 500)
        assert new.items() <= read_all(other.port, "t").items()


@pytest.mark.promise("P7")
def test_a_copy_of_the_store_that_lacks_chunks_is_told_so_and_serves_all_others(
    tmp_path: Path,
) -> None:
    agent = FrazilDev(tmp_path / "here", *flags_of(EAGER))
    here, there = (tmp_path / name / "data" / "objects" for name in ("here", "there"))
    with agent:
        clients = Clients(agent.bootstrap)
        clients.until_more()
        before = clients.mark()
        copy(here, there, lambda key: key.startswith("chunks/"))
        clients.until_more()
        all_is_archived(here, agent)
        copy(here, there, lambda key: not key.startswith("chunks/"))
        every = clients.killed([agent])
    other = FrazilDev(tmp_path / "there", *flags_of(EAGER))
    data = str(there.parent)
    told = planned(other.child, "--data", data)
    lacking = {row["key"] for row in told["lacking"]}
    assert lacking, "more was archived than the copy has"
    assert {key for key in lacking if (here / key).is_file()} == lacking
    assert not [key for key in lacking if (there / key).exists()]
    said = recover(other.child, "--yes", "--data", data)
    assert f"{len(lacking)} objects that the log points at are not in the object store" in said
    with other:
        ranges = json.loads(check(other, "--json").stdout)["ranges"]
        lost = {
            (row["topic"], row["partition"], offset)
            for row in ranges
            for offset in range(row["base_offset"], row["next_offset"])
        }
        repaired = check(other, "--repair", "--yes")
        assert repaired.returncode == 0, repaired.stderr
        found = consumed(other.bootstrap, "t")
        assert before.records.items() <= found.items(), "the copy has their chunks"
        assert not lost & found.keys()
        beyond = {
            place for place in every.records if found.get(place) != every.records[place]
        } - lost
        ends = [wire.end_offset(other.port, "t", partition) for partition in range(2)]
        assert all(offset >= ends[partition] for _, partition, offset in beyond)
        new = produced(other.bootstrap, "t", 10, 900_000)
        assert new.items() <= consumed(other.bootstrap, "t").items()


def copy(here: Path, there: Path, wanted: Callable[[str], bool]) -> None:
    """As far as files do not go meanwhile."""
    for path in sorted(here.rglob("*")):
        to = there / path.relative_to(here)
        if path.is_file() and wanted(str(path.relative_to(here))):
            to.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copy(path, to)


def check(agent: FrazilDev, *flags: str) -> subprocess.CompletedProcess[str]:
    http = f"http://127.0.0.1:{agent.http_port}"
    data = str(agent.folder / "data")
    return subprocess.run(
        [agent.child.argv[0], "check", "--data", data, "--agent", http, *flags],
        env=agent.child.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def backup(log: Path, to: Path) -> None:
    with closing(sqlite3.connect(log)) as here, closing(sqlite3.connect(to)) as there:
        here.backup(there)


def put_back(log: Path, older: Path) -> None:
    for beside in ("-wal", "-shm"):
        log.with_name(log.name + beside).unlink(missing_ok=True)
    shutil.copy(older, log)
