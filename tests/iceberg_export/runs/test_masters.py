"""A Spark master and its worker as processes of their own: executors with the exporter's packages,
but without the exporter, which comes to them as a wheel."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from tests.iceberg_export.kills import descendants
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.world import World, some_records
from tests.parts import install
from tests.parts.process import Child, free_port
from tests.parts.servers import get_json

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).parent
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SECRET = "0123456789abcdef0123456789abcdef"
PATIENCE_S = 600
COUNT = 4 * 15 * 50


class Cluster(NamedTuple):
    master: str
    wheel: Path
    python: Path
    """Has what the exporter needs, and not the exporter."""
    work: Path
    """Folders of applications, in them those of executors."""
    worker: Child

    def environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(self.python)}

    def applications(self) -> set[Path]:
        return set(self.work.glob("app-*"))


def python_without_frazil(folder: Path) -> Path:
    """An environment that sees the packages of this one, but for what is installed editable: a
    folder that is only named in a `.pth` has no `.pth` of its own read."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    python = folder / "bin" / "python"
    seen = subprocess.run(
        [python, "-c", "import pyspark, numba, iceberg_export"],
        cwd=folder,
        env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'iceberg_export'" in seen.stderr
    return python


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("spark")
    install.java()
    pack = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT]
    subprocess.run(pack, check=True)
    (wheel,) = folder.glob("frazil-*.whl")
    port, web = free_port(), free_port()
    env = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dspark.master.rest.enabled=false"
        f" -Dspark.authenticate=true -Dspark.authenticate.secret={SECRET}"
        " -Dspark.network.crypto.enabled=true",
        "PYTHONPATH": "",
    }
    start = [str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"]
    here = ["--host", "127.0.0.1"]
    master = Child(
        [*start, *here, "--port", str(port), "--webui-port", str(web)],
        log=folder / "master.log",
        env=env,
    )
    address = f"spark://127.0.0.1:{port}"
    work = folder / "work"
    worker = Child(
        [
            *(start[0], "org.apache.spark.deploy.worker.Worker", *here, "--webui-port", "0"),
            *("--cores", "2", "--memory", "2g", "--work-dir", str(work), address),
        ],
        log=folder / "worker.log",
        env=env,
    )

    def workers() -> int:
        told = get_json(web, "/json/")
        assert isinstance(told, dict)
        return int(told["aliveworkers"])

    def is_up() -> bool:
        try:
            return workers() == 0
        except (OSError, AssertionError):
            return False  # It answers 404 before its pages are there.

    try:
        master.start(is_up, seconds=PATIENCE_S)
        worker.start(lambda: workers() == 1, seconds=PATIENCE_S)
        yield Cluster(address, wheel, python_without_frazil(folder / "python"), work, worker)
    finally:
        worker.stop()
        master.stop()


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path / "store")
    found.create("orders", 4)
    for _ in range(3):
        for codec in range(5):
            found.commit("orders", {p: [some_records(50)] for p in range(4)}, codec=codec)
    return found


def proven(address: str, data: Path) -> str:
    """What `verify` says, by another Spark."""
    command = [sys.executable, "-m", "iceberg_export", "verify", "--topic", "orders"]
    command += ["--master", "local[1]", "--agent", address, "--data", str(data)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def executor_that_has_begun(cluster: Cluster) -> int:
    """The process id of an executor whose first task has just started Python: before that has
    imported what it needs, a second or more, no task is done."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        below = descendants(cluster.worker.pid)
        if any("-m iceberg_export.spark_daemon" in command for command in below.values()):
            (executor,) = [
                pid for pid, text in below.items() if " org.apache.spark.executor." in text
            ]
            return executor
        time.sleep(0.01)
    pytest.fail(f"no executor began a task\n{cluster.worker.tail()}")


def test_spark_submit_brings_the_wheel_and_a_killed_executor_costs_no_record(
    cluster: Cluster, world: World, tmp_path: Path
) -> None:
    before = cluster.applications()
    submit = [str(SPARK / "bin" / "spark-submit"), "--master", cluster.master]
    submit += ["--conf", f"spark.executor.extraJavaOptions={QUICK}"]
    submit += ["--conf", f"spark.authenticate.secret={SECRET}"]
    submit += ["--driver-java-options", QUICK, "--py-files", str(cluster.wheel)]
    with served(world) as address, (tmp_path / "log").open("wb") as log:
        exporter = [str(ROOT / "deploy" / "spark" / "frazil_export.py"), "run", "--once"]
        exporter += ["--agent", address, "--data", str(tmp_path / "data")]
        exporter += ["--set", "split.bytes.max=1"]
        with subprocess.Popen(
            [*submit, *exporter],
            cwd=tmp_path,
            env=cluster.environment(),
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process:
            os.kill(executor_that_has_begun(cluster), signal.SIGKILL)
            out, _ = process.communicate(timeout=PATIENCE_S)
        said = (tmp_path / "log").read_text()
        assert process.returncode == 0, said[-4000:]
        assert f"orders: {COUNT} records in " in out.decode()
        assert f"{COUNT} records, each exactly once" in proven(address, tmp_path / "data")
    (application,) = cluster.applications() - before
    assert {path.name for path in application.iterdir()} >= {"0", "1"}, "no second executor"
    assert "Lost executor 0" in said


def test_frazil_export_runs_on_a_master_and_what_was_compiled_is_kept_beside_the_wheel(
    cluster: Cluster, world: World, tmp_path: Path
) -> None:
    before = cluster.applications()
    command = [sys.executable, "-m", "iceberg_export", "run", "--once"]
    command += ["--master", cluster.master, "--set", f"spark.submit.pyFiles={cluster.wheel}"]
    command += ["--set", f"spark.executor.extraJavaOptions={QUICK}"]
    command += ["--set", f"spark.authenticate.secret={SECRET}"]
    with served(world) as address:
        done = subprocess.run(
            [*command, "--agent", address, "--data", str(tmp_path / "data")],
            cwd=ROOT,
            env=cluster.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"orders: {COUNT} records in ")
        assert not re.search(r"^[\d:]+ (WARN|ERROR) ", done.stderr, re.MULTILINE)
        assert f"{COUNT} records, each exactly once" in proven(address, tmp_path / "data")
    (application,) = cluster.applications() - before
    kept = list(
        application.glob(f"0/{cluster.wheel.name}.files/iceberg_export/*/__pycache__/*.nbi")
    )
    assert kept, "each Python worker would compile anew"
