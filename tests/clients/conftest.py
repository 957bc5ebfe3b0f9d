"""The two kinds of cluster that every client is tried against."""

from collections.abc import Iterator

import pytest

from tests.parts.servers import EtcdServer, FrazilCluster, FrazilDev, MinioServer

SETTINGS = ("num.partitions=4",)


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    with FrazilDev(tmp_path_factory.mktemp("embedded"), "--set", *SETTINGS) as agent:
        yield agent
        assert agent.stop() == 0


@pytest.fixture(scope="session")
def three_agents(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[FrazilCluster]:
    with FrazilCluster(tmp_path_factory.mktemp("three"), etcd, minio, *SETTINGS) as cluster:
        yield cluster
        assert cluster.stop() == [0, 0, 0]


@pytest.fixture(params=["embedded", "three_agents"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where a client is told to connect: the embedded agent, or one of three."""
    return request.getfixturevalue(request.param).bootstrap
