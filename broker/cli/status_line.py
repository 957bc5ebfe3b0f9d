"""What a command does now, on a terminal's last line, once it takes long."""

import sys
from typing import Final

from broker.environment import boot_ms
from broker.logs import printable

FIRST_MS: Final = 2000
"""Shorter commands say nothing."""
EACH_MS: Final = 200


class StatusLine:
    """Called with each clause; a terminal sees some of them, and anything else than a terminal none."""

    def __init__(self, each_ms: int = EACH_MS) -> None:
        self._each_ms = each_ms
        self._next_ms = boot_ms() + FIRST_MS
        self._is_seen = sys.stderr.isatty()
        self._has_line = False

    @property
    def is_due(self) -> bool:
        """The next clause is seen."""
        return self._is_seen and boot_ms() >= self._next_ms

    def __call__(self, clause: str) -> None:
        if self.is_due:
            self._next_ms = boot_ms() + self._each_ms
            self._has_line = True
            self._show(printable(clause))

    def end(self) -> None:
        """Take the line away."""
        if self._has_line:
            self._show("")
            self._has_line = False

    def _show(self, line: str) -> None:
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()
