"""Whole clusters from seeds: nothing acknowledged is lost or torn, whatever befalls them."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.sim.seeds import pool, violations_of

SEEDS = 360
"""A fifth of them each of records, groups, transactions, topics that lose records, and tables."""
SEEDS_A_TEST = 20
Runs = dict[int, "Future[dict[int, list[str]]]"]
"""By first seed."""


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    """All seeds that are asked for, under way on all cores."""
    wanted = [
        item.callspec.params["first"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    workers = pool()
    yield {
        first: workers.submit(violations_of, list(range(first, first + SEEDS_A_TEST)))
        for first in wanted
    }
    workers.shutdown(cancel_futures=True)


# First, so that it runs beside them.
@pytest.mark.sim
@pytest.mark.usefixtures("runs")
def test_a_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    program = (
        "from collections import Counter; from tests.sim.seeds import KINDS, violations\n"
        # Each on a loop of its own: owners that were killed on one are dead there for ever.
        "for kind in KINDS:\n"
        "    counts = Counter()\n"
        "    print(violations(5, kind, counts), sorted(counts.items()))\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert len(runs) == 1, runs


@pytest.mark.sim
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_A_TEST))
def test_clusters_keep_their_promises(first: int, runs: Runs) -> None:
    for seed, found in runs[first].result().items():
        assert not found, f"python -m tests.sim --seed {seed}\n" + "\n".join(found[:10])
