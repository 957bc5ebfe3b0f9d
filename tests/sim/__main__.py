"""`python -m tests.sim --seed 17` replays one run; `--seeds 1000` tries that many fresh ones."""

import argparse
import random
import sys
import time

from tests.sim.group_world import simulate_groups
from tests.sim.loop import DeadlockError, run
from tests.sim.world import simulate


def violations(seed: int) -> list[str]:
    """Records with even seeds, groups with odd ones."""
    try:
        return run(simulate_groups if seed % 2 else simulate, seed=seed)
    except DeadlockError as error:
        return [f"deadlock: {error}"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--seeds", type=int, default=100, help="how many, drawn afresh")
    parser.add_argument("--first", type=int, help="instead of fresh ones: this one and those after")
    options = parser.parse_args()
    if options.seed is not None:
        seeds = [options.seed]
    else:
        first = options.first
        if first is None:
            first = random.SystemRandom().randrange(1 << 40)
        seeds = list(range(first, first + options.seeds))
    failed = 0
    begun = time.perf_counter()
    for done, seed in enumerate(seeds, start=1):
        found = violations(seed)
        if found:
            failed += 1
            print(f"\nseed {seed}: {len(found)} violations (replay: --seed {seed})")
            for violation in found[:10]:
                print(f"  {violation}")
        if sys.stdout.isatty() or done % 50 == 0 or done == len(seeds):
            rate = done / (time.perf_counter() - begun)
            print(f"\r{done} of {len(seeds)} seeds, {failed} failed, {rate:.1f}/s", end="")
    print()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
