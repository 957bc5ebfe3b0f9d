"""What a terminal sees of a command that takes long."""

import sys

import pytest

from broker.cli import status_line
from broker.cli.status_line import EACH_MS, FIRST_MS, StatusLine


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    clock = [1000]
    monkeypatch.setattr(status_line, "boot_ms", lambda: clock[0])
    return clock


def test_after_a_while_a_terminal_sees_what_is_done_and_then_nothing_of_it(
    clock: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    line = StatusLine()
    line("soon")
    line.end()
    assert capsys.readouterr().err == ""
    clock[0] += FIRST_MS
    line("first")
    line("too soon")
    clock[0] += EACH_MS
    line("second")
    line.end()
    line.end()
    assert capsys.readouterr().err == "\rfirst\x1b[K\rsecond\x1b[K\r\x1b[K"


def test_a_file_sees_nothing(clock: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    line = StatusLine()
    clock[0] += FIRST_MS
    line("first")
    line.end()
    assert capsys.readouterr().err == ""
