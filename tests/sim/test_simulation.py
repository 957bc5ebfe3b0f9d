"""Whole clusters from seeds: nothing acknowledged is lost, whatever befalls them."""

import subprocess
import sys

import pytest

from tests.sim.__main__ import violations

SEEDS = 400
"""Half of them of records, half of groups."""
SEEDS_A_TEST = 20


@pytest.mark.sim
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_A_TEST))
def test_clusters_keep_their_promises(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        found = violations(seed)
        assert not found, f"python -m tests.sim --seed {seed}\n" + "\n".join(found[:10])


@pytest.mark.sim
def test_a_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    program = (
        "from tests.sim.loop import run; from tests.sim.world import simulate\n"
        "from tests.sim.group_world import simulate_groups\n"
        "async def main(loop, rng):\n"
        "    for run_one in (simulate, simulate_groups):\n"
        "        found = await run_one(loop, rng)\n"
        "        print(loop.steps, loop.time(), found)\n"
        "run(main, seed=5)\n"
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
