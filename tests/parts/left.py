"""What a run of tests started and did not end: found by a variable that processes inherit.

By it a process is known whose parent has died as well. Only where /proc tells of processes (Linux).
"""

import contextlib
import os
import signal
import time
import uuid
from pathlib import Path

VARIABLE = "STARTED_BY_TESTS_OF"
TEST = b"PYTEST_CURRENT_TEST="
PATIENCE_S = 40.0
"""For those that are ending: an agent's reader of schemas, when the agent was killed, computes for 20 s at most."""
OUR_OWN = b"multiprocessing.resource_tracker"
"""Python's helper of `multiprocessing`, which ends with the process that it helps."""


def mark() -> None:
    """From now on whatever this process starts is known to be its own."""
    os.environ[VARIABLE] = f"{os.getpid()}-{uuid.uuid4()}"


def left() -> dict[int, str]:
    """By id: the commands that run, and the tests that started them."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := running()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def end(processes: dict[int, str]) -> None:
    """Kill them, so that no later run meets them."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def running() -> dict[int, str]:
    """What is there at this moment."""
    marked = f"{VARIABLE}={os.environ[VARIABLE]}".encode()
    found = {}
    for folder in Path("/proc").glob("[1-9]*"):
        # Others' processes are not ours to read, and any may end meanwhile.
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
            if marked in variables and OUR_OWN not in command and int(folder.name) != os.getpid():
                tests = [word.removeprefix(TEST) for word in variables if word.startswith(TEST)]
                told = b" ".join([command.replace(b"\0", b" ")[:200], b"started by", *tests])
                found[int(folder.name)] = told.decode(errors="replace")
    return found
