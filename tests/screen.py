"""Standard output with a last line that is rewritten, where it is a terminal. Imports nothing that has to be installed.

Elsewhere, in CI or beside what prints as well, that line is told twice a minute.
"""

import io
import shutil
from collections.abc import Callable
from typing import TextIO

TELL_EVERY_S = 30.0
CLEAR = "\r\x1b[K"


class Screen(io.TextIOBase):
    """What is printed into it stands above the last line."""

    def __init__(self, out: TextIO, *, rewrites: bool, clock: Callable[[], float]) -> None:
        self._out = out
        self._rewrites = rewrites
        self._clock = clock
        self._shown = False
        self._told_s = clock()

    def write(self, text: str) -> int:
        self.clear()
        return self._out.write(text)

    def flush(self) -> None:
        self._out.flush()

    def clear(self) -> None:
        """Takes the last line away."""
        if self._shown:
            self._shown = False
            self._out.write(CLEAR)
            self._out.flush()

    def show(self, line: str) -> None:
        """Makes this the last line."""
        if self._rewrites:
            columns = shutil.get_terminal_size().columns
            self._out.write(CLEAR + line[: columns - 1])
            self._out.flush()
            self._shown = True
        elif self._clock() - self._told_s >= TELL_EVERY_S:
            self._told_s = self._clock()
            self.write(f"{line}\n")
            self.flush()
