"""`python -m tests.bench`: Frazil beside Apache Kafka and beside the floor, and BENCHMARKS.md.

`--only CASE …` runs some of the cases (`--list` names them). A section of the report is written as soon
as all of its cases were run on all sides. `--quick` and `--beside FOLDER` (`frazil dev` of another
checkout in turns with this one: what a change changes) are for whoever works on something, and
write nothing unless `--out` says where. A case that fails is told, and the others go on.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench import report, tables
from tests.bench.case import FULL, QUICK, Case, Effort, Figures, Result
from tests.bench.cases import SECTIONS, Section, new_topic
from tests.bench.clients import rdkafka
from tests.bench.sides import ALL, DEV, KAFKA, OTHER, FloorSide, Side, Sides
from tests.parts import install
from tests.parts.slow_store import LEAST_MS, MEAN_MORE_MS


class Options(NamedTuple):
    """What a run was told."""

    effort: Effort
    sides: Sequence[str]
    put_ms: tuple[float, float]
    """What PUTs wait at least, and in the mean beyond."""
    beside: Path | None
    out: Path | None
    """The report; None: nothing is written."""


WARM_TOPIC = "warm"
WARM_S = 4.0
"""Of others than Kafka: nothing compiles there, but allocators grow."""

ABOUT = """`make bench`: brokers side by side on one machine, taking turns, with real clients in processes of
their own. *Floor*: what CPython cannot go below (`tests/bench/floor.py`), with none of the promises. *Kafka*: Apache
Kafka {kafka}, one node (KRaft, its defaults: no fsync per write; heap 1 GB), after {warm:.0f} s of load. *frazil dev*:
disk and SQLite, both with fsync. *Agent on etcd + S3*: one `frazil serve` with its defaults, one etcd with fsync, MinIO
behind a proxy that keeps back the answer to each PUT for {least:.0f} ms and, in the mean, {more:.0f} ms more. CPU and
memory are the broker's process alone. Medians of turns, with the least and the most; a ratio is the median of
the turns' ratios, with the 95 % interval of that median. In the plots a line across a bar's end goes from the least to the most."""


def warm(side: Side, effort: Effort) -> None:
    """Load of both kinds, until what compiles itself has."""
    new_topic(side, WARM_TOPIC, 64)
    seconds = effort.warm_s if side.name == KAFKA else WARM_S
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        seen, _ = rdkafka(
            side,
            "produce",
            WARM_TOPIC,
            partitions=64,
            batch=16 << 10,
            seconds=seconds / 6,
            records=200_000,
        )
        records = int(min(seen["records"], 100_000))
        rdkafka(side, "consume", WARM_TOPIC, partitions=64, records=records)


def measure(case: Case, sides: Sides, effort: Effort, only: Sequence[str]) -> Result:
    """The case on each of its sides, in turns."""
    taking: list[Side] = []
    others = [OTHER] if DEV in case.sides and OTHER in only else []
    for name in (*case.sides, *others):
        if name in only:
            side, is_new = sides.get(name)
            if is_new:
                warm(side, effort)
            if isinstance(side, FloorSide):
                side.renew()
            case.prepare(side, effort)
            taking.append(side)
    taken: dict[str, list[Figures]] = {side.name: [] for side in taking}
    for _ in range(min(case.turns_max, effort.turns)):
        for side in taking:
            taken[side.name].append(case.turn(side, effort))
    return Result(case, taken)


def write(section: Section, results: Sequence[Result], out: Path) -> None:
    """The section, whole; sections may be of different runs, so each says when it was made."""
    name = f"bench-{section.title.lower().replace(' ', '-')}.svg"
    (out.parent / "docs" / name).write_text(tables.plot(section, results))
    image = f"![{section.columns[0].unit}, by case and broker](docs/{name})"
    turns = max(len(each) for result in results for each in result.turns.values())
    made = f"{report.machine()} · {turns} turns · load average {os.getloadavg()[0]:.1f} at the end"
    body = "\n\n".join([section.about, image, made, tables.table(section, results)])
    report.write_section(section.title, body, out)


def chosen(names: Sequence[str]) -> list[tuple[Section, list[Case]]]:
    """Sections with the cases of these names, of all when there are none. Exits for a wrong one."""
    known = [case.name for section in SECTIONS for case in section.cases]
    if wrong := sorted(set(names) - set(known)):
        sys.exit(f"no case is called {', '.join(wrong)}; there are {', '.join(known)}")
    every = (
        (section, [case for case in section.cases if not names or case.name in names])
        for section in SECTIONS
    )
    return [(section, cases) for section, cases in every if cases]


def measured(
    section: Section, cases: Sequence[Case], sides: Sides, options: Options
) -> list[Result]:
    """Results of the cases that did not fail, told as they come."""
    results = []
    for case in cases:
        begun = time.monotonic()
        try:
            results.append(measure(case, sides, options.effort, options.sides))
        except (AssertionError, OSError, subprocess.SubprocessError):
            print(f"{case.name} failed:\n{traceback.format_exc()}", flush=True)
            continue
        print(f"{case.name}: {time.monotonic() - begun:.0f} s")
        print(tables.table(section, results[-1:]), flush=True)
    return results


def preface(options: Options) -> str:
    """What the sections of all cases have in common."""
    least_ms, more_ms = options.put_ms
    return ABOUT.format(
        kafka=install.KAFKA_VERSION,
        warm=options.effort.warm_s,
        least=least_ms,
        more=more_ms,
    )


def run(work: Sequence[tuple[Section, Sequence[Case]]], options: Options) -> bool:
    """Measure, and write what is whole. Did all cases end well?"""
    if options.out is not None:
        report.write_section("Brokers", preface(options), options.out)
    well = True
    with (
        tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder,
        Sides(Path(folder), put_ms=options.put_ms, beside=options.beside) as sides,
    ):
        for section, cases in work:
            results = measured(section, cases, sides, options)
            well = well and len(results) == len(cases)
            is_whole = len(results) == len(section.cases) and set(ALL) <= set(options.sides)
            if is_whole and options.out is not None:
                write(section, results, options.out)
    return well


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE")
    parser.add_argument("--sides", nargs="+", default=list(ALL), choices=ALL, metavar="SIDE")
    parser.add_argument("--quick", action="store_true", help="few and short turns")
    parser.add_argument("--list", action="store_true", help="the names of cases")
    parser.add_argument("--turns", type=int)
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--least-ms", type=float, default=LEAST_MS, help="of a PUT")
    parser.add_argument("--more-ms", type=float, default=MEAN_MORE_MS, help="of a PUT, in the mean")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    work = chosen(given.only)
    if given.list:
        print("\n".join(case.name for _, cases in work for case in cases))
        return
    effort = QUICK if given.quick else FULL
    options = Options(
        effort=effort._replace(turns=given.turns or effort.turns),
        sides=[DEV, OTHER] if given.beside else given.sides,
        put_ms=(given.least_ms, given.more_ms),
        beside=given.beside,
        out=given.out or (None if given.quick or given.beside else report.PATH),
    )
    # Brokers are ended with the run, however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(0 if run(work, options) else 1)


if __name__ == "__main__":
    main()
