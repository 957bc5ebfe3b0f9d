"""Which tests break when a promise does; `python -m tests.promises` writes them down.

A test that breaks when a promise does says so by `@pytest.mark.promise("P4")`. The marks are read
from the sources, so no test is imported. What a promise says in short is its heading in
`docs/design/promises.md`; the page that is written is `docs/promises-and-tests.md`.
"""

import ast
import functools
import re
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
PROMISES: Final = ROOT / "docs" / "design" / "promises.md"
PAGE: Final = ROOT / "docs" / "promises-and-tests.md"

_HEADING = re.compile(r"^## (P\d+)\. (.+)$", re.MULTILINE)
_HEAD = """\
# Promises and their tests

For each promise the tests that break when it does. [design/promises.md](design/promises.md) says what a promise
means, how it is kept and what it costs. This page is generated: mark a test with `@pytest.mark.promise("P4")`, and run
`python -m tests.promises`.
"""


class Test(NamedTuple):
    file: str
    name: str


def summaries() -> dict[str, str]:
    """Returns what each promise says in short, in the order of the promises."""
    return dict(_HEADING.findall(PROMISES.read_text()))


@functools.cache
def marked() -> dict[str, list[Test]]:
    """Returns the tests of each promise, in the order of files and lines."""
    tests: dict[str, list[Test]] = defaultdict(list)
    for path in sorted((ROOT / "tests").glob("**/*.py")):
        file = str(path.relative_to(ROOT))
        source = path.read_text()
        for name, promises in marks(source, file) if "mark.promise" in source else []:
            for promise in promises:
                tests[promise].append(Test(file, name))
    return dict(tests)


def marks(source: str, file: str) -> list[tuple[str, list[str]]]:
    """Returns each marked test of a module and its promises.

    Raises ValueError for a mark that is not the decorator of a test function of the module, or that
    names its promises otherwise than by string literals: it would be missed here.
    """
    tree = ast.parse(source)
    left = {node.lineno for node in ast.walk(tree) if _is_mark(node)}
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test"
        ):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and _is_mark(decorator.func):
                    found.append((node.name, [_literal(one) for one in decorator.args]))
                    left.discard(decorator.lineno)
    if left or not all(promises and all(promises) for _, promises in found):
        raise ValueError(
            f"{file} marks a promise, at lines {sorted(left)}, in a way that cannot be read; "
            'put @pytest.mark.promise("P4") above a test function of the module'
        )
    return found


def _is_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node).endswith("mark.promise")


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def page() -> str:
    """Returns the text of `docs/promises-and-tests.md`."""
    lines = [_HEAD]
    for promise, short in summaries().items():
        lines += [f"## {promise}. {short}", ""]
        for file, tests in groupby(marked().get(promise, []), key=lambda test: test.file):
            lines += [f"* `{file}`", *(f"  * `{test.name}`" for test in tests)]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
