"""`python -m tests.mutants`: plants each bug of the catalogue, and tells which ones no test finds.

Ends with 1 when a mutant survived or does not fit the tree, or when the tests fail without any.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.running import UnplantedError, Verdict, run_all

ROOT = Path(__file__).parent.parent.parent
TOLD_MAX = 110


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", action="append", metavar="NAME|P5", help="may be repeated")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="tell the catalogue and run nothing")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout of Frazil")
    options = parser.parse_args(arguments)
    chosen = [each for each in MUTANTS if _is_chosen(each, options.only)]
    if not chosen:
        parser.error(f"no mutant and no promise is called {' or '.join(options.only)}")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.promise:<4} {mutant.name}: {mutant.why}")
        return 0
    return run(options.tree.resolve(), chosen, workers=max(1, options.workers))


def _is_chosen(mutant: Mutant, only: list[str] | None) -> bool:
    return only is None or mutant.name in only or mutant.promise in only


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
