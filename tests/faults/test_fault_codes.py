"""Real faults, and their codes in what is answered and logged: a full disk, a store that refuses, an address where
the agent is not."""

import contextlib
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from broker.cli.main import main
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch
from tests.faults.wire import batch, produce_error
from tests.parts.process import free_port
from tests.parts.servers import Frazil, FrazilDev, MinioServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

FILE_BYTES_MAX = 900_000
LIMITED = (
    "import os, resource, sys;"
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_BYTES_MAX}, {FILE_BYTES_MAX}));"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""A Python program that becomes another one, no file of which may be larger."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    """One whose files may not become large, as on a disk that is full."""
    # A pause of a busy machine is no stall, in which it would refuse whatever comes.
    agent = FrazilDev(tmp_path_factory.mktemp("dev"), "--set", "stall.ms=60000")
    agent.child.argv[:0] = [sys.executable, "-c", LIMITED]
    with agent:
        create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "t", 1)
        yield agent
        assert agent.stop() == 0


def doctor(**settings: str) -> list[str]:
    """What doctor says is wrong."""
    words = [word for item in settings.items() for word in ("--set", "=".join(item))]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["doctor", *words])
    bad = [line for line in out.getvalue().splitlines() if line.startswith("BAD")]
    assert code == bool(bad)
    return bad


@pytest.mark.fault_code("disk-full")
def test_a_full_disk_is_logged_with_its_code_and_what_fits_is_taken(agent: FrazilDev) -> None:
    large = Record(0, int(time.time() * 1000), b"key", bytes(FILE_BYTES_MAX + 1), ())
    refused = produce_error(agent.port, "t", bytes(build_batch([large])))
    assert refused == ErrorCode.KAFKA_STORAGE_ERROR
    (line,) = [line for line in agent.child.log.read_text().splitlines() if "is given up" in line]
    assert line.endswith(" [disk-full]")
    assert produce_error(agent.port, "t", batch()) == ErrorCode.NONE


@pytest.mark.fault_code("advertised-unreachable")
def test_doctor_connects_to_where_clients_are_told_that_the_agent_is(agent: FrazilDev) -> None:
    data = agent.folder / "data"
    settings = {
        "store": f"file://{data}/objects",
        "log": f"sqlite://{data}/log.db",
        "listen": f"127.0.0.1:{agent.port}",
        "http": f"127.0.0.1:{agent.http_port}",
    }
    assert doctor(**settings) == []
    nowhere = f"127.0.0.1:{free_port()}"
    (line,) = doctor(**settings, advertise=nowhere)
    assert f"are told {nowhere}, where this agent is not found" in line
    assert line.endswith(" [advertised-unreachable]")


@pytest.mark.fault_code("advertised-unreachable")
def test_doctor_tells_when_another_cluster_answers_there(agent: FrazilDev, tmp_path: Path) -> None:
    settings = {
        "cluster.id": "second",
        "store": f"file://{tmp_path}/objects",
        "log": f"sqlite://{tmp_path}/log.db",
        "listen": f"127.0.0.1:{agent.port}",
        "http": f"127.0.0.1:{agent.http_port}",
    }
    (line,) = doctor(**settings)
    assert "where cluster 'frazil' answers, and not 'second'" in line
    assert line.endswith(" [advertised-unreachable]")


@pytest.mark.fault_code("store-denied")
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"store.secret.key": "wrong"}, "SignatureDoesNotMatch"),
        ({"store.access.key": "nobody"}, "InvalidAccessKeyId"),
        ({"store": "s3://no-such-bucket"}, "NoSuchBucket"),
    ],
)
def test_doctor_names_a_store_that_refuses(
    minio: MinioServer, tmp_path: Path, wrong: dict[str, str], says: str
) -> None:
    settings = _store(minio) | {"log": f"sqlite://{tmp_path}/log.db"}
    (line,) = doctor(**settings | {"listen": "127.0.0.1:0", "http": "off"} | wrong)
    assert says in line
    assert line.endswith(" [store-denied]")


@pytest.mark.fault_code("store-denied")
def test_an_agent_whose_store_refuses_ends_with_the_code(
    minio: MinioServer, tmp_path: Path
) -> None:
    agent = Frazil(tmp_path, "serve")
    settings = _store(minio) | {"store.secret.key": "wrong", "log": f"sqlite://{tmp_path}/log.db"}
    settings |= {"listen": agent.bootstrap, "http": f"127.0.0.1:{agent.http_port}"}
    agent.child.argv += [word for item in settings.items() for word in ("--set", "=".join(item))]
    with pytest.raises(AssertionError, match="ended by itself"):
        agent.start()
    assert agent.child.tail(1).startswith("frazil serve: ")
    assert agent.child.tail(1).endswith(" [store-denied]")


def _store(minio: MinioServer) -> dict[str, str]:
    return {
        "store": f"s3://{minio.new_bucket()}",
        "store.endpoint": minio.endpoint,
        "store.region": minio.region,
        "store.access.key": minio.access_key,
        "store.secret.key": minio.secret_key,
    }
