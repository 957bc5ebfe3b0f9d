"""Runs every story of a KIP-848 group; `pytest --rewrite` writes the outcomes anew for review."""

from pathlib import Path

from tests.broker.groups.consumer.script import Script
from tests.kit.script import stories

SCRIPTS = Path(__file__).parent / "scripts"
test_the_story_ends_as_written = stories(SCRIPTS, lambda patch: Script(patch).step, at_least=10)
