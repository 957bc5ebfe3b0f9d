"""Plants mutants one after the other in a copy of a tree, and runs seeds of the simulator until one fails.

A seed tells of a mutant when it fails with it and passes without. Seeds of those kinds of worlds are
run that have something of what the mutant concerns, beginning with the one that is known to find it.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tests.mutants.mutant import Concern, Mutant
from tests.mutants.planting import MisfitError, Tree, copy_tree, planted
from tests.mutants.running import UnplantedError
from tests.sim.seeds import NAMES

HUNG_S = 600.0
"""A run that does more and more ends long before (`tests.sim.seeds`)."""
TOLD_MAX = 200
HUNG = "the run does not end"
WORLDS: Final[Mapping[Concern, frozenset[str]]] = {
    Concern.ORDER: frozenset({"records", "groups", "transactions"}),
    Concern.LEASES: frozenset({"records", "groups", "transactions"}),
    Concern.SNAPSHOTS: frozenset({"bounded", "tables"}),
    Concern.COLLECTION: frozenset({"records", "bounded", "tables"}),
    Concern.TRANSACTIONS: frozenset({"transactions"}),
}


@dataclass(frozen=True)
class Sighting:
    """What seeds said of one mutant."""

    mutant: Mutant
    seed: int | None
    """That fails with it; None: none of those that were run does."""
    told: str
    """The first violation, or what is wrong with the entry."""
    runs: int
    seconds: float


def seeds_for(concern: Concern, most: int, known: int | None) -> list[int]:
    """The known one, then those from 1 to `most` that can have something to do with it."""
    wanted = [seed for seed in range(1, most + 1) if NAMES[seed % len(NAMES)] in WORLDS[concern]]
    return wanted if known is None else [known, *(seed for seed in wanted if seed != known)]


def simulate_all(
    root: Path, mutants: Sequence[Mutant], known: Mapping[str, int], *, most: int
) -> Iterator[Sighting]:
    """The sighting of each, as it comes. `known`: seeds by the names of mutants.

    Raises UnplantedError at the end, when a seed that told of some fails without any, too.
    """
    tree = Tree(root)
    with tempfile.TemporaryDirectory(prefix="frazil-mutants-") as folder:
        copy = Path(folder) / "copy"
        copy_tree(root, copy)
        told: set[int] = set()
        for mutant in mutants:
            assert mutant.concern is not None
            seeds = seeds_for(mutant.concern, most, known.get(mutant.name))
            try:
                file = tree.file_of(mutant)
            except MisfitError as error:
                yield Sighting(mutant, None, str(error), 0, 0.0)
                continue
            with planted(mutant, copy / file):
                seen = _seen(mutant, copy, seeds)
            if seen.seed is not None:
                told.add(seen.seed)
            yield seen
        for seed, found in _runs(copy, sorted(told)):
            if found:
                raise UnplantedError(f"without any mutant seed {seed} fails, too: {found[0]}")


def _seen(mutant: Mutant, copy: Path, seeds: Sequence[int]) -> Sighting:
    began = time.monotonic()
    runs = [*_runs(copy, seeds)]
    seed, found = runs[-1]
    seconds = time.monotonic() - began
    if not found:
        return Sighting(mutant, None, "", len(runs), seconds)
    return Sighting(mutant, seed, plain(found[0], copy), len(runs), seconds)


def plain(told: str, copy: Path) -> str:
    """Without what differs from run to run: where the copy is, and addresses in memory."""
    told = re.sub(r"\b0?x[0-9a-f]{10,}\b", "0x…", told.replace(f"{copy}{os.sep}", ""))
    return told[:TOLD_MAX]


def _runs(copy: Path, seeds: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
    """Each seed with what it violates; one that ends its process, or never ends, violates that."""
    left, is_hung = list(seeds), threading.Event()
    with _child(copy, seeds) as process:
        assert process.stdout is not None
        assert process.stderr is not None

        def end() -> None:
            is_hung.set()
            os.killpg(process.pid, signal.SIGKILL)

        try:
            while line := _line(process.stdout, end):
                seed, found = json.loads(line)
                left.remove(seed)
                yield seed, found
            if is_hung.is_set():
                yield left[0], [HUNG]
            elif process.wait():
                yield left[0], [process.stderr.read().strip().rpartition("\n")[2]]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _child(copy: Path, seeds: Sequence[int]) -> subprocess.Popen[str]:
    # One process at a time: what is compiled of a planted file goes when it is taken out.
    compiles = {"PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.sim.first_failing", *map(str, seeds)],
        cwd=copy,
        env={**os.environ, **compiles, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _line(file: IO[str], end: Callable[[], None]) -> str:
    """The next one; `end` is called when there is none for too long."""
    timer = threading.Timer(HUNG_S, end)
    timer.start()
    try:
        return file.readline()
    finally:
        timer.cancel()
