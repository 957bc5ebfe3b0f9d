"""What a shell is told when somebody presses Tab; names that a cluster has are tried with real ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli import main


def completed(line: str, tmp_path: Path, **environ: str) -> list[str]:
    """As the script of the shell asks."""
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "broker"]
    subprocess.run(command, env={**os.environ, **asked, **environ}, check=True, timeout=60)
    return [word.strip() for word in answer.read_text().split("\n") if word.strip()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("frazil cons", ["consume"]),
        ("frazil topic de", ["describe", "delete"]),
        ("frazil topic create --rep", ["--replication-factor"]),
        ("frazil consume orders --isolation-level ", ["read_uncommitted", "read_committed"]),
        ("frazil produce -z z", ["zstd"]),
        ("frazil explain data-", ["data-folder-denied", "data-folder-in-use"]),
    ],
)
def test_commands_flags_and_choices_are_completed(
    line: str, words: list[str], tmp_path: Path
) -> None:
    assert completed(line, tmp_path) == words


def test_where_no_cluster_answers_no_name_is_completed(tmp_path: Path) -> None:
    assert completed("frazil topic describe --bootstrap 127.0.0.1:1 a", tmp_path) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "frazil" in script
    assert "_ARGCOMPLETE" in script
