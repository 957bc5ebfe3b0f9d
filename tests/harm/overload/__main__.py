"""The experiment: `python -m tests.harm.overload [--checkout DIR] [--parts etcd+s3|dev] [--write]`.

Prints a table for each agent, and what was seen as JSON with `--json FILE`. `--write` writes the tables
into BENCHMARKS.md and draws docs/overload.svg. With `--checkout` the agents are those of another
checkout. Interrupted or terminated, it ends what it started.
"""

import argparse
import json
import os
import signal
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.bench import report
from tests.harm.overload import told
from tests.harm.overload.load import Crowd
from tests.harm.overload.steps import LADDER, SETTINGS, Run, agent_of, run

ADDRESSES_EACH = 500
PLOT = Path(__file__).parents[3] / "docs" / "overload.svg"


def addresses(connections: int) -> list[str]:
    """One for each five hundred."""
    return [f"127.0.1.{number}" for number in range(1, 2 + (connections - 1) // ADDRESSES_EACH)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.harm.overload")
    parser.add_argument("--checkout", type=Path)
    parser.add_argument("--parts", choices=("dev", "etcd+s3"), help="default: both")
    parser.add_argument("--one-address", action="store_true", help="all producers have the same")
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each step")
    parser.add_argument("--ladder", type=float, nargs="+", default=LADDER)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.checkout is not None:
        os.environ["PYTHONPATH"] = str(options.checkout.resolve())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    runs = []
    for parts in [options.parts] if options.parts else ["dev", "etcd+s3"]:
        runs.append(_run(parts, options))
        print(told.table(runs[-1]) + "\n", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in runs], indent=1))
    if options.write:
        PLOT.write_text(told.plot(runs))
        tables = "\n\n".join(told.table(each) for each in runs)
        report.write_section("Overload", f"{told.PREFACE}\n\n{report.machine()}\n\n{tables}")


def _run(parts: str, options: argparse.Namespace) -> Run:
    settings = (*SETTINGS, *options.settings)
    count = options.connections
    mine = ["127.0.1.1"] if options.one_address else addresses(count)
    with (
        tempfile.TemporaryDirectory() as folder,
        agent_of(parts, Path(folder), settings) as agent,
    ):
        crowd = Crowd(port=agent.port, producers=count, addresses=mine)
        return run(parts, agent, crowd, ladder=options.ladder, seconds=options.seconds)


if __name__ == "__main__":
    main()
