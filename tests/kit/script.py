"""Stories in text: commands, and indented under each one what came of it.

    # A comment.
    one: topic logs 4
        created: logs

A language declares its words and nothing else: its `Step` carries out one line and tells a line for
each outcome, mostly by `meaning`, from phrases to functions. `stories` makes a test of each text in
a folder; one that fails names the first line that is told otherwise. `pytest --rewrite` writes the
outcomes anew: read the diff.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import TypeVar

import pytest

Step = Callable[[str], Iterable[str] | None]
"""From a line to what came of it; None is nothing."""
T = TypeVar("T")
PHRASE_WORDS_MAX = 2


def meaning(text: str, phrases: Mapping[str, Callable[..., T]]) -> T:
    """Calls what the first words of a text mean, the longer phrase first, with the words after it."""
    words = text.split()
    for count in range(PHRASE_WORDS_MAX, 0, -1):
        if (call := phrases.get(" ".join(words[:count]))) is not None:
            return call(*words[count:])
    raise LookupError(f"{text!r} means nothing; it may begin with: {', '.join(sorted(phrases))}")


def options(words: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the plain words, and the values of those that are KEY=VALUE."""
    pairs = [word.partition("=") for word in words]
    plain = [key for key, sign, _ in pairs if not sign]
    return plain, {key: value for key, sign, value in pairs if sign}


def runs(numbers: Iterable[int]) -> list[str]:
    """Returns ascending numbers, those in a row as first-last."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]


def run(text: str, step: Step) -> str:
    """Returns the story with its outcomes as they are now."""
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            try:
                lines += [f"    {outcome}" for outcome in step(line) or ()]
            except Exception as error:
                error.add_note(f"in line {number} of the story: {line}")
                raise
    return "\n".join(lines) + "\n"


def compare(name: str, written: str, told: str) -> None:
    """Raises AssertionError where a story is told otherwise than it is written."""
    if told == written:
        return
    before, after = written.splitlines(keepends=True), told.splitlines(keepends=True)
    same = 0
    while before[same : same + 1] == after[same : same + 1]:
        same += 1
    commands = [line.strip() for line in after[:same] if line[0] not in " #\n"]
    raise AssertionError(
        f"{name}, line {same + 1}, after {commands[-1:]}: told otherwise than written (if that is"
        " meant, write it anew by pytest --rewrite and read the diff)\n"
        + "".join(unified_diff(before, after, "written", "told"))
    )


def stories(
    folder: Path, begin: Callable[[pytest.MonkeyPatch], Step], *, at_least: int
) -> Callable[..., None]:
    """Returns the test of every story in a folder, of which there are so many; each begins anew."""
    paths = sorted(folder.glob("*.txt"))
    assert len(paths) >= at_least, f"{folder} has {len(paths)} stories of at least {at_least}"

    @pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)
    def test(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        written = path.read_text()
        told = run(written, begin(monkeypatch))
        if request.config.getoption("--rewrite"):
            path.write_text(told)
        else:
            compare(path.name, written, told)

    return test
