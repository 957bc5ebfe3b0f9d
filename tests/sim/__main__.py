"""`python -m tests.sim --seed 17` replays one run; `--seeds 1000` tries that many fresh ones.

A seed that fails is made short: the faults that it takes, and how to replay them alone. In the end it tells
how many transactions there were, and how many calls took effect late.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.sim.cut import Cut
from tests.sim.seeds import KINDS, NAMES, observe, run_all, shrunk

SEEDS_AT_A_TIME = 10
NAMED = {"put_new": "PUTs", "delete": "DELETEs", "append": "appends"}
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
    parser.add_argument("--kind", choices=NAMES, help="only seeds of this kind of world")
    options = parser.parse_args()
    if options.seed is not None:
        cut = Cut(options.only, options.until, options.agents, options.without)
        sys.exit(_replay(options.seed, cut, shrink=options.shrink))
    first = options.first
    if first is None:
        first = random.SystemRandom().randrange(1 << 40)
    step = 1
    if options.kind is not None:
        step = len(KINDS)
        first += (NAMES.index(options.kind) - first) % step
    sys.exit(_try(range(first, first + step * options.seeds, step)))


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
    counts: Counter[str] = Counter()
    cpu_s = 0.0
    begun = time.perf_counter()
    for block in run_all(seeds, SEEDS_AT_A_TIME):
        done += block.seeds
        counts += block.counts
        cpu_s += block.cpu_s
        for seed, found in block.failed.items():
            failed.append(seed)
            _tell(seed, found)
        if sys.stdout.isatty() or done % 50 == 0 or done == len(seeds):
            rate = done / (time.perf_counter() - begun)
            print(f"\r{done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.1f}/s", end="")
            sys.stdout.flush()
    print()
    for line in totals(counts, cpu_s):
        print(line)
    for seed in sorted(failed)[:SHRUNK_MAX]:
        _shrink(seed)
    return 1 if failed else 0


def totals(counts: Counter[str], cpu_s: float) -> Iterator[str]:
    """What all seeds together did of what is counted in millions, and what it took."""
    yield (
        f"{counts['begun']} transactions begun: {counts['committed']} were told to be committed, "
        f"{counts['aborted']} aborted, {counts['never told']} asked to end and were told nothing, "
        f"{counts['given up']} were left; {counts['timed out']} ended by their timeout"
    )
    late = {what: counts[f"late {what}"] for what in ("put_new", "delete", "append")}
    yield "carried out late, when their callers had given them up: " + ", ".join(
        f"{count} {NAMED[what]}" for what, count in late.items()
    )
    if counts["begun"]:
        yield f"{cpu_s:.0f} s of CPU, {cpu_s / counts['begun'] * 1e6 / 3600:.1f} h for 10⁶ transactions"


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
