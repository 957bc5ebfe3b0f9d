"""`python -m tests.faults.drawn --seed 17 --seconds 180`: drawn faults over real processes, and a page of them.

Ends with 1 when there is an anomaly, or when something does not come again.
"""

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.drawn.report import page
from tests.faults.drawn.run import run, stage_here

REPORTS = Path("build/faults")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.drawn")
    parser.add_argument("--seed", type=int, help="of the plan; drawn afresh when left out")
    parser.add_argument("--seconds", type=float, default=180, help="of faults")
    parser.add_argument("--etcd", type=int, choices=(1, 3), default=3, help="members")
    parser.add_argument("--report", type=Path, help="the page; by default build/faults/SEED.html")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    report = options.report or REPORTS / f"{seed}.html"
    began_s = time.monotonic()
    print(f"seed {seed}, {options.seconds:g} s of faults", flush=True)
    report.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="frazil-faults-", ignore_cleanup_errors=True) as folder,
        _clients_tell(report.with_suffix(".log")),
    ):
        recorded = run(
            Path(folder),
            seed,
            options.seconds,
            stage_here(members=options.etcd),
            lambda told: print(told, flush=True),
        )
    report.write_text(page(recorded))
    for what, count in recorded.counts.items():
        print(f"{count:8,} {what}")
    for told in recorded.notes:
        print(told)
    for told in recorded.wrong:
        print(f"WRONG: {told}")
    took_s = time.monotonic() - began_s
    print(f"{len(recorded.wrong)} wrong; {took_s:.0f} s; {report}; again: {recorded.command}")
    sys.exit(1 if recorded.wrong else 0)


@contextlib.contextmanager
def _clients_tell(log: Path) -> Iterator[None]:
    """librdkafka tells each lost connection on the standard error, until the end of the process."""
    kept = os.dup(sys.stderr.fileno())
    with log.open("wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    try:
        yield
    except BaseException:
        os.dup2(kept, sys.stderr.fileno())
        raise


if __name__ == "__main__":
    main()
