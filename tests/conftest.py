"""Fixtures that every folder of tests shares: real parts, each started once, and options."""

import os
from collections.abc import Iterator

import pytest

from tests.parts.servers import EtcdServer, MinioServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the outcomes of tests/scripts/*.txt anew"
    )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a test that did not run has failed: what it would have shown is not known."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


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
