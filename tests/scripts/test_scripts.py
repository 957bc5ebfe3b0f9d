"""Runs every story in this folder; `pytest --rewrite` writes the outcomes anew for review."""

from pathlib import Path

from tests.kit.script import stories
from tests.scripts.script import Script

test_the_story_ends_as_written = stories(
    Path(__file__).parent, lambda _: Script().step, at_least=25
)
