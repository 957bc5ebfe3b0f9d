"""The page of all codes: current, its commands are there, and a test provokes what each code stands for."""

import ast
import re
from pathlib import Path

import pytest

from broker.cli import main
from broker.reports import error_page
from protocol.fault_codes import FAULTS, FaultCode

TESTS = Path(__file__).parents[2]


def provoked(file: Path) -> set[str]:
    """The codes of the marks on a file's tests."""
    text = file.read_text(encoding="utf-8")
    if "mark.fault_code" not in text:
        return set()
    return {
        str(argument.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault_code"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }


def commands_in(text: str) -> list[list[str]]:
    """The words of what is called `frazil …` in backticks."""
    return [found.split() for found in re.findall(r"`frazil ([^`]+)`", text)]


def is_there(words: list[str]) -> bool:
    """Whether the command line takes it, with an address in place of the word for one."""
    try:
        main._parser().parse_args([word.replace("HOST:PORT", "localhost:9092") for word in words])
    except SystemExit:
        return False
    return True


def test_the_page_in_the_tree_is_current() -> None:
    written = error_page.PAGE.read_text(encoding="utf-8")
    assert written == error_page.page(), "run python -m broker.reports.error_page"


def test_a_test_provokes_each_fault_that_has_a_code() -> None:
    marked = set().union(*map(provoked, sorted(TESTS.rglob("test_*.py"))))
    assert marked - {*FaultCode} == set(), "no such code"
    assert {*FaultCode} - marked == set(), "no test provokes it"


@pytest.mark.parametrize("code", FaultCode)
def test_commands_that_an_entry_names_are_there(code: FaultCode) -> None:
    fault = FAULTS[code]
    for words in commands_in(" ".join((fault.means, fault.clients, *fault.steps))):
        assert words == ["--version"] or is_there(words), words


def test_codes_that_alerts_and_pages_have_explained_are_codes() -> None:
    root = TESTS.parent
    files = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("deploy/helm/**/*.yaml")]
    named = re.findall(r"frazil explain ([a-z-]+)", "".join(file.read_text() for file in files))
    assert "etcd-unreachable" in named
    assert {*named} <= {*FaultCode}


def test_a_command_that_is_not_there_is_found() -> None:
    assert not is_there(["topic", "paint", "orders"])
    assert not is_there(["doctor", "--colour", "red"])
    assert is_there(["cluster", "describe", "--bootstrap", "HOST:PORT"])


def test_a_command_of_an_entry_stays_on_one_line_of_a_terminal() -> None:
    for code in FaultCode:
        lines = list(error_page.lines(code))
        assert lines[0] == code
        assert all(line.count("`") % 2 == 0 for line in lines), code
        assert "\N{NO-BREAK SPACE}" not in "".join(lines)
