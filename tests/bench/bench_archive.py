"""What the archive of the log costs: `python -m tests.bench.bench_archive [--seconds 40] [--write]`.

`frazil dev` under a steady producer, with the archive and without it, at each of some rates: PUTs and bytes of archives,
and the CPU of the agent and of the worker of its jobs, which writes them. Merging and the like is in both.
"""

import argparse
import http.client
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.bench.cpu import cpu_seconds
from tests.bench.report import machine, write_section
from tests.bench.tree import processes
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

RATES: Final = (0, 1, 50)
"""MB/s."""
RECORD_BYTES: Final = 1000
PARTITIONS: Final = 12
START_S: Final = 60
ARCHIVED: Final = ("log.archive.ms=1000", "log.archive.ms=0")
INTRODUCTION = """`python -m tests.bench.bench_archive --write`: {seconds} s of a producer with records of {record} bytes in {partitions}
partitions of `frazil dev`, with the archive of the log (`log.archive.ms=1000`) and without. CPU in percent of one core.

{machine}

| MB/s | archives a minute | bytes a minute | worker, with | worker, without | agent, with | agent, without |
|---|---|---|---|---|---|---|
{rows}
"""


class Cost(NamedTuple):
    """Of some seconds."""

    seconds: float
    objects: float
    bytes: float
    worker_s: float
    agent_s: float


def metric(port: int, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def worker_of(agent: FrazilDev) -> int:
    """The process that runs its jobs, once it is there."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        below = [pid for pid, each in processes().items() if each.parent == agent.child.pid]
        if below and metric(agent.http_port, "frazil_job_worker_running"):
            return below[0]
        time.sleep(0.2)
    raise AssertionError("there is no worker of jobs")


def produce(bootstrap: str, megabytes_per_second: int, seconds: float) -> None:
    if not megabytes_per_second:
        time.sleep(seconds)
        return
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    value, count, started = b"x" * RECORD_BYTES, 0, time.monotonic()
    while (elapsed := time.monotonic() - started) < seconds:
        while count * RECORD_BYTES < elapsed * megabytes_per_second * 1_000_000:
            try:
                producer.produce("t", value, partition=count % PARTITIONS)
            except BufferError:
                producer.poll(0.01)
                continue
            count += 1
        producer.poll(0.005)
    assert producer.flush(60) == 0
    assert count * RECORD_BYTES > 0.9 * megabytes_per_second * 1_000_000 * seconds, "too slow"


def measure(rate: int, archive: str, seconds: float) -> Cost:
    with tempfile.TemporaryDirectory() as name:
        flags = [word for each in (archive, "jobs.start.delay.ms=0") for word in ("--set", each)]
        with FrazilDev(Path(name), *flags) as agent:
            create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), "t", PARTITIONS)
            worker = worker_of(agent)
            before = _mark(agent, worker)
            produce(agent.bootstrap, rate, seconds)
            after = _mark(agent, worker)
    return Cost(*[late - early for early, late in zip(before, after, strict=True)])


def _mark(agent: FrazilDev, worker: int) -> Cost:
    port = agent.http_port
    return Cost(
        time.monotonic(),
        metric(port, "frazil_archive_objects_total"),
        metric(port, "frazil_archive_bytes_total"),
        cpu_seconds(worker),
        cpu_seconds(agent.child.pid),
    )


def row(rate: int, costs: Sequence[Cost]) -> str:
    with_it, without = costs
    minute = 60 / with_it.seconds
    percents = [
        f"{100 * part / cost.seconds:.1f}"
        for part, cost in (
            (with_it.worker_s, with_it),
            (without.worker_s, without),
            (with_it.agent_s, with_it),
            (without.agent_s, without),
        )
    ]
    numbers = [str(rate), f"{with_it.objects * minute:.0f}", f"{with_it.bytes * minute:,.0f}"]
    return f"| {' | '.join([*numbers, *percents])} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_archive")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    options = parser.parse_args()
    rows = []
    for rate in RATES:
        rows.append(row(rate, [measure(rate, each, options.seconds) for each in ARCHIVED]))
        print(rows[-1], flush=True)
    if options.write:
        text = INTRODUCTION.format(
            seconds=f"{options.seconds:g}",
            record=RECORD_BYTES,
            partitions=PARTITIONS,
            machine=machine(),
            rows="\n".join(rows),
        )
        write_section("Archive", text)


if __name__ == "__main__":
    main()
