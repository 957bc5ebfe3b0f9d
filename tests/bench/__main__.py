"""`python -m tests.bench`: Frazil beside Apache Kafka, and BENCHMARKS.md.

Both brokers run at once and take turns, so that a machine that slows down slows both; the ratios
are of medians over the turns. Figures of one run on a shared machine are worth their ratios, not
their absolute values.

Every case begins with the same load for both, unmeasured: the JVM compiles, allocators grow, and
afterwards a fetch from the beginning finds more than Frazil keeps in memory, so it is a catch-up.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from tests.bench import bench_groups, load, report
from tests.bench.cpu import cpu_seconds
from tests.bench.report import machine, write_section
from tests.parts import install
from tests.parts.servers import FrazilDev, KafkaServer

FILL_BYTES = 400_000_000
"""Written before a case is measured: more than the 256 MiB that `frazil dev` caches."""
FILL_SECONDS = 8.0
FILL_IN_FLIGHT_BYTES = 5 << 20
"""More than a socket holds, and neither side would read before the other does."""
PRODUCE_BYTES = 300_000_000
"""Of one turn at most: what is written stays on the disk and in the page cache."""
FETCH_BYTES = 400_000_000
NEWEST_BYTES = 100_000_000
PACED_PER_SECOND = 200
GROUPS, MEMBERS = 2000, 5
GROUPS_SECONDS = 30.0


@dataclass(frozen=True)
class Case:
    batch_bytes: int
    partitions: int

    @property
    def topic(self) -> str:
        return f"bench-{self.batch_bytes}-{self.partitions}"

    @property
    def title(self) -> str:
        size = "1 MiB" if self.batch_bytes == 1 << 20 else f"{self.batch_bytes >> 10} KiB"
        return f"{size} batches, {self.partitions} partition{'s' if self.partitions > 1 else ''}"


CASES = [Case(1 << 20, 1), Case(1 << 20, 64), Case(16 << 10, 1), Case(16 << 10, 64)]


@dataclass
class Figures:
    """One turn of one case on one side, or the medians of several."""

    mb_per_s: float
    cpu_s_per_gb: float
    cpu_ms_per_request: float
    p50_ms: float
    p99_ms: float


@dataclass
class Broker:
    name: str
    port: int
    pid: int

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)


Run = Callable[[Broker], load.Measured]


def _figures(broker: Broker, run: Run) -> Figures:
    before = broker.cpu_seconds()
    measured = run(broker)
    cpu = broker.cpu_seconds() - before
    return Figures(
        mb_per_s=measured.bytes / 1e6 / measured.seconds,
        cpu_s_per_gb=cpu / (measured.bytes / 1e9),
        cpu_ms_per_request=cpu * 1000 / len(measured.latencies_ms),
        p50_ms=measured.percentile(0.5),
        p99_ms=measured.percentile(0.99),
    )


def _median(turns: list[Figures]) -> Figures:
    names = [field.name for field in fields(Figures)]
    return Figures(*(statistics.median(getattr(turn, name) for turn in turns) for name in names))


def _pair(brokers: list[Broker], turns: int, run: Run) -> list[Figures]:
    """Each broker `turns` times in turn; medians in the order of `brokers`."""
    taken: list[list[Figures]] = [[] for _ in brokers]
    for _ in range(turns):
        for broker, figures in zip(brokers, taken, strict=True):
            figures.append(_figures(broker, run))
    return [_median(figures) for figures in taken]


def _row(title: str, pair: list[Figures]) -> str:
    ours, theirs = pair
    cells = [
        title,
        f"{ours.mb_per_s:.0f} / {theirs.mb_per_s:.0f}",
        f"{ours.cpu_s_per_gb:.2f} / {theirs.cpu_s_per_gb:.2f}",
        f"**{ours.cpu_s_per_gb / theirs.cpu_s_per_gb:.2f}**",
        f"{ours.p50_ms:.1f}, {ours.p99_ms:.1f} / {theirs.p50_ms:.1f}, {theirs.p99_ms:.1f}",
        f"{ours.p50_ms / theirs.p50_ms:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _paced_row(title: str, pair: list[Figures]) -> str:
    ours, theirs = pair
    cells = [
        title,
        f"{ours.cpu_ms_per_request:.2f} / {theirs.cpu_ms_per_request:.2f}",
        f"**{ours.cpu_ms_per_request / theirs.cpu_ms_per_request:.2f}**",
        f"{ours.p50_ms:.1f}, {ours.p99_ms:.1f} / {theirs.p50_ms:.1f}, {theirs.p99_ms:.1f}",
        f"{ours.p50_ms / theirs.p50_ms:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _measure_groups(brokers: list[Broker], *, http_port: int) -> list[str]:
    """The rows of the table about heartbeats, ours and theirs, printed as they come."""
    rows: list[str] = []
    for protocol, every_s in bench_groups.CASES:
        ours, theirs = [
            bench_groups.measure(
                broker.port,
                broker.pid,
                protocol=protocol,
                every_s=every_s,
                seconds=GROUPS_SECONDS,
                groups=GROUPS,
                members=MEMBERS,
                http_port=http_port if broker is brokers[0] else None,
            )
            for broker in brokers
        ]
        cells = [
            f"{protocol}, every {every_s:g} s",
            f"{ours.heartbeats_per_s:.0f} / {theirs.heartbeats_per_s:.0f}",
            f"**{ours.core_percent:.1f}** / {theirs.core_percent:.1f}",
            f"{ours.us_per_heartbeat:.0f} / {theirs.us_per_heartbeat:.0f}",
            f"{ours.p50_ms:.1f}, {ours.p99_ms:.1f} / {theirs.p50_ms:.1f}, {theirs.p99_ms:.1f}",
            f"{ours.entries}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return rows


def _fill(brokers: list[Broker], case: Case) -> None:
    request_bytes = min(1 << 20, case.batch_bytes * case.partitions)
    for broker in brokers:
        load.create_topic(broker.port, case.topic, case.partitions)
        load.produce(
            broker.port,
            case.topic,
            partitions=case.partitions,
            batch_bytes=case.batch_bytes,
            seconds=FILL_SECONDS,
            bytes_max=FILL_BYTES,
            in_flight=FILL_IN_FLIGHT_BYTES // request_bytes,
        )
        load.fetch(broker.port, case.topic, partitions=case.partitions, bytes_max=FETCH_BYTES // 4)


def _measure_case(
    brokers: list[Broker], case: Case, *, seconds: float, turns: int
) -> dict[str, list[Figures]]:
    """Ours and theirs: produce, fetch what is newest, fetch from the beginning."""

    def produce(broker: Broker) -> load.Measured:
        return load.produce(
            broker.port,
            case.topic,
            partitions=case.partitions,
            batch_bytes=case.batch_bytes,
            seconds=seconds,
            bytes_max=PRODUCE_BYTES,
        )

    def fetch_newest(broker: Broker) -> load.Measured:
        return load.fetch(
            broker.port,
            case.topic,
            partitions=case.partitions,
            bytes_max=NEWEST_BYTES,
            newest=True,
        )

    def fetch(broker: Broker) -> load.Measured:
        return load.fetch(
            broker.port, case.topic, partitions=case.partitions, bytes_max=FETCH_BYTES
        )

    return {
        "produce": _pair(brokers, turns, produce),
        "fetch newest": _pair(brokers, turns, fetch_newest),
        "catch up": _pair(brokers, turns, fetch),
    }


def _measure(brokers: list[Broker], *, seconds: float, turns: int) -> tuple[list[str], list[str]]:
    """The rows of the two tables, printed as they come."""
    rows: list[str] = []
    for case in CASES:
        _fill(brokers, case)
        measured = _measure_case(brokers, case, seconds=seconds, turns=turns)
        for what, pair in measured.items():
            rows.append(_row(f"{what}, {case.title}", pair))
            print(rows[-1], flush=True)

    def paced(broker: Broker) -> load.Measured:
        return load.produce_paced(
            broker.port, CASES[2].topic, per_second=PACED_PER_SECOND, seconds=seconds
        )

    paced_row = _paced_row(
        f"produce, {PACED_PER_SECOND} single records a second", _pair(brokers, turns, paced)
    )
    print(paced_row, flush=True)
    return rows, [paced_row]


REPORT = """`make bench`: one `frazil dev` (local-disk store and SQLite log, both with fsync) beside
one Apache Kafka {kafka} node (KRaft, its defaults: no fsync per write, heap 1 GB), on one machine
at the same time, taking turns; the same raw client and load for both (`tests/bench/load.py`:
records of 1 KiB, incompressible, requests of about 1 MiB with at most one batch of a partition,
5 in flight, acks=all). Medians of {turns} turns of {seconds:g} s or {produce_mb} MB, after
{fill_mb} MB unmeasured. Fetches have one request in flight: the newest {newest_mb} MB, as a consumer that
keeps up reads them (Frazil from its memory, Kafka from the page cache), and to catch up {fetch_mb} MB
from the beginning (Frazil from the files of its store, since newer records fill its own memory).

{machine} · load average {load_before:.1f} before, {load_after:.1f} after (the benchmark
itself included)

| case (Frazil / Kafka) | MB/s | broker's CPU s per GB | ratio of CPU | request p50, p99 ms | ratio of p50 |
|---|---|---|---|---|---|
{rows}

| case (Frazil / Kafka) | broker's CPU ms per request | ratio of CPU | request p50, p99 ms | ratio of p50 |
|---|---|---|---|---|
{paced}

{groups} groups of {members} members, each on its own connection, that do nothing but heartbeat for
{groups_seconds:g} s (`tests/bench/bench_groups.py`). The bar: at most 25 % of a core with the classic
protocol, and no entries in the log but ticks.

| protocol (Frazil / Kafka) | heartbeats per s | % of a core | CPU µs per heartbeat | answer p50, p99 ms | entries written by Frazil |
|---|---|---|---|---|---|
{heartbeats}

Differences below 1.5 between single runs of a shared machine mean little; ratios within one run
are steadier. The bar: ratio of CPU at most 1.0 for 1 MiB batches with the embedded store.

How to read it. Kafka sends from the page cache without copying (sendfile); what a catch-up reads here
passes through the agent, is compared with its checksums and patched. A produce request waits for an fsync of its chunk and one of the log, so latency is
what Frazil pays, and with one partition and 16 KiB batches (5 x 16 KiB in flight) latency is also
what bounds MB/s. MB/s of the other cases is the disk's (every byte is on it before the answer) or
the client's. The kernel's own writeback of Kafka's unsynced bytes is not in Kafka's figure.
"""


def main() -> None:
    """Run everything, write the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one turn, at most")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=report.PATH)
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder:
        frazil = FrazilDev(Path(folder) / "frazil")
        # Its default: members that come at about the same time join at the same time.
        delay = "group.initial.rebalance.delay.ms=3000"
        kafka = KafkaServer(Path(folder) / "kafka", delay, java=install.measured_jvm("1g"))
        try:
            frazil.start()
            kafka.start()
            brokers = [
                Broker("Frazil", frazil.port, frazil.child.pid),
                Broker("Kafka", kafka.port, kafka.child.pid),
            ]
            heartbeats = _measure_groups(brokers, http_port=frazil.http_port)
            rows, paced = _measure(brokers, seconds=options.seconds, turns=options.turns)
        finally:
            frazil.stop()
            kafka.stop()
    write_section(
        "Brokers",
        REPORT.format(
            kafka="4.3.1",
            turns=options.turns,
            seconds=options.seconds,
            produce_mb=PRODUCE_BYTES // 1_000_000,
            fill_mb=FILL_BYTES // 1_000_000,
            newest_mb=NEWEST_BYTES // 1_000_000,
            fetch_mb=FETCH_BYTES // 1_000_000,
            machine=machine(),
            load_before=load_before,
            load_after=os.getloadavg()[0],
            rows="\n".join(rows),
            paced="\n".join(paced),
            groups=GROUPS,
            members=MEMBERS,
            groups_seconds=GROUPS_SECONDS,
            heartbeats="\n".join(heartbeats),
        ),
        options.out,
    )


if __name__ == "__main__":
    main()
