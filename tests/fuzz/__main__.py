"""`python -m tests.fuzz --minutes 10`: all targets in turn, on all cores; findings become files of the corpus.

`python -m tests.fuzz FILE ...` runs kept inputs again (the folder says of which target). Told is, every
half minute, how many inputs each target has had, how many a second, and what was found; the command
ends with 1 if that is anything.
"""

import argparse
import random
import sys
import time
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.processes import Fuzzing
from tests.fuzz.targets import TARGETS
from tests.fuzz.verdict import Checker
from tests.sim.seeds import cores


def replay(file: Path) -> bool:
    """Whether the input is fine now."""
    target = TARGETS[file.resolve().parent.name]()
    checker = Checker(target)
    target.open()
    try:
        with checker.listening():
            verdict = checker.check(file.read_bytes(), strict=True)
    finally:
        target.close()
    finding = verdict.finding
    print(f"{file}: {finding.sign}\n{finding.text}" if finding else f"{file}: {verdict.outcome}")
    return finding is None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument(
        "--only", nargs="+", default=list(TARGETS), choices=list(TARGETS), metavar="TARGET"
    )
    parser.add_argument("--seed", type=int, default=None, help="else another one every time")
    parser.add_argument("--into", type=Path, default=corpus.FOLDER, help="where findings are kept")
    parser.add_argument(
        "files", nargs="*", type=Path, help="kept inputs to run again, and nothing else"
    )
    options = parser.parse_args()
    if options.files:
        fine = [replay(file) for file in options.files]
        sys.exit(not all(fine))
    seed = random.SystemRandom().randrange(1 << 40) if options.seed is None else options.seed
    print(
        f"seed {seed}, {cores()} processes, {options.minutes:g} minutes: {', '.join(options.only)}"
    )
    fuzzing = Fuzzing(options.only, seed, time.monotonic() + 60 * options.minutes, options.into)
    fuzzing.run()
    fuzzing.summarize()
    for (name, sign), count in fuzzing.found.items():
        print(f"found {count} times by {name}: {sign}")
    sys.exit(1 if fuzzing.found else 0)


if __name__ == "__main__":
    main()
