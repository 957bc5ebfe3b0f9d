"""Says how far a long job is: a line that is rewritten on a terminal, one every few seconds
elsewhere. Goes to the error stream, so that what a command prints can be piped."""

from collections.abc import Callable
from typing import TextIO

LINE_S = 5.0


class Progress:
    """Prints to `stream`; `clock` is a monotonic clock in seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._width = 0
        self._last = -LINE_S
        self._last_text = ""

    def show(self, text: str) -> None:
        """The state now; may be called as often as one likes."""
        now = self._clock()
        if text == self._last_text or (not self._live and now - self._last < LINE_S):
            return
        self._last, self._last_text = now, text
        if self._live:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        self._stream.write(text + "\n")
        self._stream.flush()
        self._last, self._last_text = self._clock(), text

    def clear(self) -> None:
        """Take the live line away before something else is printed."""
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
