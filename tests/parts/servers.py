"""Real servers as tests use them: etcd, MinIO and Apache Kafka, one process each, on loopback."""

import base64
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

import psycopg

from broker.groups.shards import LiveAgent, preferred
from coordinator.commands.group_commands import GROUP_SHARDS
from protocol.types import Incarnation
from tests.parts import install
from tests.parts.process import Child, answers, free_port

T = TypeVar("T")
R = TypeVar("R")


def at_once(do: Callable[[T], R], each: Iterable[T]) -> list[R]:
    """The results in order, when all have ended. Raises what the first that failed raised."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(do, each))


def http_ok(port: int, path: str, *, seconds: float = 2.0) -> bool:
    """Does GET answer 200 so soon? Any failure to connect is a no."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Etcd(Protocol):
    """Of one member or of several."""

    @property
    def endpoints(self) -> Sequence[str]: ...

    def new_prefix(self) -> str:
        """A key prefix that no other test uses."""

    def begin_anew(self) -> None:
        """All that it had is gone; it runs, and is empty."""


class EtcdServer:
    """One etcd member without fsync: what it forgets in a power cut is not what we test."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.port = free_port()
        self.data = folder / "data"
        self._peer = peer = f"http://127.0.0.1:{free_port()}"
        self.url = f"http://127.0.0.1:{self.port}"
        self._prefixes = itertools.count()
        self.child = Child(
            [
                str(install.etcd()),
                *("--name", "n0", "--data-dir", str(self.data)),
                *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"n0={peer}", "--unsafe-no-fsync", "--log-level", "warn"),
                *flags,
            ],
            log=folder / "etcd.log",
        )

    @property
    def endpoints(self) -> list[str]:
        return [f"127.0.0.1:{self.port}"]

    def new_prefix(self) -> str:
        """A key prefix that no other test uses."""
        return f"/test{os.getpid()}-{next(self._prefixes)}"

    def start(self) -> None:
        self.child.start(lambda: http_ok(self.port, "/health"))

    def stop(self) -> None:
        self.child.stop()

    def begin_anew(self) -> None:
        self.child.kill()
        shutil.rmtree(self.data)
        self.start()

    def save(self, backup: Path) -> None:
        """Take a backup of the running server, as `etcdctl snapshot save` does."""
        url = f"{self.url}/v3/maintenance/snapshot"
        # Only this server's address gets here.
        with (
            urllib.request.urlopen(url, data=b"{}", timeout=30) as answer,
            backup.open("wb") as file,
        ):
            for line in answer:
                file.write(base64.b64decode(json.loads(line)["result"].get("blob", "")))

    def restore(self, backup: Path, *flags: str) -> None:
        """Make the data folder of the stopped server that of the backup."""
        assert not self.child.running
        argv = [
            *(str(install.etcdutl()), "snapshot", "restore", str(backup), "--name", "n0"),
            *("--data-dir", str(self.data), "--initial-advertise-peer-urls", self._peer),
            *("--initial-cluster", f"n0={self._peer}", *flags),
        ]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)


class MinioServer:
    """One MinIO process on one folder."""

    access_key = "frazil-test"
    secret_key = "frazil-test-secret"
    region = "us-east-1"

    def __init__(self, folder: Path, *, md5: bool = False) -> None:
        """`md5`: ETags are MD5 sums, as clients expect that were made before 2025."""
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        self._buckets = itertools.count()
        self._clients: dict[str, Any] = {}
        self.child = Child(
            [
                *(str(install.minio()), "server", str(self.data)),
                *(() if md5 else ("--no-compat",)),
                *("--address", f"127.0.0.1:{self.port}"),
            ],
            log=folder / "minio.log",
            env={
                "MINIO_ROOT_USER": self.access_key,
                "MINIO_ROOT_PASSWORD": self.secret_key,
                "MINIO_BROWSER": "off",
                "MINIO_UPDATE": "off",
            },
        )

    def start(self) -> None:
        self.child.start(lambda: http_ok(self.port, "/minio/health/ready"))

    def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self.child.stop()

    def new_bucket(self) -> str:
        """A new, empty bucket."""
        name = f"bucket{os.getpid()}-{next(self._buckets)}"
        self._client("s3").create_bucket(Bucket=name)
        return name

    def _client(self, service: str) -> Any:
        """botocore's, made once: what describes a service is megabytes of JSON."""
        if service not in self._clients:
            import botocore.session

            self._clients[service] = botocore.session.get_session().create_client(
                service,
                endpoint_url=self.endpoint,
                region_name=self.region,
                aws_access_key_id=self.access_key,
                aws_secret_access_key=self.secret_key,
            )
        return self._clients[service]

    def keeping(self, *objects: str) -> dict[str, str]:
        """Credentials, as AWS's tools find them in the environment, that may do everything but
        delete these objects: `bucket/key`, `*` for any rest."""
        denied = [f"arn:aws:s3:::{name}" for name in objects]
        policy = {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]},
                {"Effect": "Deny", "Action": ["s3:DeleteObject"], "Resource": denied},
            ],
        }
        role = "arn:aws:iam::000000000000:role/no-deletes"
        answer = self._client("sts").assume_role(
            RoleArn=role, RoleSessionName="no-deletes", Policy=json.dumps(policy)
        )
        given = answer["Credentials"]
        return {
            "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
            "AWS_SESSION_TOKEN": given["SessionToken"],
            "AWS_REGION": self.region,
        }


KAFKA_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class KafkaServer:
    """One Apache Kafka node (KRaft, broker and controller in one) from its published jars."""

    def __init__(self, folder: Path, *properties: str, java: Sequence[str] = ()) -> None:
        """`properties`: more lines, or others, for its server.properties. `java`: what it runs in;
        by default it starts soon, but does not compute as fast as it could."""
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._properties = folder / "server.properties"
        common = KAFKA_PROPERTIES.format(port=self.port, controller=free_port(), folder=folder)
        self._properties.write_text("\n".join([common, *properties]))
        classes = ("-cp", f"{install.kafka_jars()}/*")
        self.child = Child(
            [*(java or install.jvm("1g")), *classes, "kafka.Kafka", str(self._properties)],
            log=folder / "kafka.log",
        )

    def advertise(self, port: int) -> None:
        """Tell clients another port of loopback, of a proxy."""
        lines = self._properties.read_text().splitlines()
        lines.append(f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}")
        self._properties.write_text("\n".join(lines))

    def start(self) -> None:
        shutil.copytree(install.kafka_disk(), self.folder / "data")
        self.child.start(lambda: answers(self.port))

    def stop(self) -> None:
        self.child.stop()


class RestCatalogServer:
    """Iceberg's own REST catalog, over an SQLite file; tables lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.warehouse = f"file://{folder}/warehouse"
        folder.mkdir(parents=True, exist_ok=True)
        main = Path(__file__).parent / "java" / "RestCatalog.java"
        self.child = Child(
            [
                *install.java_program(main, install.iceberg_rest(), heap="256m"),
                *(str(self.port), str(folder / "catalog.db"), self.warehouse),
            ],
            log=folder / "rest.log",
        )

    def start(self) -> None:
        self.child.start(lambda: http_ok(self.port, "/v1/config"))

    def stop(self) -> None:
        self.child.stop()


class PostgresServer:
    """One PostgreSQL in a folder of its own. It does not run as root: for root it runs as nobody."""

    NOBODY = 65534

    def __init__(self, folder: Path, **settings: str) -> None:
        """`settings`: of the server, beside those of tests."""
        self.port = free_port()
        self.uri = f"postgresql+psycopg://frazil@127.0.0.1:{self.port}/postgres"
        # Not below `folder`, which nobody may not enter.
        self._own = Path(tempfile.mkdtemp(prefix="frazil-postgres-"))
        programs, as_whom = install.postgres(), list[str]()
        if os.geteuid() == 0:
            wheel = programs.parent.parent
            shutil.copytree(wheel, self._own / "wheel")
            programs = self._own / "wheel" / programs.relative_to(wheel)
            os.chown(self._own, self.NOBODY, self.NOBODY)
            who = (f"--reuid={self.NOBODY}", f"--regid={self.NOBODY}", "--clear-groups")
            as_whom = ["setpriv", *who]
        data = str(self._own / "data")
        told = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        told |= settings
        self._make = [
            *(*as_whom, str(programs / "bin" / "initdb"), "-D", data, "-U", "frazil"),
            *("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"),
        ]
        self.child = Child(
            [
                *(*as_whom, str(programs / "bin" / "postgres"), "-D", data, "-p", str(self.port)),
                *(f"--{name}={value}" for name, value in told.items()),
            ],
            log=folder / "postgres.log",
        )

    def start(self) -> None:
        subprocess.run(self._make, check=True, capture_output=True, cwd="/")
        self.child.start(self._answers)

    def restart(self) -> None:
        """At once, whoever is connected."""
        self.child.signal(signal.SIGINT)
        self.child.wait(seconds=60)
        self.child.start(self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            uri = self.uri.replace("+psycopg", "")
            psycopg.connect(uri, connect_timeout=5).close()
            return True
        return False

    def stop(self) -> None:
        """At once, whoever is connected."""
        self.child.signal(signal.SIGINT)
        self.child.wait(seconds=60)
        shutil.rmtree(self._own)


class NessieServer:
    """The Nessie catalog, in memory; tables lie in a bucket of their own."""

    START_S = 300.0

    def __init__(self, folder: Path, store: MinioServer) -> None:
        """`store` has ETags that are MD5 sums."""
        self.store = store
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/iceberg"
        folder.mkdir(parents=True, exist_ok=True)
        s3 = "nessie.catalog.service.s3.default-options"
        key = "frazil.key"
        told = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": free_port(),
            # Else a folder var/log is made wherever the tests were started.
            "quarkus.http.access-log.enabled": "false",
            "nessie.catalog.default-warehouse": "warehouse",
            "nessie.catalog.warehouses.warehouse.location": f"s3://{store.new_bucket()}/",
            f"{s3}.endpoint": store.endpoint,
            f"{s3}.region": store.region,
            f"{s3}.path-style-access": "true",
            f"{s3}.request-signing-enabled": "false",
            f"{s3}.access-key": f"urn:nessie-secret:quarkus:{key}",
            f"{key}.name": store.access_key,
            f"{key}.secret": store.secret_key,
        }
        self.child = Child(
            [
                *(str(install.jre_25()), "-Xmx512m", "-XX:+UseSerialGC"),
                *("-XX:TieredStopAtLevel=1", "--sun-misc-unsafe-memory-access=allow"),
                *(f"-D{name}={value}" for name, value in told.items()),
                *("-jar", str(install.nessie())),
            ],
            log=folder / "nessie.log",
        )

    def start(self) -> None:
        ready = "/iceberg/v1/config"
        self.child.start(lambda: http_ok(self.port, ready), seconds=self.START_S)

    def stop(self) -> None:
        self.child.stop()

    def head(self) -> str:
        """The commit that branch main is at."""
        found = get_json(self.port, "/api/v2/trees/main")
        assert isinstance(found, dict)
        return str(found["reference"]["hash"])

    def go_back(self, commit: str) -> None:
        """Set branch main to an earlier commit of its own, as `nessie reset` does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            body = json.dumps({"type": "BRANCH", "name": "main", "hash": commit})
            headers = {"Content-Type": "application/json"}
            connection.request("PUT", f"/api/v2/trees/main@{self.head()}", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
        finally:
            connection.close()


def get_text(port: int, path: str) -> str:
    """What GET answers. Raises AssertionError unless the status is 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{path}: {answer.status} {body!r}"
        return body.decode()
    finally:
        connection.close()


def get_json(port: int, path: str) -> object:
    """The JSON that GET answers. Raises AssertionError unless the status is 200."""
    return json.loads(get_text(port, path))


def readiness(port: int) -> dict[str, Any]:
    """What an agent says of itself, whether it is ready or not."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health/ready")
        told: dict[str, Any] = json.loads(connection.getresponse().read())
        return told
    finally:
        connection.close()


class Frazil:
    """One agent as a process of its own: `frazil dev` or `frazil serve` with these arguments."""

    def __init__(self, folder: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.http_port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        command = str(Path(sys.executable).parent / "frazil")
        self.child = Child([command, *arguments], log=folder / "frazil.log", env=env)
        # Every FRAZIL_… is a setting; whatever the tests themselves run with is none of these.
        for variable in [name for name in self.child.env if name.startswith("FRAZIL_")]:
            if env is None or variable not in env:
                del self.child.env[variable]

    @property
    def ready(self) -> bool:
        return http_ok(self.http_port, "/health/ready")

    def start(self, *, seconds: float = 60.0) -> None:
        self.child.start(lambda: self.ready, seconds=seconds)

    def until_ready(self, *, seconds: float = 40.0) -> None:
        """Wait until it is ready (again)."""
        deadline = time.monotonic() + seconds
        while not self.ready:
            assert time.monotonic() < deadline, f"not ready again:\n{self.child.tail()}"
            time.sleep(0.1)

    def stop(self) -> int | None:
        return self.child.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def shards_of_groups(agent: Frazil) -> int:
    """How many the agent coordinates, by its metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", agent.http_port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found = re.search(r"^frazil_group_shards (\S+)$", text, re.MULTILINE)
    assert found is not None, "no metric of shards of groups"
    return int(float(found[1]))


class FrazilDev(Frazil):
    """`frazil dev`: everything embedded, data under the folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__(folder)
        self.child.argv += ["dev", "--port", str(self.port), "--http", str(self.http_port)]
        self.child.argv += ["--data", str(folder / "data"), *arguments]


class FrazilCluster:
    """Several `frazil serve` over one etcd and one S3 server, as in production."""

    PROTOCOL: ClassVar[str | None] = None
    """Of the listener, where it is not plain `listen`."""

    def __init__(
        self,
        folder: Path,
        etcd: Etcd,
        minio: MinioServer,
        *arguments: str,
        agents: int = 3,
        zones: Sequence[str] = (),
    ) -> None:
        """`zones`: of each agent, in order; none when empty."""
        assert len(zones) in {0, agents}
        name = folder.name
        common = {
            "cluster.id": name,
            "store": f"s3://{minio.new_bucket()}/{name}",
            "store.endpoint": minio.endpoint,
            "store.region": minio.region,
            "store.access.key": minio.access_key,
            "log": f"etcd://{','.join(etcd.endpoints)}{etcd.new_prefix()}",
        }
        self.agents = [
            self._agent(folder / f"agent{index}", f"agent{index}", common, arguments, minio)
            for index in range(agents)
        ]
        for agent, zone in zip(self.agents, zones, strict=False):
            agent.child.argv += ["--set", f"zone={zone}"]

    @classmethod
    def _agent(
        cls,
        folder: Path,
        name: str,
        common: dict[str, str],
        more: tuple[str, ...],
        minio: MinioServer,
    ) -> Frazil:
        agent = Frazil(folder, "serve", env={"FRAZIL_STORE_SECRET_KEY": minio.secret_key})
        address = f"127.0.0.1:{agent.port}"
        listener = (
            {"listeners": f"{cls.PROTOCOL}://{address}"} if cls.PROTOCOL else {"listen": address}
        )
        own = {
            **common,
            **listener,
            "http": f"127.0.0.1:{agent.http_port}",
            "node.name": name,
        }
        for setting in [*(f"{key}={value}" for key, value in own.items()), *more]:
            agent.child.argv += ["--set", setting]
        return agent

    @property
    def bootstrap(self) -> str:
        """One agent's address only: the others must be found through it."""
        return self.agents[0].bootstrap

    def start(self) -> None:
        at_once(Frazil.start, self.agents)

    def until_groups_settle(self, seconds: float = 60.0) -> None:
        """Wait until every agent coordinates its share of the groups.

        Before that shards move, a few seconds after each start, and whoever leaves a group in
        that moment is not heard, in Kafka neither: others wait for its session timeout then.
        """
        live = [LiveAgent(Incarnation(1 + index), index) for index in range(len(self.agents))]
        holders = [preferred(shard, live) for shard in range(GROUP_SHARDS)]
        shares = sorted(holders.count(agent.incarnation) for agent in live)
        deadline = time.monotonic() + seconds
        while (held := sorted(shards_of_groups(agent) for agent in self.agents)) != shares:
            assert time.monotonic() < deadline, f"shards of groups: {held}, not {shares}"
            time.sleep(0.2)

    def stop(self) -> list[int | None]:
        """Stop all that run; the exit codes."""
        return at_once(Frazil.stop, self.agents)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
