"""An entry that nobody can decode stops real agents, and `frazil log void` lets them start again.

Over SQLite under one agent, and over etcd under three that are at work when it comes.
"""

import asyncio
import subprocess
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from broker.reports.log_lines import place
from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import Entry, Open
from coordinator.log.metadata_log import MetadataLog
from coordinator.log.open_log import LogOptions, open_log
from protocol.types import INCARNATION_NONE
from tests.faults.load import Load, assert_nothing_lost
from tests.parts.process import Child
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, FrazilDev, MinioServer, at_once

pytestmark = pytest.mark.integration


async def _write_bad_entry(log: MetadataLog) -> str:
    """By somebody who is gone; where it lies."""
    async with aclosing(log):
        lease = await log.grant(60_000)
        opening = Open(lease, "stranger", -1, "", (), "9.9", 5)
        payload = encode_entry(Entry(INCARNATION_NONE, 0, 1, (opening,)))
        session = await log.open(lease, payload)
        position = await log.append(session, 1, b"of a later version")
        await log.revoke(lease)
    return place(position)


def _void(agent: Frazil, position: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [agent.child.argv[0], "log", "void", position, "--reason", "a bug in 9.9", *flags],
        env=agent.child.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _ends_by_itself(child: Child) -> None:
    with pytest.raises(AssertionError, match="ended by itself"):
        child.start(lambda: False, seconds=60)


@pytest.mark.promise("P13")
def test_an_agent_over_sqlite_starts_again_once_the_entry_is_void(tmp_path: Path) -> None:
    agent = FrazilDev(tmp_path)
    agent.start()
    data = tmp_path / "data"
    load = Load(agent.bootstrap, "t", partitions=1)
    load.start()
    load.wait_for_acks(20, seconds=30)
    load.stop()
    in_use = _void(agent, "1:1", "--data", str(data), "--yes")
    assert in_use.returncode == 1
    assert "in use by another process" in in_use.stderr
    agent.stop()
    log = open_log(f"sqlite://{data}/log.db", LogOptions(), "frazil")
    position = asyncio.run(_write_bad_entry(log))
    for _ in range(2):
        _ends_by_itself(agent.child)
    assert f"frazil log void {position}" in agent.child.tail()

    unasked = _void(agent, position, "--data", str(data))
    assert unasked.returncode == 1
    assert "there is no terminal to ask" in unasked.stderr
    _ends_by_itself(agent.child)
    voided = _void(agent, position, "--data", str(data), "--yes")
    assert voided.returncode == 0, voided.stderr
    assert f"{position} VOID n=1" in voided.stdout
    agent.start()
    assert_nothing_lost(load.audit(agent.port))
    assert agent.stop() == 0


@pytest.mark.promise("P13")
def test_agents_over_etcd_that_were_at_work_lose_nothing_that_they_acknowledged(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    cluster = FrazilCluster(tmp_path / "cluster", etcd, minio, agents=3)
    cluster.start()
    load = Load(cluster.bootstrap, "t")
    load.start()
    load.wait_for_acks(100, seconds=60)
    flags = cluster.agents[0].child.argv[2:]
    url = next(word for word in flags if word.startswith("log=")).removeprefix("log=")
    position = asyncio.run(_write_bad_entry(open_log(url, LogOptions(), "cluster")))
    deadline = time.monotonic() + 30
    while any(agent.child.running for agent in cluster.agents):
        assert time.monotonic() < deadline, "an agent went past the entry"
        time.sleep(0.05)
    assert all(f"log void {position}" in agent.child.tail() for agent in cluster.agents)
    # Their sessions run out with their leases.
    deadline = time.monotonic() + 60
    while (voided := _void(cluster.agents[0], position, "--yes", *flags)).returncode:
        assert "agents have sessions" in voided.stderr
        assert " of agent" in voided.stderr
        assert time.monotonic() < deadline, voided.stderr
    at_once(Frazil.start, cluster.agents)
    load.wait_for_acks(100, seconds=60)
    load.stop()
    assert_nothing_lost(load.audit(cluster.agents[1].port))
    assert cluster.stop() == [0, 0, 0]
