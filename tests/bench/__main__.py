"""`python -m tests.bench`: Frazil beside Apache Kafka, and BENCHMARKS.md.

Both brokers run at once and take turns, so that a machine that slows down slows both; the ratios
are of medians over the turns. Figures of one run on a shared machine are worth their ratios, not
their absolute values.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench import load
from tests.parts.servers import FrazilDev, KafkaServer

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Case:
    batch_bytes: int
    partitions: int

    @property
    def title(self) -> str:
        size = f"{self.batch_bytes >> 20} MiB" if self.batch_bytes >= 1 << 20 else "16 KiB"
        return f"{size} batches, {self.partitions} partition{'s' if self.partitions > 1 else ''}"


CASES = [Case(1 << 20, 1), Case(1 << 20, 64), Case(16 << 10, 1), Case(16 << 10, 64)]


@dataclass
class Figures:
    """Medians over the turns of one case on one side."""

    mb_per_s: float
    cpu_s_per_gb: float
    p50_ms: float
    p99_ms: float


@dataclass
class Broker:
    name: str
    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """User and system time of the process, all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _figures(broker: Broker, run) -> Figures:
    before = broker.cpu_seconds()
    measured = run(broker)
    cpu = broker.cpu_seconds() - before
    return Figures(
        mb_per_s=measured.bytes / 1e6 / measured.seconds,
        cpu_s_per_gb=cpu / (measured.bytes / 1e9),
        p50_ms=measured.percentile(0.5),
        p99_ms=measured.percentile(0.99),
    )


def _median(turns: list[Figures]) -> Figures:
    def middle(name: str) -> float:
        return statistics.median(getattr(turn, name) for turn in turns)

    return Figures(middle("mb_per_s"), middle("cpu_s_per_gb"), middle("p50_ms"), middle("p99_ms"))


def _pair(brokers: list[Broker], turns: int, run) -> list[Figures]:
    """Each broker `turns` times in turn; medians in the order of `brokers`."""
    taken: list[list[Figures]] = [[] for _ in brokers]
    for _ in range(turns):
        for broker, figures in zip(brokers, taken, strict=True):
            figures.append(_figures(broker, run))
    return [_median(figures) for figures in taken]


ROW = "| {title} | {a.mb_per_s:.0f} / {b.mb_per_s:.0f} | {a.cpu_s_per_gb:.2f} / {b.cpu_s_per_gb:.2f} | **{ratio:.2f}** | {a.p50_ms:.1f}, {a.p99_ms:.1f} / {b.p50_ms:.1f}, {b.p99_ms:.1f} |"


def _row(title: str, pair: list[Figures]) -> str:
    ours, theirs = pair
    ratio = ours.cpu_s_per_gb / theirs.cpu_s_per_gb if theirs.cpu_s_per_gb else float("nan")
    return ROW.format(title=title, a=ours, b=theirs, ratio=ratio)


def _measure(brokers: list[Broker], *, seconds: float, turns: int) -> list[str]:
    rows: list[str] = []
    for case in CASES:
        topic = f"bench-{case.batch_bytes}-{case.partitions}"
        for broker in brokers:
            load.create_topic(broker.port, topic, case.partitions)
        for broker in brokers:  # Warm up: the JVM compiles, allocators grow.
            load.produce(
                broker.port,
                topic,
                partitions=case.partitions,
                batch_bytes=case.batch_bytes,
                seconds=seconds / 2,
            )

        def produce(broker: Broker, case: Case = case, topic: str = topic) -> load.Measured:
            return load.produce(
                broker.port,
                topic,
                partitions=case.partitions,
                batch_bytes=case.batch_bytes,
                seconds=seconds,
            )

        def fetch(broker: Broker, case: Case = case, topic: str = topic) -> load.Measured:
            return load.fetch(
                broker.port, topic, partitions=case.partitions, bytes_max=1_000_000_000
            )

        rows.append(_row(f"produce, {case.title}", _pair(brokers, turns, produce)))
        print(rows[-1], flush=True)
        rows.append(_row(f"fetch, {case.title}", _pair(brokers, turns, fetch)))
        print(rows[-1], flush=True)

    def paced(broker: Broker) -> load.Measured:
        return load.produce_paced(broker.port, "bench-16384-1", per_second=200, seconds=seconds)

    rows.append(_row("produce, 200 single records a second", _pair(brokers, turns, paced)))
    print(rows[-1], flush=True)
    return rows


REPORT = """# Benchmarks

Written by `make bench`. One `frazil dev` (local-disk store and SQLite log, both with fsync) beside
one Apache Kafka {kafka} node (KRaft, its defaults: no fsync per write), on one machine at the same
time, taking turns; the same raw client and load for both (`tests/bench/load.py`: records of 1 KiB,
incompressible, requests of about 1 MiB, 5 in flight, acks=all). Medians of {turns} turns of
{seconds:g} s. Fetch reads at most 1 GB from the beginning.

{date} · {machine} · load average {load_before:.1f} before, {load_after:.1f} after

| case | MB/s (Frazil / Kafka) | broker's CPU s per GB (Frazil / Kafka) | ratio of CPU | request p50, p99 ms (Frazil / Kafka) |
|---|---|---|---|---|
{rows}

Differences below 1.5 between single runs of a shared machine mean little; ratios within one run
are steadier. The bar: ratio of CPU at most 1.0 for 1 MiB batches with the embedded store.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "BENCHMARKS.md")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder:
        frazil = FrazilDev(Path(folder) / "frazil")
        kafka = KafkaServer(Path(folder) / "kafka")
        try:
            frazil.start()
            kafka.start()
            brokers = [
                Broker("Frazil", frazil.port, frazil.child.pid),
                Broker("Kafka", kafka.port, kafka.child.pid),
            ]
            rows = _measure(brokers, seconds=options.seconds, turns=options.turns)
        finally:
            frazil.stop()
            kafka.stop()
    options.out.write_text(
        REPORT.format(
            kafka="4.3.1",
            turns=options.turns,
            seconds=options.seconds,
            date=time.strftime("%Y-%m-%d"),
            machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}",
            load_before=load_before,
            load_after=os.getloadavg()[0],
            rows="\n".join(rows),
        )
    )
    print(f"written to {options.out.name}")


if __name__ == "__main__":
    main()
