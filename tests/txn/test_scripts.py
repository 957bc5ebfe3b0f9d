"""Runs the scripts about transactional ids; `pytest --rewrite` writes the answers anew."""

from tests.kit.script import stories
from tests.txn.script import FOLDER, Script

test_the_story_ends_as_written = stories(FOLDER, lambda _: Script().step, at_least=10)


def test_every_request_is_asked_in_every_state_by_everybody():
    """The grids are whole: requests, and who asks."""
    asked = {
        line.removeprefix("grid ")
        for path in FOLDER.glob("*.txt")
        for line in path.read_text().splitlines()
        if line.startswith("grid ")
    }
    who = ["current", "before", "older", "next", "previous", "stranger"]
    assert asked >= {f"init {name}" for name in [*who, "nobody"]}
    for request in ("add", "add-group", "batch", "offsets", "end commit", "end abort", "give-up"):
        assert asked >= {f"{request} {name}" for name in who}
    assert asked >= {f"batch current of {other}" for other in ("older", "next")}
    assert asked >= {f"offsets current of {other}" for other in ("older", "next")}
    assert asked >= {f"add current of {other}" for other in ("older", "newest", "next")}
