"""A Kafka Streams application as a process (`java/Streams.java`): it counts words."""

import subprocess
import threading
from pathlib import Path
from typing import Self

from tests.parts import install

RUNNING_S = 60.0
STOPPED_S = 60.0


class WordCount:
    """From the lines of one topic to the counts of their words in another."""

    def __init__(
        self, bootstrap: str, folder: Path, *, app: str, lines: str, counts: str, guarantee: str
    ) -> None:
        program = Path(__file__).parent / "java" / "Streams.java"
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / "streams.log").open("w")
        self._process = subprocess.Popen(
            [
                *install.java_program(program, install.kafka_streams()),
                *(bootstrap, app, lines, counts, str(folder / "state"), guarantee),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._running = threading.Event()
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            if line == "state RUNNING\n":
                self._running.set()

    def __enter__(self) -> Self:
        assert self._running.wait(RUNNING_S), f"it does not run: {self._said}"
        return self

    def __exit__(self, *_: object) -> None:
        """Ask it to end: it writes what it has, commits and leaves its group."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            assert self._process.wait(STOPPED_S) == 0, f"it failed: {self._said}"
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()
            self._log.close()
