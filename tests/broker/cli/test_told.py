"""How a command's lines are told."""

import argparse
import sys

import pytest

from broker.cli.arguments import on_agent
from broker.cli.command_result import CommandResult
from broker.reports.tables import table

LINES = ["two topics", "", *table(("TOPIC", "PARTITIONS"), [("a" * 60, 6), ("b", 12)])]


@pytest.mark.parametrize(
    ("terminal", "widest"), [(True, 40), (False, 72)], ids=["terminal", "elsewhere"]
)
def test_a_table_fits_the_terminal_and_is_whole_elsewhere(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    terminal: bool,
    widest: int,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    options = argparse.Namespace(name="frazil topic list")
    assert on_agent(options, lambda: CommandResult(LINES)) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == LINES[:2]
    assert max(map(len, told)) == widest
    assert [line.split()[-1] for line in told[2:]] == ["PARTITIONS", "6", "12"]
