"""`python -m tests.sim --seed 17` replays one run; `--seeds 1000` tries that many fresh ones.

A seed that fails is made short: the faults that it takes, and how to replay them alone.
"""

import argparse
import random
import sys
import time

from tests.sim.cut import Cut
from tests.sim.seeds import observe, run_all, shrunk

SEEDS_AT_A_TIME = 10
SHRUNK_MAX = 3
"""Of the seeds that fail, so many are made short: the others mostly fail for the same reason."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--shrink", action="store_true", help="and if it fails make it short")
    parser.add_argument("--only", type=_names, help="no other faults than these, by name")
    parser.add_argument("--until", type=float, help="faults end after so many seconds")
    parser.add_argument("--agents", type=int, help="so many at most")
    parser.add_argument("--without", type=_names, default=frozenset(), help="these clients")
    parser.add_argument("--seeds", type=int, default=100, help="how many, drawn afresh")
    parser.add_argument("--first", type=int, help="instead of fresh ones: this one and those after")
    options = parser.parse_args()
    if options.seed is not None:
        cut = Cut(options.only, options.until, options.agents, options.without)
        sys.exit(_replay(options.seed, cut, shrink=options.shrink))
    first = options.first
    if first is None:
        first = random.SystemRandom().randrange(1 << 40)
    sys.exit(_try(range(first, first + options.seeds)))


def _names(told: str) -> frozenset[str]:
    return frozenset(filter(None, told.split(",")))


def _replay(seed: int, cut: Cut, *, shrink: bool) -> int:
    seen = observe(seed, cut=cut)
    print(", ".join(f"{what} {count}" for what, count in sorted(seen.counts.items())))
    print(f"{len(seen.happened)} faults, {seen.agents} agents, {len(seen.clients)} clients")
    _tell(seed, seen.violations)
    if shrink and seen.violations:
        _shrink(seed)
    return 1 if seen.violations else 0


def _try(seeds: range) -> int:
    failed: list[int] = []
    done = 0
    begun = time.perf_counter()
    for more, found_in in run_all(seeds, SEEDS_AT_A_TIME):
        done += more
        for seed, found in found_in.items():
            failed.append(seed)
            _tell(seed, found)
        if sys.stdout.isatty() or done % 50 == 0 or done == len(seeds):
            rate = done / (time.perf_counter() - begun)
            print(f"\r{done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.1f}/s", end="")
            sys.stdout.flush()
    print()
    for seed in sorted(failed)[:SHRUNK_MAX]:
        _shrink(seed)
    return 1 if failed else 0


def _tell(seed: int, found: list[str]) -> None:
    print(f"\nseed {seed}: {len(found)} violations (replay: --seed {seed})")
    for violation in found[:10]:
        print(f"  {violation}")


def _shrink(seed: int) -> None:
    print(f"\nseed {seed} is made short", flush=True)
    for line in shrunk(seed, tell=lambda told: print(f"  {told}", flush=True)).script(seed):
        print(line)


if __name__ == "__main__":
    main()
