"""What a killed worker leaves behind in a container."""

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, os, subprocess
from broker.workers.orphans import reap

assert ctypes.CDLL(None).prctl(36, 1) == 0  # PR_SET_CHILD_SUBREAPER: as the first process is.
ours = subprocess.Popen(["true"])
os.waitid(os.P_PID, ours.pid, os.WEXITED | os.WNOWAIT)
assert reap({ours.pid}) == []
assert ours.wait() == 0
told, tell = os.pipe()
gate, opened = os.pipe()
worker = os.fork()
if worker == 0:
    left = os.fork()
    if left == 0:
        os.close(opened)
        os._exit(len(os.read(gate, 1)))
    os.write(tell, str(left).encode())
    os._exit(0)
left = int(os.read(told, 20))
assert os.waitpid(worker, 0) == (worker, 0)
os.close(opened)
os.waitid(os.P_PID, left, os.WEXITED | os.WNOWAIT)
assert reap(()) == [left]
assert reap(()) == []
"""


@pytest.mark.integration
def test_the_first_process_of_a_container_takes_what_others_left_and_nothing_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
