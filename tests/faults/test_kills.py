"""kill -9 under load: nothing acknowledged is missing, nothing of an idempotent producer twice."""

from pathlib import Path

import pytest

from tests.faults.load import Load, assert_nothing_lost
from tests.parts.servers import EtcdServer, FrazilCluster, FrazilDev, MinioServer

pytestmark = pytest.mark.integration

QUICK = ("lease.ttl.ms=3000", "session.deadline.ms=2000", "session.read.ms=500")
"""So that the others learn of a death soon."""


def test_the_embedded_agent_keeps_what_it_acknowledged_over_kills(tmp_path: Path) -> None:
    with FrazilDev(tmp_path / "dev") as agent:
        load = Load(agent.bootstrap, "kills")
        load.start()
        for _ in range(3):
            load.wait_for_acks(300, seconds=60)
            agent.child.kill()
            agent.start()
        load.wait_for_acks(300, seconds=60)
        load.stop()
        assert_nothing_lost(load.audit(agent.port))
        assert agent.stop() == 0


def test_clients_carry_on_when_one_of_three_agents_is_killed(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    with FrazilCluster(tmp_path / "kill-one", etcd, minio, *QUICK) as cluster:
        load = Load(cluster.bootstrap, "kills")
        load.start()
        for agent in cluster.agents:
            load.wait_for_acks(500, seconds=60)
            agent.child.kill()
            load.wait_for_acks(500, seconds=60)
            agent.start()
        load.wait_for_acks(300, seconds=60)
        load.stop()
        for agent in cluster.agents:
            assert_nothing_lost(load.audit(agent.port))
        assert cluster.stop() == [0, 0, 0]


def test_an_agent_that_was_stopped_beyond_its_lease_does_no_harm(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    with FrazilCluster(tmp_path / "pause", etcd, minio, *QUICK) as cluster:
        load = Load(cluster.bootstrap, "pauses")
        load.start()
        for agent in cluster.agents[:2]:
            load.wait_for_acks(300, seconds=60)
            agent.child.pause()
            load.wait_for_acks(1500, seconds=60)
            agent.child.resume()
            load.wait_for_acks(500, seconds=60)
        load.stop()
        for agent in cluster.agents:
            agent.until_ready()
            assert_nothing_lost(load.audit(agent.port))
        assert cluster.stop() == [0, 0, 0]
