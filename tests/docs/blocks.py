"""The blocks of code of a page: between fences, with their language and the line that they begin at."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")],
)

_FENCE = re.compile(r'^( *)```(\w*)(?: title="([^"]*)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"^ *```", re.MULTILINE)


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    title: str
    """The name of the file that it is, where the page says one."""
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """In the order of the page. Raises ValueError where a fence is not understood."""
    text = page.read_text(encoding="utf-8")
    found = list(_blocks(page, text))
    if 2 * len(found) != len(_MARKS.findall(text)):
        raise ValueError(f"{page}: a fence has no end, or another mark than a language and a title")
    return found


def _blocks(page: Path, text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        indent, language, title, body = match.groups()
        lines = [line.removeprefix(indent) for line in body.splitlines(keepends=True)]
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page, line, language, title or "", "".join(lines))
