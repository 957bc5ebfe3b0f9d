"""What tests that run side by side rely on: ports of their own, and that nothing is left running."""

import subprocess
import sys
from pathlib import Path

from tests.parts import left
from tests.parts.process import PORTS_A_BLOCK

ROOT = Path(__file__).parent.parent.parent
TAKE_PORTS = (
    "import sys; from tests.parts.process import free_port\n"
    f"print(*(free_port() for _ in range({PORTS_A_BLOCK + 20})), flush=True)\n"
    "sys.stdin.read()\n"
)
SPEAK_AND_STAY = (
    "import os, time\nprint(os.getpid(), flush=True)\nos.close(1)\nos.close(2)\ntime.sleep(1000)\n"
)
"""It tells its own id: whoever has read it knows that the program runs, and not its shell still."""


def test_processes_side_by_side_are_never_given_the_same_port() -> None:
    taking = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE_PORTS],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    taken = [process.stdout.readline().split() for process in taking if process.stdout]
    for process in taking:
        process.communicate()
    assert [len(ports) for ports in taken] == [PORTS_A_BLOCK + 20] * 2
    assert len({*taken[0], *taken[1]}) == 2 * (PORTS_A_BLOCK + 20)


def test_a_process_whose_parent_has_ended_is_found_with_the_test_that_started_it() -> None:
    shell = ["sh", "-c", '"$0" -c "$1" &', sys.executable, SPEAK_AND_STAY]
    child = int(subprocess.run(shell, capture_output=True, check=True).stdout)
    found = left.running()
    left.end({child: "which stays"})
    # Elsewhere than on Linux nothing tells.
    if Path("/proc/self/environ").exists():
        assert "time.sleep(1000)" in found[child]
        assert "test_a_process_whose_parent_has_ended" in found[child]
