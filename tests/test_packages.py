"""Packages are installed one step at a time, by one pip at a time; an interrupted step is done again."""

import fcntl
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import pytest

from iceberg_export.installation import LOG
from tests.packages import STEPS, Environment, Installer

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
            (info / "RECORD").touch()
        return info

    def run(self, arguments: Sequence[str], log: TextIO, into_log: bool) -> bool:
        """Notes what is run, and that nobody else could run something now."""
        self.ran.append(tuple(arguments))
        with (self.environment.folder / LOG).open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if into_log:
            log.write("Downloading\n")
        self.failures -= 1
        return self.failures < 0

    def installer(self, *, behind: bool = False) -> Installer:
        return Installer(
            self.environment,
            behind=behind,
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
    assert last[:3] == ("pip", "install", "--no-input")
    assert last.count("constraints.txt") == 2
    assert (world.environment.folder / STEPS[step].stamp).exists()


def test_the_exporters_packages_leave_the_agent_alone_that_is_installed(world: World) -> None:
    assert world.installer().install("exporter")
    (command,) = world.ran
    assert command[-2:] == ("--only-deps", ".[export]")
    assert "--editable" not in command


def test_a_download_that_breaks_off_is_tried_once_more(world: World) -> None:
    world.failures = 1
    assert world.installer().install("exporter")
    assert world.ran[0] == world.ran[1]
    assert world.paused == [15.0]


def test_a_step_that_fails_twice_leaves_no_stamp(world: World) -> None:
    world.failures = 2
    assert not world.installer().install("exporter")
    assert not (world.environment.folder / STEPS["exporter"].stamp).exists()


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
    whole = world.unpack("numpy-2")
    assert world.installer().install("exporter")
    assert not half.exists()
    assert whole.exists()


def test_a_pip_that_was_being_replaced_is_there_again(world: World) -> None:
    (world.environment.packages / "pip-26.dist-info" / "RECORD").unlink()
    assert world.installer().install("agent")
    assert world.ran[0] == ("ensurepip",)


def test_who_waits_for_another_installation_says_so_and_does_not_repeat_it(world: World) -> None:
    with (world.environment.folder / LOG).open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def say(sentence: str) -> None:
            world.said.append(sentence)
            world.stamp("agent", at=1)
            world.stamp("exporter", at=2)
            fcntl.flock(other, fcntl.LOCK_UN)

        installer = Installer(
            world.environment, behind=False, run=world.run, pause=world.paused.append, say=say
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
