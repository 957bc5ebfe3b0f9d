"""A Flink job as a process (`java/FlinkCopy.java`), which copies a topic to others exactly once."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.clients.host import Host
from tests.parts import install

PROGRAM = Path(__file__).parent / "java" / "FlinkCopy.java"


class FlinkCopy(Host):
    """Its checkpoints lie in a folder, so that another process can go on where a killed one was."""

    def __init__(self, bootstrap: str, folder: Path, topic: str, copies: Mapping[str, str]) -> None:
        """`copies`: topics by the naming strategy of the transactions that fill them. It begins at
        the newest checkpoint of the folder, if there is one."""
        self.told: Counter[str] = Counter()
        """How often it said what."""
        self._told = threading.Condition()
        sinks = [f"{strategy}={copy}" for strategy, copy in copies.items()]
        program = install.java_program(PROGRAM, install.flink())
        super().__init__([*program, bootstrap, str(folder), newest(folder), topic, *sinks])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if error is not None:
            print(self.noise())

    def heard(self, *words: str) -> None:
        with self._told:
            self.told[words[0]] += 1
            self._told.notify_all()

    def ended(self) -> None:
        with self._told:
            self.told["ended"] += 1
            self._told.notify_all()

    def until(self, word: str, more: int = 1, *, seconds: float = 300.0) -> None:
        """Wait until it has said that so many times more, from now on."""
        with self._told:
            wanted = self.told[word] + more
            deadline = time.monotonic() + seconds
            while self.told[word] < wanted:
                heard = self._told.wait(deadline - time.monotonic())
                assert heard, f"no {word}; {self.told}\n{self.noise()}"
                assert word == "ended" or not self.told["ended"], self.noise()

    def ask(self, word: str, answer: str, more: int = 1) -> None:
        """Say something, and wait for what must follow."""
        with self._told:
            self.say(word)
            self.until(answer, more)


def newest(folder: Path) -> str:
    """The checkpoint to go on from, or "" before the first is complete."""
    found = [metadata.parent for metadata in folder.glob("*/chk-*/_metadata")]
    return str(max(found, key=lambda each: int(each.name.removeprefix("chk-")))) if found else ""
