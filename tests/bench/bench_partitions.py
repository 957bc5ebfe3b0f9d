"""What many partitions cost an agent: `python -m tests.bench.bench_partitions`.

Two embedded agents, one with 100 partitions and one with 100,000, take slices of the same load in turns:
requests of 64 batches of 16 KiB, to all partitions one after the other. Prints what a batch costs either
in CPU, how fast batches go, memory, and what Metadata of all partitions takes: the first time, and again.
No test: it measures, it does not judge.
"""

import argparse
import statistics
import struct
import tempfile
import time
from pathlib import Path

from tests.bench import load
from tests.bench.bench_machine_memory import resident_bytes
from tests.bench.cpu import cpu_seconds
from tests.bench.pairs import interval
from tests.parts.servers import FrazilDev

TOPIC_PARTITIONS_MAX = 10_000
BATCH_BYTES = 16 << 10
SLICE_BYTES = 64 << 20
SLICE_S = 30.0
METADATA_VERSION = 8
ALL_TOPICS = struct.pack(">i???", -1, False, False, False)
QUIET = ("--set", "jobs.enabled=false", "--set", "puts.per.second=1000")


class Agent:
    """An agent with so many partitions, and what slices of load cost it."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.partitions = partitions
        self.agent = FrazilDev(folder / str(partitions), *QUIET)
        self.agent.start()
        self.topics = [
            (f"t{first}", min(TOPIC_PARTITIONS_MAX, partitions - first))
            for first in range(0, partitions, TOPIC_PARTITIONS_MAX)
        ]
        for name, count in self.topics:
            load.create_topic(self.agent.port, name, count)
        self.slices = 0
        self.batch_us: list[float] = []
        self.per_second: list[float] = []

    @property
    def pid(self) -> int:
        return self.agent.child.pid

    def slice(self) -> None:
        name, count = self.topics[self.slices % len(self.topics)]
        self.slices += 1
        before_s = cpu_seconds(self.pid)
        measured = load.produce(
            self.agent.port,
            name,
            partitions=count,
            batch_bytes=BATCH_BYTES,
            seconds=SLICE_S,
            bytes_max=SLICE_BYTES,
        )
        batches = measured.bytes / BATCH_BYTES
        self.batch_us.append((cpu_seconds(self.pid) - before_s) / batches * 1e6)
        self.per_second.append(batches / measured.seconds)

    def metadata(self) -> str:
        """Of all partitions; what it took."""
        connection = load.Connection(self.agent.port)
        before_s, began_s = cpu_seconds(self.pid), time.perf_counter()
        connection.send(load.METADATA, METADATA_VERSION, [ALL_TOPICS])
        count = len(connection.receive())
        took_s = time.perf_counter() - began_s
        connection.close()
        cpu_s = cpu_seconds(self.pid) - before_s
        return f"{took_s:.3f} s, {cpu_s:.3f} CPU s, {count / 1e6:.1f} MB"

    def tell(self) -> None:
        print(
            f"{self.partitions} partitions: {statistics.median(self.batch_us):.1f} µs of CPU a batch,"
            f" {statistics.median(self.per_second):.0f} batches a second (medians of {self.slices})"
        )
        print(f"{self.partitions} partitions: {resident_bytes(self.pid) / 1e6:.0f} MB resident")
        for which in ("first", "again"):
            print(f"{self.partitions} partitions: Metadata of all, {which}: {self.metadata()}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--slices", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        agents = [Agent(Path(name), count) for count in (options.few, options.many)]
        try:
            for agent in agents:  # Not measured.
                agent.slice()
                agent.slices, agent.batch_us, agent.per_second = 0, [], []
            for _ in range(options.slices):
                for agent in agents:
                    agent.slice()
            few, many = agents
            for agent in agents:
                agent.tell()
            for what, ratios in (
                ("CPU a batch", [b / a for a, b in zip(few.batch_us, many.batch_us, strict=True)]),
                ("rate", [b / a for a, b in zip(few.per_second, many.per_second, strict=True)]),
            ):
                low, high = interval(ratios)
                print(f"many : few, {what}: {statistics.median(ratios):.2f} ({low:.2f}-{high:.2f})")
        finally:
            for agent in agents:
                agent.agent.stop()


if __name__ == "__main__":
    main()
