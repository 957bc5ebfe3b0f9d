"""Says how far a long job is: a line that is rewritten on a terminal, one every few seconds
elsewhere. Goes to the error stream, so that what a command prints can be piped."""

from collections.abc import Callable
from typing import TextIO

LINE_S = 5.0
BAR_WIDTH = 24


class Progress:
    """Prints to `stream`; `clock` is a monotonic clock in seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._width = 0
        self._last = -LINE_S
        self._last_text = ""
        self._bar: tuple[str, int, float] | None = None
        """Title, how much was done when it began to be shown, and when that was."""

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

    def bar(self, title: str, done: int, total: int, detail: str = "") -> None:
        """How much of a known whole is done, and how long the rest takes at that pace."""
        now = self._clock()
        if self._bar is None or self._bar[0] != title or done < self._bar[1]:
            self._bar = (title, done, now)
        _title, first, began = self._bar
        filled = BAR_WIDTH * done // total if total else BAR_WIDTH
        text = f"{title} [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {done}/{total}"
        if detail:
            text += f" {detail}"
        if done > first and (left := (now - began) / (done - first) * (total - done)) >= 1:
            text += f", {left:.0f} s left"
        self.show(text)

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
