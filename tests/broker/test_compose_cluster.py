"""The processes of deploy/compose.yaml, with what it gives them, on loopback instead of in containers.

Names of containers and their ports are replaced, and nothing else: inside, they are 127.0.0.1 here; outside, localhost.
"""

import operator
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from tests.broker.test_compose import AGENTS, SERVICES, export_file, published
from tests.clients.bounded import until
from tests.parts import install
from tests.parts.process import Child, free_port
from tests.parts.servers import PostgresServer, at_once, http_ok

pytestmark = pytest.mark.integration


class Cluster:
    """Processes of the file's services."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[tuple[str, int], int] = defaultdict(free_port)
        """Here, by service and port of its container."""
        self.children: dict[str, Child] = {}

    def here(self, text: str, service: str) -> str:
        """What is told to a service, with addresses of this machine."""

        def place(found: re.Match[str]) -> str:
            host, port = found[1], int(found[2])
            if host == "localhost":
                (inside,) = [one for one, outside in published(service).items() if outside == port]
                return f"localhost:{self.ports[service, inside]}"
            name = host if host in SERVICES else service
            return f"127.0.0.1:{self.ports[name, port]}"

        moved = re.sub(r"\b(localhost|0\.0\.0\.0|127\.0\.0\.1|[a-z]+\d?):(\d{4})\b", place, text)
        return moved.replace("/data", str(self.folder / service))

    def is_healthy(self, service: str) -> bool:
        """What the container's check says, for those that are Python's."""
        command = [self.here(word, service) for word in SERVICES[service]["healthcheck"]["test"]]
        assert command[:2] == ["CMD", "python"]
        done = subprocess.run([sys.executable, *command[2:]], check=False, capture_output=True)
        return done.returncode == 0

    def start(self, service: str, argv: list[str]) -> None:
        environ = SERVICES[service].get("environment", {})
        child = Child(
            argv,
            log=self.folder / f"{service}.log",
            env={name: self.here(value, service) for name, value in environ.items()},
        )
        self.children[service] = child
        child.start(lambda: self.is_healthy(service))

    def start_servers(self) -> None:
        (self.folder / "etcd").mkdir()
        program, *flags = SERVICES["etcd"]["command"]
        assert program == "etcd"
        peer = f"http://127.0.0.1:{free_port()}"
        own = ["--unsafe-no-fsync", "--log-level=warn", f"--listen-peer-urls={peer}"]
        own += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
        etcd = Child(
            [str(install.etcd()), *(self.here(flag, "etcd") for flag in flags), *own],
            log=self.folder / "etcd.log",
        )
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "minio").symlink_to(install.minio())
        shell, option, script = SERVICES["minio"]["entrypoint"]
        script = self.here(script.replace(" :9000", " 127.0.0.1:9000"), "minio")
        environ = {**SERVICES["minio"]["environment"], "PATH": f"{programs}:{os.environ['PATH']}"}
        minio = Child([shell, option, script], log=self.folder / "minio.log", env=environ)
        self.children |= {"etcd": etcd, "minio": minio}
        etcd.start(lambda: self.answers("etcd", 2379, "/health"))
        minio.start(lambda: self.answers("minio", 9000, "/minio/health/ready"))

    def answers(self, service: str, port: int, path: str) -> bool:
        return http_ok(self.ports[service, port], path)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    postgres = PostgresServer(tmp_path)
    found.ports["postgres", 5432] = postgres.port
    try:
        postgres.start()
        with psycopg.connect(postgres.uri.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("CREATE DATABASE lake")
        found.start_servers()
        yield found
    finally:
        for child in reversed(found.children.values()):
            child.stop()
        postgres.stop()


def brokers(address: str) -> set[str]:
    """Hosts of all brokers that a client is told there."""
    metadata = Producer({"bootstrap.servers": address}).list_topics(timeout=30)
    return {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}


def test_the_cluster_of_the_file_is_reached_inside_and_outside_and_has_tables(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Spark, which takes longer than all else: a table is made, and nothing is exported."""
    for variable in [name for name in os.environ if name.startswith("FRAZIL_")]:
        monkeypatch.delenv(variable)
    frazil = [sys.executable, "-m", "broker"]
    at_once(lambda agent: cluster.start(agent, [*frazil, *SERVICES[agent]["command"]]), AGENTS)
    for host, port in (("localhost", 9092), ("127.0.0.1", 9093)):
        told = {f"{host}:{cluster.ports[agent, port]}" for agent in AGENTS}
        # Each is ready when it has begun itself; of the others it hears a moment later.
        asked = f"{host}:{cluster.ports['agent1', port]}"
        until(partial(brokers, asked), partial(operator.eq, told))

    file, data = cluster.folder / "export.toml", str(cluster.folder / "exporter")
    file.write_text(cluster.here(export_file().read_text(), "exporter"))
    producer = Producer({"bootstrap.servers": f"localhost:{cluster.ports['agent2', 9092]}"})
    producer.produce("greetings", b"hello")
    assert producer.flush(30) == 0
    init = ["export", "init", "--topic", "greetings", "--config", str(file), "--data", data]
    done = subprocess.run([*frazil, *init], check=True, capture_output=True, text=True)
    assert done.stdout == "greetings: table frazil.greetings is ready\n"
    assert (cluster.folder / "minio" / "frazil" / "lake").is_dir()
