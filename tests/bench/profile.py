"""`python -m tests.bench.profile CASE`: a flame graph of an agent while it does the work of a case.

py-spy samples the agent from outside, so the agent need not know; what it spends in the kernel and
in C shows as the line of Python that called. Linux asks for the right to trace (root, or
ptrace_scope 0); on macOS for root.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.__main__ import chosen, warm
from tests.bench.case import QUICK
from tests.bench.cases import CatchUp
from tests.bench.sides import DEV, S3, Side, Sides
from tests.parts.process import Child

FOLDER = Path(__file__).parents[2] / "build" / "profiles"
SAMPLES_A_SECOND = 500


@contextlib.contextmanager
def sampling(side: Side, result: Path) -> Iterator[None]:
    """Samples of the agent's threads that run, until the end, as an SVG."""
    where = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    program = shutil.which("py-spy", path=os.pathsep.join(where))
    if program is None:
        sys.exit("py-spy is missing: install the test dependencies")
    recorder = Child(
        [
            *(program, "record", "--pid", str(side.pid), "--output", str(result)),
            *("--rate", str(SAMPLES_A_SECOND), "--format", "flamegraph", "--threads"),
        ],
        log=result.with_suffix(".log"),
    )
    recorder.start(lambda: "Sampling process" in recorder.tail())
    try:
        yield
    finally:
        recorder.signal(signal.SIGINT)
        recorder.wait(seconds=60)
    assert result.exists(), recorder.tail()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile")
    parser.add_argument("case", help="its name: `python -m tests.bench --list`")
    parser.add_argument("--s3", action="store_true", help="the agent on etcd + S3")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    ((_, (case,)),) = chosen([options.case])
    name = S3 if options.s3 else DEV
    effort = QUICK._replace(seconds=options.seconds, turn_bytes=2_000_000_000)
    FOLDER.mkdir(parents=True, exist_ok=True)
    result = FOLDER / f"{case.name}{'-s3' if options.s3 else ''}.svg"
    with (
        tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder,
        Sides(Path(folder)) as sides,
    ):
        side, _ = sides.get(name)
        warm(side, effort)
        case.prepare(side, effort)
        work = case.turn
        if isinstance(case, CatchUp) and case.from_store:
            side.restart()  # Another process, which has to be there before it is looked at.
            work = case.read
        with sampling(side, result):
            figures = work(side, effort)
    print(", ".join(f"{figure} {value:.2f}" for figure, value in figures.items()))
    print(f"flame graph: {os.path.relpath(result)}")


if __name__ == "__main__":
    main()
