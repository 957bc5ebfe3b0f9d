"""etcd's password changes under an agent that writes: nobody notices."""

from pathlib import Path

import pytest

from tests.coordinator.log.test_etcd import enable_login, gateway
from tests.faults.load import Load, assert_nothing_lost
from tests.parts.servers import EtcdServer, FrazilCluster, MinioServer

pytestmark = pytest.mark.integration


def test_etcds_password_changes_under_load_and_is_used_from_then_on(
    tmp_path: Path, minio: MinioServer
) -> None:
    etcd = EtcdServer(tmp_path / "own-etcd")
    etcd.start()
    enable_login(etcd)
    file = tmp_path / "password"
    file.write_text("secret\n")
    settings = ("log.user=root", f"log.password.file={file}")
    try:
        with FrazilCluster(tmp_path / "cluster", etcd, minio, *settings, agents=2) as cluster:
            load = Load(cluster.bootstrap, "passwords", per_second=300)
            load.start()
            load.wait_for_acks(300, seconds=30)
            file.write_text("changed\n")
            load.wait_for_acks(300, seconds=30)
            token = gateway(etcd, "auth/authenticate", {"name": "root", "password": "secret"})
            changed = {"name": "root", "password": "changed"}
            gateway(etcd, "auth/user/changepw", changed, token["token"])
            load.wait_for_acks(900, seconds=30)
            load.stop()
            for agent in cluster.agents:
                assert_nothing_lost(load.audit(agent.port))
                assert agent.ready
                said = agent.child.log.read_text()
                assert "the log refuses" not in said
                assert "have changed and are taken" in said
            assert cluster.stop() == [0, 0]
    finally:
        etcd.stop()
