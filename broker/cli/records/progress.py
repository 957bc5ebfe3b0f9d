"""How far a command is, on a terminal's last line, once it takes long."""

import sys
from typing import Final

from broker.environment import boot_ms

FIRST_MS: Final = 2000
"""Shorter commands say nothing."""
EACH_MS: Final = 500


class Progress:
    """Counts records and bytes; `add` is called after each batch."""

    def __init__(self, done: str) -> None:
        """`done`: what has happened to the records, a word."""
        self._done = done
        self._began_ms = boot_ms()
        self._next_ms = self._began_ms + FIRST_MS
        self._is_seen = sys.stderr.isatty()
        self._has_line = False
        self.records = 0
        self.bytes = 0

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        now_ms = boot_ms()
        if self._is_seen and now_ms >= self._next_ms:
            self._next_ms = now_ms + EACH_MS
            self._has_line = True
            self._show(self.text(now_ms))

    def text(self, now_ms: int) -> str:
        seconds = max(now_ms - self._began_ms, 1) / 1000
        rate = self.bytes / 1e6 / seconds
        return (
            f"{self.records:,} records {self._done}, {self.bytes / 1e6:,.1f} MB, {rate:,.1f} MB/s"
        )

    def end(self) -> None:
        """Take the line away."""
        if self._has_line:
            self._show("")
            self._has_line = False

    def _show(self, line: str) -> None:
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()
