"""An older log is put back: nothing is served, nothing deleted, and the newer one brings all back.

The log's file under one agent, and a backup of etcd, restored by etcd's own tool, under three.
"""

import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from broker.cli.admin_client import AgentPlace, ask
from tests.clients.bounded import ended_rounds
from tests.faults.disaster import REFUSED, ends_refused
from tests.faults.load import Load, assert_nothing_lost
from tests.faults.wire import batch, produce_error
from tests.parts.servers import (
    EtcdServer,
    Frazil,
    FrazilCluster,
    FrazilDev,
    MinioServer,
    at_once,
    http_ok,
)
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

ROUNDS = 10
BUMPED = ("--bump-revision", "1000000000", "--mark-compacted")


def _collect(agent: Frazil, rounds: int) -> None:
    """Have the job run so often, by whichever agent has it; each round says in the log that it ended."""
    place = AgentPlace(f"http://127.0.0.1:{agent.http_port}")
    begun = ask(place, "/jobs")["position"]
    for number in range(rounds):
        ask(place, "/jobs/collect/run", method="POST")
        deadline = time.monotonic() + 60
        while ended_rounds(place, "collect", after=begun) <= number:
            assert time.monotonic() < deadline, agent.child.tail()
            time.sleep(0.05)


def _chunks(store: Path) -> list[str]:
    """What acknowledged records may lie in."""
    return sorted(str(path) for path in store.rglob("chunks/**/*") if path.is_file())


def _restore_file(log: Path, backup: Path) -> None:
    for beside in ("-wal", "-shm"):
        log.with_name(log.name + beside).unlink(missing_ok=True)
    shutil.copy(backup, log)


@pytest.mark.fault_code("older-log")
def test_an_older_log_file_is_refused_and_the_newer_one_has_everything(tmp_path: Path) -> None:
    agent = FrazilDev(tmp_path)
    agent.start()
    log = tmp_path / "data" / "log.db"
    load = Load(agent.bootstrap, "t", partitions=1)
    load.start()
    load.wait_for_acks(5, seconds=30)
    with (
        closing(sqlite3.connect(log)) as here,
        closing(sqlite3.connect(tmp_path / "older.db")) as to,
    ):
        here.backup(to)
    load.wait_for_acks(5, seconds=30)
    load.stop()
    agent.stop()
    shutil.copy(log, tmp_path / "newer.db")
    before = _chunks(tmp_path / "data" / "objects")
    assert before
    _restore_file(log, tmp_path / "older.db")
    for _ in range(2):
        ends_refused(agent.child)
    assert _chunks(tmp_path / "data" / "objects") == before
    doctor = subprocess.run(
        [agent.child.argv[0], "doctor", *_doctor_flags(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert doctor.returncode == 1
    assert REFUSED in doctor.stdout
    _restore_file(log, tmp_path / "newer.db")
    agent.start()
    _collect(agent, ROUNDS)
    assert_nothing_lost(load.audit(agent.port))
    assert agent.stop() == 0


def _doctor_flags(data: Path) -> list[str]:
    settings = {
        "store": f"file://{data}/objects",
        "log": f"sqlite://{data}/log.db",
    }
    return [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]


@pytest.mark.parametrize("flags", [(), BUMPED], ids=["", "bumped"])
def test_a_restored_backup_of_etcd_is_refused_and_the_newer_data_have_everything(
    tmp_path: Path, parts: tuple[EtcdServer, MinioServer], flags: tuple[str, ...]
) -> None:
    etcd, minio = parts
    with FrazilCluster(tmp_path / "cluster", etcd, minio, agents=3) as cluster:
        load = Load(cluster.bootstrap, "t")
        load.start()
        load.wait_for_acks(200, seconds=60)
        etcd.save(tmp_path / "backup")
        load.wait_for_acks(200, seconds=60)
        load.stop()
        for agent in cluster.agents:
            create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), agent.folder.name, 1)
        before = _chunks(tmp_path / "own-minio")
        etcd.stop()
        etcd.data.rename(tmp_path / "newest")
        etcd.restore(tmp_path / "backup", *flags)
        etcd.start()
        at_once(_acknowledges_nothing_and_ends, cluster.agents)
        at_once(ends_refused, [agent.child for agent in cluster.agents])
        assert set(before) <= set(_chunks(tmp_path / "own-minio"))
        etcd.stop()
        shutil.rmtree(etcd.data)
        (tmp_path / "newest").rename(etcd.data)
        etcd.start()
        cluster.start()
        _collect(cluster.agents[0], ROUNDS)
        assert_nothing_lost(load.audit(cluster.agents[0].port))
        assert cluster.stop() == [0, 0, 0]


def _acknowledges_nothing_and_ends(agent: Frazil) -> None:
    """Whatever is asked while it finds out."""
    while agent.child.running:
        if http_ok(agent.http_port, "/health/live"):
            _refused(agent)
    assert "acknowledges nothing any more" in agent.child.tail()


def _refused(agent: Frazil) -> None:
    """A produce request that is not acknowledged, however it ends."""
    try:
        error = produce_error(agent.port, agent.folder.name, batch(), timeout_ms=500)
    except OSError:
        return
    assert error != 0
