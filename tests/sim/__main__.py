"""`python -m tests.sim --seed 17` replays one run; `--seeds 1000` tries that many fresh ones."""

import argparse
import random
import sys
import time
from collections import Counter

from tests.sim.seeds import run_all, violations

SEEDS_AT_A_TIME = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--seeds", type=int, default=100, help="how many, drawn afresh")
    parser.add_argument("--first", type=int, help="instead of fresh ones: this one and those after")
    options = parser.parse_args()
    if options.seed is not None:
        counts: Counter[str] = Counter()
        found = violations(options.seed, counts=counts)
        print(", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
        _tell(options.seed, found)
        sys.exit(1 if found else 0)
    first = options.first
    if first is None:
        first = random.SystemRandom().randrange(1 << 40)
    failed = done = 0
    begun = time.perf_counter()
    for more, found_in in run_all(range(first, first + options.seeds), SEEDS_AT_A_TIME):
        done += more
        for seed, found in found_in.items():
            failed += 1
            _tell(seed, found)
        if sys.stdout.isatty() or done % 50 == 0 or done == options.seeds:
            rate = done / (time.perf_counter() - begun)
            print(f"\r{done} of {options.seeds} seeds, {failed} failed, {rate:.1f}/s", end="")
            sys.stdout.flush()
    print()
    sys.exit(1 if failed else 0)


def _tell(seed: int, found: list[str]) -> None:
    print(f"\nseed {seed}: {len(found)} violations (replay: --seed {seed})")
    for violation in found[:10]:
        print(f"  {violation}")


if __name__ == "__main__":
    main()
