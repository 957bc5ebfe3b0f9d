"""Keeps a release: runs its wheel, has clients write, and packs what it left (see the package)."""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.cli.admin_client import AgentPlace, ask
from tests.clients.bounded import Bounded, until
from tests.parts import install
from tests.parts.servers import EtcdServer
from tests.releases import Release, agents, etcd_dump, story
from tests.releases.agents import NO_TESTS, KeptAgent
from tests.releases.seen import Seen, differences, seen

PREFIX = "/frazil"
KEYS = "keys.txt"


def keep(wheel: Path, release: Release) -> None:
    if release.wheel.exists():
        sys.exit(f"{release.version} is kept already: keep this one under another version")
    with tempfile.TemporaryDirectory(prefix="frazil-release-") as name:
        folder = Path(name)
        package = agents.unpacked(wheel, folder / "package")
        release.folder.mkdir()
        try:
            _keep_data(release, package, folder)
            _keep_etcd(release, package, folder)
        except BaseException:
            shutil.rmtree(release.folder)
            raise
    shutil.copy(wheel, release.wheel)


@contextmanager
def started(agent: KeptAgent) -> Iterator[KeptAgent]:
    with agent:
        yield agent
        assert agent.stop() == 0, agent.child.tail()


def _keep_data(release: Release, package: Path, folder: Path) -> None:
    data = folder / "data"
    (data / "objects").mkdir(parents=True)
    with started(agents.embedded(folder / "dev", data, package=package, host=NO_TESTS)) as agent:
        left = story.write(agent)
        shutil.rmtree(release.warehouse, ignore_errors=True)
        _export(agent, release.warehouse, package)
        take_snapshots(agent)
        story.write_plain(agent.bootstrap, first=5)
        story.write_typed(agent.bootstrap, first=3)
        before = seen(agent)
    del left
    _pack(release, "tables", release.warehouse)
    _pack(release, "data", data)
    again = release.unpack("data", folder / "again")
    with started(agents.embedded(folder / "dev-again", again, package=package)) as agent:
        _expect(release, "data", before, seen(agent))


def _keep_etcd(release: Release, package: Path, folder: Path) -> None:
    data = folder / "cluster"
    (data / "objects").mkdir(parents=True)
    etcd = EtcdServer(folder / "etcd")
    etcd.start()
    first, second = (
        agents.on_etcd(
            folder / f"agent-{number}", data, etcd, PREFIX, package=package, host=NO_TESTS
        )
        for number in range(2)
    )
    with started(first):
        left = story.write(first)
        take_snapshots(first)
        second.start()
        story.write_plain(second.bootstrap, first=5)
    before = seen(second)
    # It does not say that it is leaving: the log ends with what a crash leaves.
    second.child.kill()
    del left
    (data / KEYS).write_text(etcd_dump.dump(etcd, PREFIX))
    etcd.stop()
    _pack(release, "etcd", data)
    with restored_etcd(release, folder / "again") as (again, etcd):
        third = agents.on_etcd(folder / "agent-2", again, etcd, PREFIX, package=package)
        with started(third) as agent:
            _expect(release, "etcd", before, seen(agent))


@contextmanager
def restored_etcd(release: Release, folder: Path) -> Iterator[tuple[Path, EtcdServer]]:
    """A folder with the objects, and an etcd with the keys."""
    data = release.unpack("etcd", folder / "data")
    etcd = EtcdServer(folder / "etcd")
    etcd.start()
    try:
        etcd_dump.restore(etcd, (data / KEYS).read_text())
        yield data, etcd
    finally:
        etcd.stop()


def take_snapshots(agent: KeptAgent, topic: str = "compacted") -> None:
    """Two, so that the log is cut, with something between and behind them."""
    jobs = Bounded(agent.bootstrap, agent.http_port)

    def published() -> list[dict[str, object]]:
        found: list[dict[str, object]] = ask(AgentPlace(agent.admin), "/jobs")["snapshots"]
        return found

    for count in (1, 2):
        jobs.run("snapshot")
        until(published, lambda found, count=count: len(found) >= count)
        story.write_keys(agent.bootstrap, topic, rounds=1)


def _export(agent: KeptAgent, warehouse: Path, package: Path) -> None:
    install.java()
    subprocess.run(
        [
            *(sys.executable, "-m", "broker", "export", "run", "--once"),
            *("--agent", agent.admin, "--data", str(warehouse)),
            *("--set", f"schema.registry.url={agent.registry}"),
        ],
        env=agents.own_environment(package),
        check=True,
    )


def _expect(release: Release, name: str, before: Seen, after: Seen) -> None:
    assert (found := differences(before, after)) == [], found
    text = json.dumps(after, indent=1, ensure_ascii=False, sort_keys=True)
    (release.folder / f"{name}.json").write_text(text + "\n")


def _pack(release: Release, name: str, folder: Path) -> None:
    """Nothing of who packed it, and when."""

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with tarfile.open(release.folder / f"{name}.tar.xz", "w:xz") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=anonymous)
