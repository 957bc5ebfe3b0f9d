"""A program's wall clock is set while it runs, and no other clock with it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.parts import install
from tests.parts.wall_clock import WallClock

pytestmark = pytest.mark.integration

CLOCKS = """
import sys, time
for _ in sys.stdin:
    print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
"""
DAY_S = 86_400.0
READ_S_MAX = 60.0
"""Between two readings, on a busy machine."""


def test_a_wall_clock_is_set_while_its_program_runs_and_clocks_that_nobody_sets_go_on(
    tmp_path: Path,
) -> None:
    if (library := install.libfaketime()) is None:
        assert sys.platform != "linux"
        return
    clock = WallClock(library, tmp_path / "time")
    program = subprocess.Popen(
        [sys.executable, "-c", CLOCKS],
        env=clock.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ahead_s() -> list[float]:
        """Of ours, each."""
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write("\n")
        program.stdin.flush()
        told = map(float, program.stdout.readline().split())
        boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        own = (time.time(), time.monotonic(), boot_s)
        return [each - ours for each, ours in zip(told, own, strict=True)]

    with program:
        for off_s in (0.0, DAY_S, -DAY_S):
            clock.set(off_s)
            assert clock.ahead_s == off_s
            assert ahead_s() == pytest.approx([off_s, 0.0, 0.0], abs=READ_S_MAX)
        clock.drift(1000.0)
        before_s = ahead_s()[0]
        while ahead_s()[0] < before_s + READ_S_MAX:
            time.sleep(0.01)
        clock.set(0.0)
        assert ahead_s() == pytest.approx([0.0, 0.0, 0.0], abs=READ_S_MAX)
        assert program.stdin is not None
        program.stdin.close()
