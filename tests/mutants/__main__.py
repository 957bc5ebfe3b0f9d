"""`python -m tests.mutants`: plants each bug of the catalogue, and tells which ones no test finds.

Ends with 1 when a mutant survived or does not fit the tree, or when the tests fail without any.
`--simulate` runs seeds of the simulator instead, of the mutants that are for it, and ends with 1 when
no seed finds one whose entry does not say why.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants import sightings
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.running import UnplantedError, Verdict, run_all
from tests.mutants.simulating import Sighting, simulate_all

ROOT = Path(__file__).parent.parent.parent
TOLD_MAX = 110
SEEDS = 1000
NICE = 10


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", action="append", metavar="NAME|P5|leases", help="may be repeated")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="tell the catalogue and run nothing")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout of Frazil")
    parser.add_argument("--simulate", action="store_true", help="run seeds instead of tests")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="with --simulate: up to this one")
    parser.add_argument("--write", action="store_true", help="with --simulate: the page of it")
    options = parser.parse_args(arguments)
    chosen = [each for each in MUTANTS if _is_chosen(each, options.only)]
    if not chosen:
        parser.error(f"no mutant and no promise is called {' or '.join(options.only)}")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.promise:<4} {mutant.name}: {mutant.why}")
        return 0
    root = options.tree.resolve()
    if options.simulate:
        # Whoever names one wants to see that no seed finds it.
        named = options.only or []
        wanted = [
            each for each in chosen if each.concern and (not each.unseen or each.name in named)
        ]
        return simulate(root, wanted, most=options.seeds, writes=options.write)
    return run(root, chosen, workers=max(1, options.workers))


def _is_chosen(mutant: Mutant, only: list[str] | None) -> bool:
    concern = mutant.concern and mutant.concern.value
    return only is None or not {mutant.name, mutant.promise, concern}.isdisjoint(only)


def simulate(root: Path, mutants: Sequence[Mutant], *, most: int, writes: bool) -> int:
    """One process beside whatever else the machine does; what is found is written as it comes."""
    os.nice(NICE)
    kept = sightings.read()
    known = {name: seen.seed for name, seen in kept.items() if seen.seed is not None}
    print(f"{len(mutants)} mutants of {root}, seeds 1 to {most}", flush=True)
    missing: list[Sighting] = []
    for number, seen in enumerate(simulate_all(root, mutants, known, most=most), start=1):
        name, concern = seen.mutant.name, seen.mutant.concern
        found = f"seed {seen.seed}" if seen.seed is not None else f"none of {seen.runs} seeds"
        told = f" ({seen.told[:TOLD_MAX]})" if seen.told else ""
        place = f"[{number:>3}/{len(mutants)}] {seen.seconds:6.1f} s"
        print(f"{place}  {concern and concern.value:<12} {name}: {found}{told}", flush=True)
        kept[name] = sightings.Kept(seen.seed, seen.told, most)
        if seen.seed is None:
            missing.append(seen)
        if writes:
            sightings.write(kept)
    print(f"{len(mutants) - len(missing)} of {len(mutants)} found by a seed")
    return 1 if any(not seen.mutant.unseen for seen in missing) else 0


def run(root: Path, mutants: Sequence[Mutant], *, workers: int) -> int:
    began = time.monotonic()
    verdicts: list[Verdict] = []
    print(f"{len(mutants)} mutants of {root}; first their tests without any ...", flush=True)
    try:
        for verdict in run_all(root, mutants, workers=workers):
            verdicts.append(verdict)
            print(_line(verdict, len(verdicts), len(mutants)), flush=True)
    except UnplantedError as error:
        print(error)
        return 1
    bad = [verdict for verdict in verdicts if not verdict.fate.is_good]
    for verdict in bad:
        print(f"\n{verdict.fate.value}: {verdict.mutant.name} ({verdict.mutant.promise})")
        print(f"  {verdict.mutant.why}\n  {verdict.told}")
    good = len(verdicts) - len(bad)
    print(f"\n{good} of {len(verdicts)} caught, in {time.monotonic() - began:.0f} s")
    return 1 if bad else 0


def _line(verdict: Verdict, count: int, of: int) -> str:
    mutant = verdict.mutant
    told = verdict.told.partition("\n")[0][:TOLD_MAX]
    said = f"{verdict.fate.value:<8} {mutant.promise:<4} {mutant.name}"
    return f"[{count:>3}/{of}] {verdict.seconds:6.1f} s  {said}  ({told})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
