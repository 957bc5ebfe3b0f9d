"""What several tests of faults begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts.servers import EtcdServer, MinioServer


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[EtcdServer, MinioServer]]:
    """An etcd and an S3 server of the test's own, since it loses one, or sets it back."""
    etcd, minio = EtcdServer(tmp_path / "own-etcd"), MinioServer(tmp_path / "own-minio")
    etcd.start()
    minio.start()
    yield etcd, minio
    etcd.stop()
    minio.stop()
