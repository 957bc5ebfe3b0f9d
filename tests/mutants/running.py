"""Runs the tests of mutants in copies of a tree: first as it is, then with one mutant in each copy at a time."""

import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.mutants.mutant import Mutant
from tests.mutants.planting import MisfitError, Tree, copy_tree, planted

HUNG_S = 120.0
UNPLANTED_S = 900.0
PASSED, FAILED = 0, 1
"""Exit codes of pytest. Others mean that it could not run what it was asked to."""


class Fate(Enum):
    CAUGHT = "caught"
    HUNG = "hung"
    SURVIVED = "SURVIVED"
    ERROR = "ERROR"

    @property
    def is_good(self) -> bool:
        """A test that does not end is not passed, either."""
        return self in {Fate.CAUGHT, Fate.HUNG}


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    fate: Fate
    seconds: float
    told: str
    """What the failing test says, or what is wrong with the entry."""


class UnplantedError(Exception):
    """The tests do not pass without any mutant: nothing can be said about mutants."""


def run_all(root: Path, mutants: Sequence[Mutant], *, workers: int) -> Iterator[Verdict]:
    """The verdict on each mutant, as they come. Raises UnplantedError."""
    tree = Tree(root)
    fitting: list[tuple[Mutant, Path, list[str]]] = []
    for mutant in mutants:
        try:
            fitting.append((mutant, tree.file_of(mutant), tree.test_ids(mutant)))
        except MisfitError as error:
            yield Verdict(mutant, Fate.ERROR, 0.0, str(error))
    if not fitting:
        return
    with tempfile.TemporaryDirectory(prefix="frazil-mutants-") as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            copy = Path(folder) / str(number)
            copy_tree(root, copy)
            copies.put(copy)
        _run_unplanted(Path(folder) / "0", fitting, workers=workers)

        def run_one(mutant: Mutant, file: Path, test_ids: list[str]) -> Verdict:
            copy = copies.get()
            try:
                with planted(mutant, copy / file):
                    return _verdict(mutant, copy, test_ids)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(workers) as pool:
            running = [pool.submit(run_one, *each) for each in fitting]
            try:
                for done in as_completed(running):
                    yield done.result()
            finally:
                pool.shutdown(cancel_futures=True)


def _run_unplanted(
    copy: Path, fitting: list[tuple[Mutant, Path, list[str]]], *, workers: int
) -> None:
    test_ids = sorted({test_id for _, _, ids in fitting for test_id in ids})
    side_by_side = ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []
    code, output = _pytest(copy, [*side_by_side, *test_ids], UNPLANTED_S)
    if code != PASSED:
        raise UnplantedError(f"without any mutant (pytest: {code}):\n{output}")


def _verdict(mutant: Mutant, copy: Path, test_ids: list[str]) -> Verdict:
    began = time.monotonic()
    code, output = _pytest(copy, ["-x", *test_ids], HUNG_S)
    seconds = time.monotonic() - began
    if code is None:
        return Verdict(mutant, Fate.HUNG, seconds, f"did not end within {HUNG_S:.0f} s")
    if code == FAILED:
        return Verdict(mutant, Fate.CAUGHT, seconds, _failure(output))
    if code == PASSED:
        return Verdict(mutant, Fate.SURVIVED, seconds, f"passed: {', '.join(mutant.tests)}")
    return Verdict(mutant, Fate.ERROR, seconds, f"pytest ended with {code}:\n{output}")


def _failure(output: str) -> str:
    """From pytest's summary: what the test says that failed."""
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.partition(" - ")[2]
    return ""


def _pytest(copy: Path, arguments: list[str], seconds: float) -> tuple[int | None, str]:
    """Exit code and output; no code when it did not end in time."""
    told = (copy / "pytest.out").open("w+")
    with told:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"),
                *("--basetemp", str(copy / ".tmp"), *arguments),
            ],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0", "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # What hangs may have started processes of its own; all are of this one's group.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        told.seek(0)
        return code, told.read()
