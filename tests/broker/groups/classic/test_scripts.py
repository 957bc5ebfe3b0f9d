"""Runs every story of a classic group; `pytest --rewrite` writes the outcomes anew for review."""

from pathlib import Path

import pytest

from tests.broker.groups.classic.script import run

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_story_ends_as_written(path: Path, request: pytest.FixtureRequest):
    text = path.read_text()
    now = run(text)
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    else:
        assert now == text


def test_there_are_stories():
    assert len(SCRIPTS) >= 10
