"""A wall clock that is wrong for one program and those that it starts: libfaketime, where that can be had.

The program looks the time up in a file, so it may change at any moment; clocks that nobody sets (monotonic,
boot time) stay right. Programs in Go ask the kernel themselves, and do not notice.
"""

import threading
import time
from pathlib import Path

STEP_S = 0.05
"""Of a clock that drifts."""


class WallClock:
    """Right at first."""

    def __init__(self, library: Path, file: Path) -> None:
        """`library`: `install.libfaketime()`; `file`: a new one, which the program looks into."""
        self._file = file
        self._drifting: tuple[threading.Thread, threading.Event] | None = None
        self.ahead_s = 0.0
        """Of the right time; it is behind when negative."""
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
        }
        """Of the program."""
        self.set(0.0)

    def set(self, ahead_s: float) -> None:
        """From now on it is so far ahead."""
        self._end_drift()
        self._write(ahead_s)

    def drift(self, rate: float) -> None:
        """It gains so many seconds in each, from the right time on, until it is set."""
        self._end_drift()
        ending = threading.Event()
        thread = threading.Thread(target=self._drift, args=[rate, ending], daemon=True)
        self._drifting = thread, ending
        thread.start()

    def _drift(self, rate: float, ending: threading.Event) -> None:
        began_s = time.monotonic()
        while not ending.wait(STEP_S):
            self._write(rate * (time.monotonic() - began_s))

    def _end_drift(self) -> None:
        if self._drifting is not None:
            thread, ending = self._drifting
            ending.set()
            thread.join()
            self._drifting = None

    def _write(self, ahead_s: float) -> None:
        """As a whole: the program may read at any moment."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead_s:+.6f}")
        new.rename(self._file)
        self.ahead_s = ahead_s
