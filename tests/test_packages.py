"""Packages are installed one step at a time, by one pip at a time; an interrupted step is done again."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import pytest

from iceberg_export.installation import LOG
from tests.packages import STEPS, Environment, Installer, progress

ROOT = Path(__file__).parent.parent


class World:
    """An environment in a folder, with a pip that installs nothing."""

    def __init__(self, folder: Path) -> None:
        self.environment = Environment(folder, folder / "site")
        self.ran: list[tuple[str, ...]] = []
        self.said: list[str] = []
        self.paused: list[float] = []
        self.failures = 0
        (self.environment.packages / "pip-26.dist-info").mkdir(parents=True)
        self.unpack("pip-26")

    def unpack(self, name: str, *, whole: bool = True) -> Path:
        info = self.environment.packages / f"{name}.dist-info"
        info.mkdir(exist_ok=True)
        if whole:
            (info / "RECORD").write_text(f"{info.name}/INSTALLER,sha256=…,4\n")
        return info

    def run(self, arguments: Sequence[str], log: TextIO) -> bool:
        """Notes what is run, and that nobody else could run something now."""
        self.ran.append(tuple(arguments))
        with (self.environment.folder / LOG).open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        log.write("Downloading\n")
        log.flush()
        self.failures -= 1
        return self.failures < 0

    def installer(self, *, behind: bool = False, uv: str | None = None) -> Installer:
        return Installer(
            self.environment,
            behind=behind,
            uv=uv,
            run=self.run,
            pause=self.paused.append,
            say=self.said.append,
        )

    def stamp(self, step: str, *, at: int) -> None:
        file = self.environment.folder / STEPS[step].stamp
        file.touch()
        os.utime(file, (at, at))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_installed_from_what_is_pinned_and_leaves_its_stamp(
    world: World, step: str
) -> None:
    assert world.installer().install(step)
    last = world.ran[-1]
    assert last[1:5] == ("-m", "pip", "install", "--no-input")
    assert last.count("constraints.txt") == 2
    assert (world.environment.folder / STEPS[step].stamp).exists()


def test_the_exporters_packages_leave_the_agent_alone_that_is_installed(world: World) -> None:
    assert world.installer().install("exporter")
    (command,) = world.ran
    assert command[-2:] == ("--only-deps", ".[export]")
    assert "--editable" not in command


@pytest.mark.parametrize("step", STEPS)
def test_where_there_is_uv_it_installs_the_same_by_the_same_constraints(
    world: World, step: str
) -> None:
    assert world.installer(uv="/bin/uv").install(step)
    last = world.ran[-1]
    assert last[:5] == ("/bin/uv", "pip", "install", "--python", sys.executable)
    assert last.count("constraints.txt") == 2
    assert not {"--only-deps", "--no-require-hashes"} & set(last), "uv knows neither"
    assert (world.environment.folder / STEPS[step].stamp).exists()


def test_what_uv_does_not_manage_pip_does(world: World) -> None:
    world.failures = 1
    assert world.installer(uv="/bin/uv").install("exporter")
    assert [command[0] for command in world.ran] == ["/bin/uv", sys.executable]


def test_a_download_that_breaks_off_is_tried_once_more(world: World) -> None:
    world.failures = 1
    assert world.installer().install("exporter")
    assert world.ran[0] == world.ran[1]
    assert world.paused == [15.0]


def test_a_step_that_fails_twice_leaves_no_stamp(world: World) -> None:
    world.failures = 2
    assert not world.installer().install("exporter")
    assert not (world.environment.folder / STEPS["exporter"].stamp).exists()


def test_what_is_going_to_happen_is_told_and_what_pip_said_when_it_fails(world: World) -> None:
    world.failures = 1
    assert world.installer().install("exporter")
    folder = world.environment.folder
    assert world.said == [
        f"installing the exporter's packages into {folder} (up to 630 MB to download) ...",
        "Downloading\nagain in 15 s ...",
    ]


def test_how_far_pip_is_is_the_sum_of_what_it_has_begun_to_download() -> None:
    said = """Collecting pyspark==4.1.4
  Downloading pyspark-4.1.4.tar.gz.metadata (350 kB)
  Downloading pyspark-4.1.4.tar.gz (455.6 MB)
  Using cached numpy-2.4-cp311.whl (16.9 MB)
Collecting pandas
"""
    assert progress(said) == "456 MB so far; Downloading pyspark-4.1.4.tar.gz (455.6 MB)"
    assert progress("") == ""


def test_how_far_uv_is_is_what_it_did_last() -> None:
    said = """Resolved 63 packages in 4.36s
Downloading pyarrow (52.5MiB)
Downloading pandas (11.8MiB)
 Downloaded pandas
   Building pyspark==4.1.4
"""
    assert progress(said) == "Building pyspark==4.1.4"


def test_what_is_installed_behind_an_agent_is_told_in_two_lines_and_a_log(world: World) -> None:
    world.stamp("agent", at=1)
    assert world.installer(behind=True).install("exporter")
    log = world.environment.folder / LOG
    assert world.said == [
        f"the exporter's packages are being installed meanwhile ({log})",
        "the exporter's packages are there: frazil export can be used",
    ]
    assert log.read_text() == "Downloading\n"


def test_nothing_is_installed_nor_told_when_it_is_there(world: World) -> None:
    world.stamp("agent", at=1)
    world.stamp("exporter", at=2)
    assert world.installer(behind=True).install("exporter")
    assert world.ran == world.said == []


def test_packages_of_an_agent_before_this_one_are_brought_up_to_date(world: World) -> None:
    world.stamp("exporter", at=1)
    world.stamp("agent", at=2)
    assert world.installer(behind=True).install("exporter")
    assert len(world.ran) == 1


def test_what_was_unpacked_when_pip_was_killed_is_installed_again(world: World) -> None:
    half = world.unpack("pyspark-4", whole=False)
    by_uv = world.unpack("pyarrow-26", whole=False)
    (by_uv / "RECORD").write_text("pyarrow/__init__.py,sha256=…,5\n")  # The wheel's own.
    whole = world.unpack("numpy-2")
    assert world.installer().install("exporter")
    assert not half.exists()
    assert not by_uv.exists()
    assert whole.exists()


def test_a_pip_that_was_being_replaced_is_there_again(world: World) -> None:
    (world.environment.packages / "pip-26.dist-info" / "RECORD").unlink()
    assert world.installer().install("agent")
    assert world.ran[0] == (sys.executable, "-m", "ensurepip")


def test_who_waits_for_another_installation_says_so_and_does_not_repeat_it(world: World) -> None:
    with (world.environment.folder / LOG).open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def say(sentence: str) -> None:
            world.said.append(sentence)
            world.stamp("agent", at=1)
            world.stamp("exporter", at=2)
            fcntl.flock(other, fcntl.LOCK_UN)

        installer = Installer(
            world.environment,
            behind=False,
            uv=None,
            run=world.run,
            pause=world.paused.append,
            say=say,
        )
        assert installer.install("exporter")
    folder = world.environment.folder
    assert world.said == [f"another installation into {folder} is at work; waiting for it ..."]
    assert world.ran == []


def steps_of(goal: str, environment: Path) -> list[str]:
    """What make would do in a fresh clone."""
    shown = subprocess.run(
        ["make", "--dry-run", f"VENV={environment}", goal],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    mark = "-m tests.packages "
    return [
        line.partition(mark)[2].rstrip("&) ") if mark in line else "frazil dev"
        for line in shown.stdout.splitlines()
        if mark in line or "frazil dev" in line
    ]


def test_make_run_starts_the_agent_before_what_exports_need_is_there(tmp_path: Path) -> None:
    found = steps_of("run", tmp_path / "venv")
    assert found == ["agent", "exporter --behind", "frazil dev"]


@pytest.mark.parametrize("goal", ["style", "demo"])
def test_what_tests_need_is_all_there_before_they_begin(tmp_path: Path, goal: str) -> None:
    assert steps_of(goal, tmp_path / "venv") == ["agent", "exporter", "tests"]
