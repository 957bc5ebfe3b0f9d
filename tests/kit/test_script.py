"""The engine of stories: what is run, what is told, which line differs."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.kit.script import compare, meaning, options, run, runs, stories

STORY = """\
# A comment.
echo one two
    one
    two

quiet
echo three
    three
"""


PHRASES: dict[str, Callable[..., Iterable[str] | None]] = {
    "echo": lambda *words: words,
    "quiet": lambda: None,
}


def step(line: str) -> Iterable[str] | None:
    return meaning(line, PHRASES)


def test_a_story_that_is_told_as_it_is_written_is_the_same_text() -> None:
    assert run(STORY, step) == STORY
    compare("story", STORY, run(STORY, step))


def test_outcomes_that_were_left_out_or_added_are_told_as_they_are() -> None:
    lines = STORY.splitlines()
    assert (
        run("\n".join([*lines[:3], "    more", *lines[4:6], "    more", lines[6]]), step) == STORY
    )


@pytest.mark.parametrize(
    ("told", "where"),
    [
        (STORY.replace("    two", "    2"), "line 4, after \\['echo one two'\\]"),
        (STORY.replace("    three\n", ""), "line 8, after \\['echo three'\\]"),
        (STORY.replace("quiet\n", "quiet\n    loud\n"), "line 7, after \\['quiet'\\]"),
        ("", "line 1, after \\[\\]"),
    ],
    ids=["another", "one less", "one more", "nothing"],
)
def test_the_first_line_that_differs_is_named_with_its_command(told: str, where: str) -> None:
    with pytest.raises(AssertionError, match=where):
        compare("story", STORY, told)


def test_a_step_that_fails_names_its_line() -> None:
    with pytest.raises(
        LookupError, match="'what\\?' means nothing; it may begin with: ec"
    ) as error:
        run("quiet\nwhat?\n", step)
    assert error.value.__notes__ == ["in line 2 of the story: what?"]


def test_the_longer_phrase_counts() -> None:
    phrases = {"show": lambda *words: ("show", *words), "show all": lambda *words: ("all", *words)}
    assert meaning("show all day", phrases) == ("all", "day")
    assert meaning("show one", phrases) == ("show", "one")


def test_options_are_parted_from_words() -> None:
    assert options(["a", "x=1", "b", "y=", "z=p=q"]) == (
        ["a", "b"],
        {"x": "1", "y": "", "z": "p=q"},
    )


def test_numbers_in_a_row_are_a_run() -> None:
    assert runs([5, 0, 1, 2, 7, 8]) == ["0-2", "5", "7-8"]
    assert runs([]) == []


def test_a_folder_with_too_few_stories_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(STORY)
    stories(tmp_path, lambda _: step, at_least=1)
    with pytest.raises(AssertionError, match="has 1 stories of at least 2"):
        stories(tmp_path, lambda _: step, at_least=2)
