"""A process in another language that runs clients: it obeys lines of words between tabs.

What it tells begins with @; all else that it writes is noise, kept for tests that fail.
"""

import atexit
import contextlib
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path

from tests.parts import install

HERE = Path(__file__).parent


def java(program: str) -> list[str]:
    """The command of one of java/, with Kafka's own clients."""
    return install.java_program(HERE / "java" / program, install.kafka_jars())


def javascript(program: str) -> list[str]:
    """The command of one of js/, with kafkajs."""
    modules = f"NODE_PATH={install.kafkajs() / 'node_modules'}"
    return ["env", modules, install.node(), str(HERE / "js" / program)]


class Host(ABC):
    """One such process. It ends with its input, so also when the tests are killed."""

    def __init__(self, argv: list[str]) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        atexit.register(self.stop)
        self._noise: deque[str] = deque(maxlen=60)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @abstractmethod
    def heard(self, *words: str) -> None:
        """What it told; in a thread of its own."""

    @abstractmethod
    def ended(self) -> None:
        """It tells nothing any more; in that thread."""

    def say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def noise(self) -> str:
        """The last lines that it wrote besides what it tells."""
        return "\n".join(self._noise.copy())

    def pause(self) -> None:
        """It stands still, with all that it has open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: its clients die without a word."""
        self._process.kill()

    def stop(self) -> None:
        if self._process.poll() is None:
            self.resume()
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
            self._process.wait(10)
            self._reader.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("@"):
                    self.heard(*line[1:].rstrip("\n").split("\t"))
                else:
                    self._noise.append(line.rstrip())
        self.ended()
