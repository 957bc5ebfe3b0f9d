"""`frazil export` before its packages are there: it waits for who installs them, or says what to do."""

import fcntl
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from iceberg_export import __main__ as entry
from iceberg_export import installation

ROOT = Path(__file__).parents[2]


def test_every_package_that_the_extra_names_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [re.match(r"[a-z0-9]+", each) for each in project["optional-dependencies"]["export"]]
    assert sorted(each[0] for each in named if each) == sorted(installation.PACKAGES)
    assert installation.missing() == []


def test_nobody_is_waited_for_when_there_is_no_log(tmp_path: Path) -> None:
    assert list(installation.steps(tmp_path / "none", pause=pytest.fail)) == []


def test_nobody_is_waited_for_when_who_wrote_the_log_has_ended(tmp_path: Path) -> None:
    log = tmp_path / installation.LOG
    log.write_text("Downloading pyspark\n")
    assert list(installation.steps(log, pause=pytest.fail)) == []


def test_an_installation_is_waited_for_and_its_steps_are_told(tmp_path: Path) -> None:
    file = tmp_path / installation.LOG
    with file.open("a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        said = iter(
            [
                "Collecting pyspark\n  Downloading pyspark.tar.gz (455.6 MB)\n",
                "Requirement already satisfied: yarl\n",
                f"Installing collected packages: \x1b[2J{'x' * 200}\n",
            ]
        )

        def pause(_seconds: float) -> None:
            line = next(said, None)
            if line is None:
                fcntl.flock(log, fcntl.LOCK_UN)
            else:
                log.write(line)
                log.flush()

        told = list(installation.steps(file, pause=pause))
    assert told[:2] == ["", "Downloading pyspark.tar.gz (455.6 MB)"]
    assert told[2].startswith("Installing collected packages: ?[2Jxxx")
    assert len(told) == 3
    assert len(told[2]) == 100


def test_the_exporter_begins_when_its_packages_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["frazil export", "status", "--agent", "nowhere"])
    with (tmp_path / installation.LOG).open("a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(log, fcntl.LOCK_UN))
        assert entry.main() == 1
    waited, said = capsys.readouterr().err.splitlines()
    assert waited == (
        "frazil export: packages are being installed (make run does that); waiting for them ..."
    )
    assert "'nowhere' is not an address" in said


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("brew", 2)])
def test_help_and_mistakes_are_told_before_the_packages_are_there(
    argument: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["frazil export", argument])
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    monkeypatch.setattr("time.sleep", pytest.fail)
    with (tmp_path / installation.LOG).open("a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        with pytest.raises(SystemExit) as ended:
            entry.main()
    assert ended.value.code == code


def test_who_interrupts_the_waiting_gets_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["frazil export", "status"])
    monkeypatch.setattr("time.sleep", interrupted)
    with (tmp_path / installation.LOG).open("a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        assert entry.main() == 130


@pytest.mark.parametrize("package", ["fastavro", "pyspark"])
def test_a_package_that_is_missing_is_one_sentence(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that would be imported late, when a table is being written."""
    monkeypatch.setattr(sys, "argv", ["frazil export", "status"])
    monkeypatch.setattr(
        installation, "find_spec", lambda name: None if name == package else object()
    )
    assert entry.main() == 2
    assert capsys.readouterr().err == (
        f"frazil export: the package {package} is missing; install the exporter with:"
        " pip install 'frazil[export]' (in a checkout: make .venv/.run)\n"
    )


def test_looking_for_packages_imports_none_of_them() -> None:
    told = "import sys, iceberg_export.installation as i; i.missing(); print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(found.stdout.split()) & set(installation.PACKAGES) == set()
