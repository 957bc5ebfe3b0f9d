"""How many records a command has read or sent, and how fast, on a terminal's last line."""

from typing import Final

from broker.cli.status_line import StatusLine
from broker.environment import boot_ms

EACH_MS: Final = 500


class Progress:
    """Counts records and bytes; `add` is called after each batch."""

    def __init__(self, done: str) -> None:
        """`done`: what has happened to the records, a word."""
        self._done = done
        self._began_ms = boot_ms()
        self._line = StatusLine(EACH_MS)
        self.records = 0
        self.bytes = 0

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        if self._line.is_due:
            self._line(self.text(boot_ms()))

    def text(self, now_ms: int) -> str:
        seconds = max(now_ms - self._began_ms, 1) / 1000
        rate = self.bytes / 1e6 / seconds
        return (
            f"{self.records:,} records {self._done}, {self.bytes / 1e6:,.1f} MB, {rate:,.1f} MB/s"
        )

    def end(self) -> None:
        """Take the line away."""
        self._line.end()
