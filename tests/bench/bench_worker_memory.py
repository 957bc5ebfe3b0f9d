"""What a snapshot costs the worker of the jobs in memory: `python -m tests.bench.bench_worker_memory`.

For clusters of several shapes: a snapshot in a store on disk, and a process of its own that does with it what a
worker does, one step after another: reads and restores it, dumps it, makes it anew for the proof, writes it and
reads it back. Prints what is resident behind each step and at most during it, less what the process had without,
as multiples of the snapshot's bytes; `broker.jobs.worker.memory` goes by them, and docs/design/bounded.md §12.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from broker.environment import loop_factory
from broker.jobs.kinds.job_table import JOBS
from broker.jobs.worker.memory import give_back_blocks
from coordinator.log.sqlite import SqliteLog
from coordinator.machine.machine import Machine
from coordinator.replay import prove
from coordinator.snapshot.loading import Loader
from coordinator.snapshot.snapshot import dump
from coordinator.snapshot.store import SnapshotStore
from coordinator.stats import LogClientStats
from storage.stores.disk import DiskStore
from tests.bench.bench_machine_memory import resident_bytes
from tests.bench.bench_start import IDENTITY, make, peak_bytes

MB = 1e6
NOTHING = {"partitions": 100, "spans": 100, "in_memory": 100, "windows": 0, "groups": 0}
SHAPES = {
    "rows": {"partitions": 1_000, "spans": 2_000_000, "in_memory": 2_000_000},
    "pages": {"partitions": 1_000, "spans": 20_000_000},
    "windows": {"partitions": 1_000, "spans": 1_000, "in_memory": 1_000, "windows": 1_000_000},
    "partitions": {"partitions": 100_000, "spans": 100_000, "in_memory": 100_000},
    "offsets": {"groups": 5_000},
    "all": {
        "partitions": 50_000,
        "spans": 5_000_000,
        "in_memory": 1_000_000,
        "windows": 100_000,
        "groups": 1_000,
    },
}


class Steps:
    """What is resident, at most and behind each step, beside what was before the first."""

    def __init__(self) -> None:
        self.bytes = 0
        self._before = resident_bytes()
        print(f"{self._before / MB:9.1f} MB the process, with all that it imports")
        self._forget_peak()

    def told(self, step: str) -> None:
        now, most = resident_bytes() - self._before, peak_bytes() - self._before
        print(
            f"{now / MB:9.1f} MB ({now / self.bytes:5.2f}) behind, {most / MB:9.1f} MB"
            f" ({most / self.bytes:5.2f}) at most while: {step}",
            flush=True,
        )
        self._forget_peak()

    def _forget_peak(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")


async def measure(folder: Path) -> None:
    """What a worker does with the snapshot that lies in the folder."""
    assert JOBS, "what a worker imports is in the memory"
    give_back_blocks()
    log, store = SqliteLog(folder / "log.db"), DiskStore(folder / "store")
    snapshots = SnapshotStore(store, IDENTITY)
    steps = Steps()
    machine, stats = Machine(), LogClientStats()
    assert await Loader(log, snapshots, machine, stats).load()
    steps.bytes = stats.snapshot_bytes
    print(f"{steps.bytes / MB:9.1f} MB the snapshot")
    steps.told("loading")
    for number in (1, 2):
        parts = dump(machine)
        steps.told(f"dumping, round {number}")
        await prove(parts, log=log, source=snapshots)
        steps.told(f"proving, round {number}")
        copies = SnapshotStore(DiskStore(folder / f"copy-{number}"), IDENTITY)
        await copies.write(parts)
        steps.told(f"writing and reading back, round {number}")
        del parts
    await log.aclose()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--measure", type=Path, help="what lies in this folder")
    arguments = parser.parse_args()
    if arguments.measure is not None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(measure(arguments.measure))
        return
    for shape in arguments.shapes:
        print(f"\n{shape}", flush=True)
        given = argparse.Namespace(**{**NOTHING, "tail": 0, "tail_spans": 0, **SHAPES[shape]})
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(make(Path(name), given))
            command = [sys.executable, "-m", "tests.bench.bench_worker_memory", "--measure", name]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
