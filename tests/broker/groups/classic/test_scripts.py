"""Runs every story of a classic group; `pytest --rewrite` writes the outcomes anew for review."""

from pathlib import Path

from tests.broker.groups.classic.script import Script
from tests.kit.script import stories

SCRIPTS = Path(__file__).parent / "scripts"
test_the_story_ends_as_written = stories(SCRIPTS, lambda _: Script().step, at_least=10)
