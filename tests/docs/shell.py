"""What a block of shell would run: its commands as words, and the files that it writes by here-documents.

No shell, only what the pages need: pipes, lists, loops, substitutions (one word), redirections (left out), and words that
stand for something (`…`, left out).
"""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

_HERE = re.compile(
    r"^(?P<line>.*)<<'?(?P<end>\w+)'?(?P<rest>.*)\n(?P<body>(?:.*\n)*?)(?P=end)$", re.MULTILINE
)
_TARGET = re.compile(r"> *(\S+)")
_SUBSTITUTION = re.compile(r"\$\((?:[^()]|\$\([^()]*\))*\)")
_ENDS = {"|", "||", "&&", ";", "&", "\n"}
_KEYWORDS = {"do", "done", "then", "fi", "else"}


class Script(NamedTuple):
    commands: list[list[str]]
    """The words of each; the first is the program, without a folder of an environment before it."""
    files: dict[str, str]
    """Texts of here-documents, by the file that they go to."""


def read(text: str) -> Script:
    """Raises ValueError where a quotation has no end."""
    files: dict[str, str] = {}

    def without_body(match: re.Match[str]) -> str:
        target = _TARGET.search(match["line"] + match["rest"])
        files[target[1] if target else "-"] = match["body"]
        return match["line"] + match["rest"]

    plain = _HERE.sub(without_body, text)
    plain = _SUBSTITUTION.sub("SUBSTITUTED", plain).replace("\\\n", " ")
    return Script(list(_commands(plain)), files)


def _commands(text: str) -> Iterator[list[str]]:
    for line in re.sub(r"([|&])[ ]*(?:#.*)?\n", r"\1 ", text).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for token in [*lexer, "\n"]:
            if token not in _ENDS:
                words.append(token)
                continue
            if command := _cleaned(words):
                yield command
            words = []


def _cleaned(words: list[str]) -> list[str]:
    """Without redirections, keywords, assignments and what stands for something."""
    kept: list[str] = []
    skips = False
    for word in words:
        if skips or word in {"<", ">", ">>"}:
            skips = not skips
        elif word == "for":
            return []
        elif word not in _KEYWORDS and word != "…" and not (not kept and re.match(r"\w+=", word)):
            kept.append(word)
    if kept:
        kept[0] = kept[0].removeprefix(".venv/bin/")
    return kept
