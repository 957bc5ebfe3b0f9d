"""The house rules that a program can check: lengths, docstrings, no unfinished places."""

import ast
import re
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("protocol", "storage", "txn", "coordinator", "broker", "iceberg_export")
GENERATED = {"coordinator/log/etcd_pb2.py"}

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
FUNCTION_LINES_GOOD = 60
FUNCTIONS_OVER_GOOD_MAX = 12
"""Few functions over 60 lines; this number may only shrink."""


def _sources(*folders: str) -> dict[str, Path]:
    found = (file for folder in folders for file in sorted(ROOT.glob(f"{folder}/**/*.py")))
    return {name: file for file in found if (name := str(file.relative_to(ROOT))) not in GENERATED}


OURS = _sources(*PACKAGES)
ALL = _sources(*PACKAGES, "tests")


@cache
def _text(file: Path) -> str:
    return file.read_text()


@cache
def _docstring(file: Path) -> str:
    """Returns the text that a module opens with; "" if that is none.

    Only the first statement is read: to parse every file whole takes seconds.
    """
    with file.open() as source:
        tokens = tokenize.generate_tokens(source.readline)
        silent = (tokenize.COMMENT, tokenize.NL)
        first = next(token for token in tokens if token.type not in silent)
    return ast.literal_eval(first.string) if first.type == tokenize.STRING else ""


@cache
def _functions(file: Path) -> list[tuple[str, int]]:
    tree = ast.parse(_text(file))
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_files_are_at_most_600_lines() -> None:
    assert not [
        name for name, file in ALL.items() if len(_text(file).splitlines()) > FILE_LINES_MAX
    ]


def test_every_module_says_what_it_is() -> None:
    assert not [name for name, file in ALL.items() if not _docstring(file)]


def _functions_over(lines_max: int) -> list[str]:
    return [
        f"{name}:{function} ({lines})"
        for name, file in OURS.items()
        for function, lines in _functions(file)
        if lines > lines_max
    ]


def test_functions_are_at_most_80_lines() -> None:
    assert not _functions_over(FUNCTION_LINES_MAX)


def test_few_functions_are_over_60_lines() -> None:
    long = _functions_over(FUNCTION_LINES_GOOD)
    assert len(long) <= FUNCTIONS_OVER_GOOD_MAX, "\n".join(long)


def test_nothing_is_left_unfinished() -> None:
    words = "|".join(
        ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "raise NotImplemented" + "Error")
    )
    unfinished = re.compile(rf"\b(?:{words})\b")
    assert not [
        (name, *found) for name, file in ALL.items() if (found := unfinished.findall(_text(file)))
    ]


def test_every_handler_names_its_versions() -> None:
    handlers = {name: file for name, file in OURS.items() if "/handlers/" in name}
    assert not [
        name
        for name, file in handlers.items()
        if not name.endswith("__init__.py") and not re.search(r"v\d", _docstring(file))
    ]


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    pattern = re.compile(r"pytest\.(?:skip|mark\.(?:skip|xfail))|importor" + "skip")
    found = [name for name, file in _sources("tests").items() if pattern.search(_text(file))]
    assert not found
