"""`python -m tests.bench.bench_groups`: what heartbeats cost an agent, in a process of its own.

2000 groups of 5 members, each on its own connection, as `tests.bench.group_load` makes them. Prints
the agent's CPU as a share of one core, and how many entries it wrote to the log meanwhile: none
but its ticks. Never a test, since machines differ.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.cpu import cpu_seconds
from tests.parts.servers import FrazilDev, get_text

CASES = (("classic", 3.0), ("consumer", 5.0))
"""Protocols with the seconds between a member's heartbeats, as clients have them by default."""


@dataclass
class GroupFigures:
    """One protocol on one broker."""

    heartbeats_per_s: float
    core_percent: float
    us_per_heartbeat: float
    entries: int
    """Written to the log meanwhile; -1: not known."""
    p50_ms: float
    p99_ms: float


def measure(
    port: int,
    pid: int,
    *,
    protocol: str,
    every_s: float,
    seconds: float,
    groups: int,
    members: int,
    http_port: int | None = None,
) -> GroupFigures:
    """Have the members join, and measure the broker while they heartbeat."""
    load = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.bench.group_load", "--port", str(port)),
            *("--protocol", protocol, "--every", str(every_s), "--seconds", str(seconds)),
            *("--groups", str(groups), "--members", str(members)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert load.stdout is not None
        assert load.stdin is not None
        assert load.stdout.readline() == "ready\n", "the members could not join"
        time.sleep(2.0)
        entries, cpu_s = _entries(http_port), cpu_seconds(pid)
        begun_s = time.monotonic()
        load.stdin.write("go\n")
        load.stdin.flush()
        line = load.stdout.readline()
        cpu_s, took_s = cpu_seconds(pid) - cpu_s, time.monotonic() - begun_s
        entries = _entries(http_port) - entries
        assert load.wait(timeout=120) == 0, "the members could not leave"
    finally:
        load.kill()
        load.wait()
    seen = json.loads(line)
    assert not seen["errors"], f"heartbeats were refused: {seen['errors']}"
    return GroupFigures(
        heartbeats_per_s=seen["answers"] / took_s,
        core_percent=100 * cpu_s / took_s,
        us_per_heartbeat=1e6 * cpu_s / seen["answers"],
        entries=-1 if http_port is None else entries,
        p50_ms=seen["p50_ms"],
        p99_ms=seen["p99_ms"],
    )


def _entries(http_port: int | None) -> int:
    if http_port is None:
        return 0
    for line in get_text(http_port, "/metrics").splitlines():
        if line.startswith("frazil_log_entries_appended_total"):
            return int(float(line.split()[-1]))
    raise AssertionError("no such metric")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_groups")
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--only", choices=[protocol for protocol, _ in CASES])
    parser.add_argument("--port", type=int, help="of an agent that runs already; with --pid")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--http", type=int)
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in (None, case[0])]
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder:
        for protocol, every_s in cases:
            frazil = FrazilDev(Path(folder) / protocol)
            if options.port is None:
                frazil.start()
            try:
                figures = measure(
                    options.port or frazil.port,
                    options.pid or frazil.child.pid,
                    protocol=protocol,
                    every_s=every_s,
                    seconds=options.seconds,
                    groups=options.groups,
                    members=options.members,
                    http_port=options.http if options.port else frazil.http_port,
                )
            finally:
                frazil.stop()
            print(f"{protocol}: {figures}", flush=True)


if __name__ == "__main__":
    main()
