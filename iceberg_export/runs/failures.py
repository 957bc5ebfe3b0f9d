"""Why the last export of a topic failed: one small file in the data folder.

Who runs exports writes it, so that `frazil export status` of the same folder (that of the pod, say)
can tell. Nothing depends on it: it may be lost or deleted, and one that cannot be read is as none.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FILE = "export-failures.json"


class Failure(NamedTuple):
    times: int
    """In a row."""
    at_ms: int
    """When the last one was, wall clock."""
    reason: str


def load(data: Path) -> dict[str, Failure]:
    """Returns the failures by name of the topic."""
    try:
        stored = json.loads((data / FILE).read_text(encoding="utf-8"))
        return {
            str(topic): Failure(int(one["times"]), int(one["at_ms"]), str(one["reason"]))
            for topic, one in stored.items()
        }
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return {}


def save(data: Path, failures: Mapping[str, Failure]) -> None:
    """Replaces what is there. A folder that cannot be written to keeps nothing."""
    text = json.dumps({topic: one._asdict() for topic, one in failures.items()}, indent=1)
    scratch = data / f"{FILE}.new"
    try:
        data.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text + "\n", encoding="utf-8")
        scratch.replace(data / FILE)
    except OSError:
        return


def note(data: Path, topic: str, failure: Failure | None) -> None:
    """Records a topic's failure, or (None) that it has none; others stay as they are."""
    before = load(data)
    after = {name: one for name, one in before.items() if name != topic}
    if failure is not None:
        after[topic] = failure
    if after != before:
        save(data, after)
