"""What is told of rights: one line of JSON for each refusal and each change by an administrator. Pure.

    {"time_ms": 1700000000000, "event": "refused", "principal": "User:bob", "host": "10.0.0.7",
     "api": "Produce", "operation": "WRITE", "resource": "TOPIC", "name": "orders"}
    {"time_ms": …, "event": "change", "principal": …, "host": …, "api": "CreateTopics",
     "operations": ["CREATE"], "resources": ["CLUSTER", "TOPIC"], "names": ["orders"], "errors": []}
    {"time_ms": …, "event": "left out", "of": "refused", "count": 812}

Clients that are refused ask again and again, so lines are limited for each kind of event by itself:
refusals take no room from changes. What was left out is counted, and told before the next line of
its kind. Texts come from strangers: they are cut, and JSON escapes what is not printable.

Left out: where lines go (the logger `frazil.audit`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

LINES_PER_SECOND: Final = 50
"""Of each kind of event, in the long run."""
LINES_AT_ONCE: Final = 500
"""Of each kind of event, after a quiet time."""
TEXT_MAX: Final = 128
"""Characters of a name that are told."""
NAMES_MAX: Final = 20
"""Names of one request that are told..."""
NAMES_SIZE_MAX: Final = 1_500
"""...within so many characters of JSON: a line is not longer than those of logs (`broker.logs`)."""


class Limit:
    """How many lines of one kind may still be written: they come back with time."""

    __slots__ = ("_at_ms", "_left", "left_out")

    def __init__(self) -> None:
        self._left = float(LINES_AT_ONCE)
        self._at_ms = 0
        self.left_out = 0

    def take(self, now_ms: int) -> bool:
        """Whether one more line may be written; if not, it is counted."""
        grown = max(0, now_ms - self._at_ms) * LINES_PER_SECOND / 1000
        self._left = min(float(LINES_AT_ONCE), self._left + grown)
        self._at_ms = max(self._at_ms, now_ms)
        if self._left < 1:
            self.left_out += 1
            return False
        self._left -= 1
        return True


class Audit:
    """Makes the lines."""

    def __init__(self) -> None:
        self._limits: dict[str, Limit] = {}

    def lines(
        self, event: str, fields: Mapping[str, object], *, time_ms: int, now_ms: int
    ) -> list[str]:
        """The lines to write about one event: none when there were too many.

        `time_ms`: the wall clock, for people; `now_ms`: a clock that nobody sets.
        """
        limit = self._limits.setdefault(event, Limit())
        if not limit.take(now_ms):
            return []
        lines = []
        if limit.left_out:
            missing = {"time_ms": time_ms, "event": "left out", "of": event}
            lines.append(json.dumps(missing | {"count": limit.left_out}))
            limit.left_out = 0
        lines.append(json.dumps({"time_ms": time_ms, "event": event} | dict(fields)))
        return lines


def told(text: str) -> str:
    """A stranger's text, not too long."""
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"


def told_names(names: Sequence[str]) -> list[str]:
    """The first names of a request, each once."""
    found: list[str] = []
    size = 0
    for name in dict.fromkeys(names):
        size += len(json.dumps(told(name)))
        if len(found) == NAMES_MAX or size > NAMES_SIZE_MAX:
            break
        found.append(told(name))
    return found
