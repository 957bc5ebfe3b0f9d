"""Agents of this release and of kept ones, with the settings that kept data are used with."""

import os
import sys
import zipfile
from pathlib import Path

from tests.clients.bounded import EAGER
from tests.parts.process import Child, free_port
from tests.parts.servers import EtcdServer, Frazil

FOR_EVER = "2147483647"
HERE = "127.0.0.1"
NO_TESTS = "127.0.0.2"
"""Where agents are whose data are kept: the log names them to clients until they are known to be
dead, and nothing that a test starts may be taken for one."""
SETTINGS = (
    *EAGER,
    "group.initial.rebalance.delay.ms=0",
    # However old the data are when they are read.
    f"offsets.retention.minutes={FOR_EVER}",
    f"transactional.id.expiration.ms={FOR_EVER}",
    f"producer.id.expiration.ms={FOR_EVER}",
)


class KeptAgent(Frazil):
    """An agent over SQLite or etcd, and objects in a folder; with a schema registry.

    `package`: where the wheel of another release was unpacked; None: this release.
    """

    def __init__(
        self, folder: Path, *settings: str, package: Path | None = None, host: str = HERE
    ) -> None:
        super().__init__(folder, "serve")
        self.bootstrap = f"{host}:{self.port}"
        self.registry = f"http://127.0.0.1:{free_port()}"
        self.release = ReleaseOf(self.child)
        self.be(package)
        own = (
            f"listen={self.bootstrap}",
            f"http=127.0.0.1:{self.http_port}",
            f"schema.registry.listeners={self.registry}",
            "cluster.id=kept",
        )
        for setting in (*own, *SETTINGS, *settings):
            self.child.argv += ["--set", setting]

    def be(self, package: Path | None) -> None:
        """From its next start on it is of this release, under the same name and addresses."""
        self.release.be(package)

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"


class ReleaseOf:
    """Which release a process is of that runs `frazil`."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._own = self._command = child.argv[:1]
        self._own_env = child.env

    def be(self, package: Path | None) -> None:
        """From its next start on; None: this release. Its arguments and variables are what they were."""
        arguments = self._child.argv[len(self._command) :]
        self._command, env = self._own, self._own_env
        if package is not None:
            self._command = [sys.executable, "-m", "broker"]
            env = env | environment(package)
        self._child.argv, self._child.env = [*self._command, *arguments], env


def environment(package: Path) -> dict[str, str]:
    """Variables under which Python runs what was unpacked, in child processes as well."""
    # Without the latter `-m` would find the packages of the working directory first.
    return {"PYTHONPATH": str(package), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def unpacked(wheel: Path, into: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    return into


def embedded(
    folder: Path, data: Path, *, package: Path | None = None, host: str = HERE
) -> KeptAgent:
    """One over a data folder as `frazil dev` has it."""
    return KeptAgent(
        folder,
        f"store=file://{data}/objects",
        f"log=sqlite://{data}/log.db",
        "node.name=dev",
        package=package,
        host=host,
    )


def on_etcd(
    folder: Path,
    data: Path,
    etcd: EtcdServer,
    prefix: str,
    *,
    package: Path | None = None,
    host: str = HERE,
) -> KeptAgent:
    """One of a cluster, named like its folder."""
    return KeptAgent(
        folder,
        f"store=file://{data}/objects",
        f"log=etcd://{','.join(etcd.endpoints)}{prefix}",
        f"node.name={folder.name}",
        package=package,
        host=host,
    )


def own_environment(package: Path) -> dict[str, str]:
    return {**os.environ, **environment(package)}
