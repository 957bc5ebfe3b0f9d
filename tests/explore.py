"""`python -m tests.explore --minutes 120`: fresh cases for that long, and how to replay what fails.

Half of the processes run the tests that draw (`tests/properties.py`), in rounds of a fresh seed and a
fresh order; half run fresh seeds of the simulator. Inputs are counted as they were run. A failure is
told once, however often it is met. The command ends with 1 when it found anything.
"""

import argparse
import contextlib
import multiprocessing
import os
import queue
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.sim.seeds import KINDS, cores, violations

PATIENCE_S = 900.0
"""What a test may take over the end of the time; one that takes longer hangs."""
TOLD_S = 60.0
DRAWN = re.compile(r"(\d+) passing, (\d+) failing")


class Told(NamedTuple):
    """What a process tells of one test or run: that it begins, or what came of it."""

    process: int
    what: str
    replay: str
    family: str = ""
    inputs: int = 0
    failure: str = ""
    sign: str = ""
    """Failures of one sign are one finding."""


class Telling:
    """A plugin of pytest, which tells what each test drew; and stops when the time is over."""

    def __init__(self, process: int, seed: int, told: Any, until: float) -> None:
        self.process, self.seed, self.told, self.until = process, seed, told, until

    def replay(self, item: pytest.Item) -> str:
        hashes = os.environ["PYTHONHASHSEED"]
        return f"PYTHONHASHSEED={hashes} python -m pytest --explore {self.seed} '{item.nodeid}'"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Any order, so that the end of the time leaves out other tests in each run."""
        random.Random(self.seed).shuffle(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.told.put(Told(self.process, item.nodeid, self.replay(item)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if report.when == "call" or report.failed:
            statistics = getattr(item, "hypothesis_statistics", "")
            drawn = sum(int(a) + int(b) for a, b in DRAWN.findall(statistics))
            # What does not use Hypothesis is one run of one seed.
            inputs = drawn or int(report.when == "call")
            failure = sign = ""
            if report.failed:
                failure = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
                crash = getattr(report.longrepr, "reprcrash", None)
                where = f"{crash.path}:{crash.lineno}" if crash else ""
                sign = f"{item.nodeid.partition('[')[0]} {call.excinfo and call.excinfo.typename} {where}"
            family = item.path.parent.name
            replay = self.replay(item)
            self.told.put(Told(self.process, item.nodeid, replay, family, inputs, failure, sign))
        if time.monotonic() > self.until:
            item.session.shouldstop = "the time is over"
        return report


def run_tests(process: int, told: Any, until: float, only: list[str]) -> None:
    """One round. Its seed is that of the hashes as well, which the parent sets."""
    seed = int(os.environ["PYTHONHASHSEED"])
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    selected = ["-m", "not integration and not sim", "--explore", str(seed), *only]
    # It tells the stacks of threads that run, which may crash the process; who hangs, we tell.
    quiet = ["-o", "faulthandler_timeout=0"]
    code = pytest.main([*quiet, *selected], plugins=[Telling(process, seed, told, until)])
    fine = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
    if code not in fine and time.monotonic() < until:
        sys.exit(f"pytest ends with {code!r}: python -m pytest {' '.join(selected)}")


def run_simulator(process: int, told: Any, until: float, _only: list[str]) -> None:
    seed = random.SystemRandom().randrange(1 << 40)
    while time.monotonic() < until:
        family = f"sim.{KINDS[seed % len(KINDS)].__name__}"
        begun = Told(process, f"seed {seed}", f"python -m tests.sim --seed {seed}", family)
        told.put(begun)
        try:
            found = violations(seed)
        except Exception:  # noqa: BLE001  # Whatever it is, it is found.
            found = traceback.format_exc().splitlines()[::-1]
        sign = f"{family} {re.sub(r'[0-9]+', '0', found[0])}" if found else ""
        told.put(begun._replace(inputs=1, failure="\n".join(found[:20]), sign=sign))
        seed += 1


class Exploration:
    """The processes, what they told, and what was found by it."""

    def __init__(self, until: float, only: list[str], *, first: bool = False) -> None:
        self.until = until
        self.first = first
        self.only = only
        self.told = multiprocessing.get_context("spawn").Queue()
        self.running: dict[int, tuple[Any, Callable]] = {}
        self.at: dict[int, Told] = {}
        self.inputs: Counter[str] = Counter()
        self.found: Counter[str] = Counter()

    def start(self, process: int, target: Callable) -> None:
        os.environ["PYTHONHASHSEED"] = str(random.SystemRandom().randrange(1 << 32))
        arguments = (process, self.told, self.until, self.only)
        child = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
        child.start()
        self.running[process] = (child, target)

    def hear(self, told: Told) -> None:
        self.at[told.process] = told
        self.inputs[told.family] += told.inputs
        if told.sign:
            self.tell(told)

    def tell(self, told: Told) -> None:
        self.found[told.sign] += 1
        if self.found[told.sign] == 1:
            print(
                f"\nFOUND {len(self.found)}: {told.what}\nreplay: {told.replay}\n{told.failure}\n"
            )

    def look_after(self) -> None:
        """A process that ended begins anew; one that died, or hangs, is a finding."""
        for process, (child, target) in list(self.running.items()):
            hangs = time.monotonic() > self.until + PATIENCE_S
            if hangs:
                child.kill()
                child.join()
            if child.exitcode is None:
                continue
            del self.running[process]
            if child.exitcode != 0:
                at = self.at[process]  # One that cannot even begin ends us.
                what = "hangs" if hangs else f"ends with {child.exitcode}"
                failure = f"the process {what} at {at.what}"
                self.tell(at._replace(failure=failure, sign=f"{what} {at.what}"))
            if time.monotonic() < self.until:
                self.start(process, target)

    def run(self) -> None:
        # Tests and the simulator take turns on one core, and share more.
        for process in range(max(2, cores())):
            self.start(process, run_simulator if process % 2 else run_tests)
        tell_at = time.monotonic() + TOLD_S
        try:
            while (self.running or not self.told.empty()) and not (self.first and self.found):
                with contextlib.suppress(queue.Empty):
                    self.hear(self.told.get(timeout=1))
                self.look_after()
                if time.monotonic() > tell_at:
                    tell_at += TOLD_S
                    self.summarize()
        finally:
            for child, _ in self.running.values():
                child.kill()
                child.join()

    def summarize(self) -> None:
        left_min = max(0.0, self.until - time.monotonic()) / 60
        counts = ", ".join(
            f"{name} {count}" for name, count in sorted(self.inputs.items()) if count
        )
        total = sum(self.inputs.values())
        print(
            f"{left_min:.0f} min left; {len(self.found)} found; {total} inputs: {counts}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.explore")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--first", action="store_true", help="end at the first finding")
    parser.add_argument("only", nargs="*", help="instead of all tests: these files and folders")
    options = parser.parse_args()
    exploration = Exploration(
        time.monotonic() + 60 * options.minutes, options.only, first=options.first
    )
    exploration.run()
    exploration.summarize()
    for sign, count in exploration.found.items():
        print(f"found {count} times: {sign}")
    sys.exit(1 if exploration.found else 0)


if __name__ == "__main__":
    main()
