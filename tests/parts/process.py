"""A child process of a test: started, waited for until ready, paused, killed, always ended.

Only processes that were started here are ever signalled, by their own id. Output goes to a file
whose end is shown when the child does not come up.
"""

import atexit
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

PORTS: Final = range(10_000, 32_700)
"""Below those that systems give to whoever connects (from 32768 on Linux, 49152 on macOS): a port
that is handed out before its server listens, or while that is down, is not taken by a client."""
PORTS_A_BLOCK: Final = 100


def free_port() -> int:
    """A TCP port of the loopback interface that nobody else is given while this process lives."""
    return next(port for port in _OWN_PORTS if _is_free(port))


def _own_ports() -> Iterator[int]:
    """Each once, of blocks that this process locks: others run tests beside it."""
    folder = Path(tempfile.gettempdir()) / f"frazil-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in PORTS[::PORTS_A_BLOCK]:
        lock = os.open(folder / str(first), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        # Never closed: servers have these ports until the process ends.
        yield from range(first, first + PORTS_A_BLOCK)
    raise AssertionError("all ports for tests are in use")


_OWN_PORTS: Final = _own_ports()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Does something accept connections there?"""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Child:
    """One process. `start` may be called again after `stop` or `kill`, with the same arguments."""

    def __init__(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.argv = list(argv)
        self.log = log
        self.env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, ready: Callable[[], bool], *, seconds: float = 120.0) -> None:
        """Start and wait until `ready()`; AssertionError with the log's end when it never is."""
        assert not self.running
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.env,
                start_new_session=True,
            )
        deadline = time.monotonic() + seconds
        while not ready():
            assert self.running, f"{self.argv[0]} ended by itself:\n{self.tail()}"
            assert time.monotonic() < deadline, f"{self.argv[0]} is not ready:\n{self.tail()}"
            time.sleep(0.05)

    def stop(self, *, seconds: float = 60.0) -> int | None:
        """SIGTERM, then SIGKILL when it does not end in time. Its exit code."""
        if self.running:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.wait(seconds=seconds)
            self.kill()
        return None if self._process is None else self._process.returncode

    def wait(self, *, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout=seconds)

    def kill(self) -> None:
        if self.running:
            assert self._process is not None
            self._process.kill()
            self._process.wait(timeout=20)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        assert self.running, f"{self.argv[0]} is not running:\n{self.tail()}"
        os.kill(self.pid, number)

    def tail(self, lines: int = 40) -> str:
        if not self.log.exists():
            return "(no output)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
