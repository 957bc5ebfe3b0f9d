"""What a shell is told when somebody presses Tab; names that a cluster has are tried with real ones."""

from pathlib import Path

import pytest

from broker.cli import main
from tests.kit.completion import completed


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("frazil cons", ["consume"]),
        ("frazil topic de", ["describe", "delete"]),
        ("frazil topic create --rep", ["--replication-factor"]),
        ("frazil consume orders --isolation-level ", ["read_uncommitted", "read_committed"]),
        ("frazil produce -z z", ["zstd"]),
        ("frazil explain data-", ["data-folder-denied", "data-folder-in-use"]),
        ("frazil exp", ["explain", "export"]),
        ("frazil export re", ["reset-offsets", "redact", "replay"]),
        ("frazil export run --ma", ["--max-bytes-per-run", "--master"]),
        ("frazil export view --topic orders --dialect ", ["duckdb", "spark", "trino"]),
        ("frazil export ap", ["apply"]),
        ("frazil export plan --fi", ["--file"]),
        ("frazil export plan --file shop.toml --boot", ["--bootstrap", "--bootstrap-server"]),
        ("frazil export apply --boot", ["--bootstrap", "--bootstrap-server"]),
    ],
)
def test_commands_flags_and_choices_are_completed(
    line: str, words: list[str], tmp_path: Path
) -> None:
    assert completed(line, tmp_path) == words


def test_where_no_cluster_answers_no_name_is_completed(tmp_path: Path) -> None:
    assert completed("frazil topic describe --bootstrap 127.0.0.1:1 a", tmp_path) == []
    assert completed("frazil export plan --agent http://127.0.0.1:1 --topic a", tmp_path) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "frazil" in script
    assert "_ARGCOMPLETE" in script
