"""The agent that has the jobs is killed, and its worker: what is written stays, all is bounded."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from tests.bench import endurance
from tests.bench.endurance import Load, Rates
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer, get_json, get_text

pytestmark = pytest.mark.integration

RETENTION_MS = 20_000
BETWEEN_S = 8.0
PATIENCE_S = 90.0


def _holder(cluster: FrazilCluster) -> Frazil:
    """The agent that has the jobs, once one that runs has them."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for index, agent in enumerate(cluster.agents):
            # One that is ready may have no session a moment later.
            with contextlib.suppress(OSError, AssertionError):
                jobs = get_json(agent.http_port, "/jobs")["jobs"]
                holders = {job["node_name"] for job in jobs}
                if agent.ready and holders == {f"agent{index}"}:
                    return agent
        assert time.monotonic() < deadline, "nobody has the jobs"
        time.sleep(0.2)


def _worker(agent: Frazil) -> int:
    """The id of its worker's process, once there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while not (children := endurance.children(agent.child.pid)):
        assert time.monotonic() < deadline, "there is no worker"
        time.sleep(0.1)
    return children[0]


def _until_cut(cluster: FrazilCluster) -> None:
    """Wait until whoever has the jobs has cut the log."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(
        endurance.metric(get_text(agent.http_port, "/metrics"), "frazil_log_entries_cut_total")
        for agent in cluster.agents
        if agent.ready
    ):
        assert time.monotonic() < deadline, "the log was not cut"
        time.sleep(0.5)


def test_nothing_is_lost_while_jobs_lose_their_agents_and_workers(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    settings = endurance.settings(quick=True)
    with FrazilCluster(tmp_path / "bounded", etcd, minio, *settings) as cluster:
        everywhere = ",".join(agent.bootstrap for agent in cluster.agents)
        load = Load(everywhere, Rates(events=300, event_bytes=500, state=200, orders=0, queue=0))
        load.create_topics(retention_ms=RETENTION_MS)
        load.start()
        time.sleep(BETWEEN_S)
        _holder(cluster).child.kill()
        time.sleep(BETWEEN_S)
        os.kill(_worker(_holder(cluster)), signal.SIGKILL)
        time.sleep(BETWEEN_S)
        for agent in cluster.agents:
            if not agent.child.running:
                agent.start()
        _holder(cluster).child.kill()
        time.sleep(BETWEEN_S)
        load.stop()
        load.audit()
        _until_cut(cluster)
