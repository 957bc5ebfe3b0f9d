"""The entry of the command line, before anything of Frazil's is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """`frazil --version`, with these folders before all others."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-P", "-m", "broker", "--version"]
    return subprocess.run(
        command, check=False, env=environ, cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_it_runs_where_all_packages_are_its_own(tmp_path: Path) -> None:
    done = run(tmp_path, ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("frazil ")


@pytest.mark.parametrize("kind", ["package", "module"])
def test_another_package_of_one_of_its_names_is_refused(kind: str, tmp_path: Path) -> None:
    other = tmp_path / "storage"
    if kind == "package":
        other.mkdir()
        (other / "__init__.py").write_text("")
    else:
        other.with_suffix(".py").write_text("")
    done = run(tmp_path, tmp_path, ROOT)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"is not Frazil's {ROOT / 'storage'}" in line
    assert "an environment of its own" in line
