"""`python -m tests.harm` ends what it started, however it is ended itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0


def children_of(pid: int) -> dict[int, str]:
    """Command lines of the processes that it started."""
    told = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = (line.split(None, 2) for line in told.stdout.splitlines())
    return {int(row[0]): row[2] for row in rows if len(row) == 3 and int(row[1]) == pid}


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT], ids=["terminated", "interrupted"]
)
def test_neither_agent_nor_canary_is_left_behind(number: signal.Signals) -> None:
    argv = [sys.executable, "-m", "tests.harm", "nothing"]
    started: dict[int, str] = {}
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as harm:
        try:
            until(lambda: "tests.harm.canary" in " ".join(children_of(harm.pid).values()))
            started = children_of(harm.pid)
            assert any(" dev " in words for words in started.values())
            harm.send_signal(number)
            assert harm.wait(PATIENCE_S) != 0
            until(lambda: not any(map(is_there, started)))
        finally:
            harm.kill()
            for pid in filter(is_there, started):
                os.kill(pid, signal.SIGKILL)
