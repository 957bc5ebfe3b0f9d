"""Fixtures that every folder of tests shares: real parts, each started once, and options."""

from collections.abc import Iterator

import pytest

from tests.parts.servers import EtcdServer, MinioServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the outcomes of tests/scripts/*.txt anew"
    )


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A real etcd for the whole run; tests share it under prefixes of their own."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """A real S3 server for the whole run; tests share it with buckets of their own."""
    server = MinioServer(tmp_path_factory.mktemp("minio"))
    server.start()
    yield server
    server.stop()
