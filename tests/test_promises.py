"""Every promise has tests that break when it does (ARCHITECTURE.md, "Promises and their tests").

The table there names them; here it is held against the tree: each promise has its row, and each
test that a row names is there. That the tests do break is not shown here.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEADING = "## Promises and their tests"
PROMISES = tuple(f"P{number}" for number in range(1, 18))

_ROW = re.compile(r"\| *(P\d+) *\|(.*)\|(.*)\|")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _rows() -> dict[str, list[tuple[str, str]]]:
    """By promise: file and name of each of its tests."""
    _, found, section = (ROOT / "ARCHITECTURE.md").read_text().partition(f"{HEADING}\n")
    assert found, f"ARCHITECTURE.md has no heading {HEADING!r}"
    table = re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0]
    rows: dict[str, list[tuple[str, str]]] = {}
    for line in table.splitlines():
        if (row := _ROW.fullmatch(line.strip())) is not None:
            assert row[1] not in rows, f"{row[1]} has two rows"
            rows[row[1]] = _TEST.findall(row[3])
    return rows


def _is_defined(file: str, test: str) -> bool:
    path = ROOT / file
    return path.is_file() and any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test
        for node in ast.parse(path.read_text()).body
    )


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_names_tests_that_break_with_it(promise: str) -> None:
    tests = _rows().get(promise, [])
    assert len(tests) >= 2, f"{promise} has no row with at least two tests"
    missing = [f"{file}::{test}" for file, test in tests if not _is_defined(file, test)]
    assert not missing


def test_every_name_in_the_table_is_a_test() -> None:
    """Also one that is misspelt so that the pattern of a test does not know it."""
    section = (ROOT / "ARCHITECTURE.md").read_text().partition(f"{HEADING}\n")[2]
    table = re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0]
    quoted = re.findall(r"`([^`\n]*(?:tests/|::)[^`\n]*)`", table)
    assert [name for name in quoted if not _TEST.fullmatch(f"`{name}`")] == []
