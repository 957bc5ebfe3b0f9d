"""What client quotas cost, and how exactly they hold: `python -m tests.bench.bench_quotas`.

`cpu`: what requests cost an agent in one process, without sockets and disks (`tests/bench/in_process.py`): without any
quota beside a checkout of before (`--before FOLDER`), and with quotas for every user beside none.
`rate`: what clients of librdkafka and of Java get in a minute, from its first second on, of one agent, and of three
that share the quotas out.

    python -m tests.bench.bench_quotas [--only cpu rate cluster] [--before FOLDER] [--pairs 20] [--write]
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from protocol import apis
from tests.bench import in_process
from tests.bench.pairs import QUIET, interval
from tests.bench.report import machine, write_section
from tests.broker.handlers.test_quotas import altering, entry
from tests.clients.kafka_tools import CONSUMER_PERF_TEST, PRODUCER_PERF_TEST, KafkaTools
from tests.clients.raw import Connection
from tests.parts.servers import EtcdServer, FrazilCluster, FrazilDev, MinioServer
from tests.parts.topics import create_topic

PARTS = ("cpu", "rate", "cluster")
BYTES = ("producer_byte_rate=1e12", "consumer_byte_rate=1e12")
TIME = "request_percentage=1e12"
RATES, CLUSTER_RATES = (1_000_000, 5_000_000), (2_000_000,)
MINUTE_S = 60.0
MESSAGE_BYTES = 1_000
PARTITIONS = 6


def limit(bootstrap: str, entity: tuple[tuple[str, str | None], ...], **quotas: float) -> None:
    with Connection(bootstrap) as connection:
        request = altering(entry(entity, *quotas.items()))
        (row,) = connection.ask(apis.ALTER_CLIENT_QUOTAS, 1, request).entries
    assert row.error_code == 0, row.error_message


def request_costs(checkout: Path, *quotas: str) -> dict[str, float]:
    """Microseconds a request, by its kind (`tests/bench/in_process.py`)."""
    done = subprocess.run(
        [sys.executable, str(Path(in_process.__file__)), *quotas],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


Costs = Callable[[], dict[str, float]]


def compare(one: Costs, other: Costs, *, pairs: int) -> list[str]:
    """Rows of the table: one's by the other's, in turns."""
    found: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(pairs):
        if number % 2:
            after = other()
            found.append((one(), after))
        else:
            found.append((one(), other()))
    rows = []
    for kind in found[0][0]:
        both = [(first[kind], second[kind]) for first, second in found]
        ratios = [first / second for first, second in both]
        low, high = interval(ratios)
        medians = " / ".join(f"{statistics.median(each):.1f}" for each in zip(*both, strict=True))
        rows.append(
            f"| {kind} | {medians} | **{statistics.median(ratios):.3f}** | {low:.3f} to {high:.3f} |"
        )
        print(rows[-1], flush=True)
    return rows


Client = Callable[[str, str, str, int], float]
"""Bytes a second of a client: where, its topic, its client id, and how many bytes a minute of its quota are."""


def librdkafka_writes(bootstrap: str, topic: str, client_id: str, minute_bytes: int) -> float:
    count = 0

    def acknowledged(error: object, _message: object) -> None:
        nonlocal count
        count += error is None and time.monotonic() < end

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "queue.buffering.max.kbytes": 4_000,
        }
    )
    end = time.monotonic() + MINUTE_S
    while time.monotonic() < end:
        try:
            producer.produce(topic, bytes(MESSAGE_BYTES), on_delivery=acknowledged)
        except BufferError:
            producer.poll(0.01)
    producer.purge()
    producer.flush(10)
    return count * MESSAGE_BYTES / MINUTE_S


def librdkafka_reads(bootstrap: str, topic: str, client_id: str, minute_bytes: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 100_000,
        }
    )
    consumer.subscribe([topic])
    while consumer.poll(1.0) is None:
        pass
    count, end = 1, time.monotonic() + MINUTE_S
    while time.monotonic() < end:
        count += len(consumer.consume(1_000, timeout=0.1))
    consumer.close()
    return count * MESSAGE_BYTES / MINUTE_S


def java_writes(bootstrap: str, topic: str, client_id: str, minute_bytes: int) -> float:
    tools = KafkaTools()
    count = minute_bytes // MESSAGE_BYTES
    printed = tools.run(
        PRODUCER_PERF_TEST,
        bootstrap,
        *("--topic", topic, "--num-records", str(count), "--record-size", str(MESSAGE_BYTES)),
        *("--throughput", "-1", "--command-property", f"client.id={client_id}"),
    )
    tools.stop()
    (rate,) = re.findall(rf"^{count} records sent, ([0-9.]+) records/sec", printed, re.MULTILINE)
    return float(rate) * MESSAGE_BYTES


def java_reads(bootstrap: str, topic: str, client_id: str, minute_bytes: int) -> float:
    tools = KafkaTools()
    printed = tools.run(
        CONSUMER_PERF_TEST,
        bootstrap,
        *("--topic", topic, "--num-records", str(minute_bytes // MESSAGE_BYTES)),
        *("--group", client_id, "--timeout", "60000"),
        *("--command-property", f"client.id={client_id}"),
    )
    tools.stop()
    names, values = (line.split(", ") for line in printed.strip().splitlines()[-2:])
    told = dict(zip(names, values, strict=True))
    return float(told["fetch.MB.sec"]) * (1 << 20)


CLIENTS: dict[str, Client] = {
    "librdkafka writes": librdkafka_writes,
    "Java writes": java_writes,
    "librdkafka reads": librdkafka_reads,
    "Java reads": java_reads,
}


def _fill(bootstrap: str, topic: str, byte_count: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(int(byte_count / MESSAGE_BYTES)):
        while True:
            try:
                producer.produce(topic, bytes(MESSAGE_BYTES))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)


def measure_rate(bootstrap: str, rate: int) -> str:
    """A row of the table: all clients at once, each with a quota of its own."""
    topic, minute_bytes = f"rate-{rate}", int(rate * MINUTE_S)
    create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, PARTITIONS)
    _fill(bootstrap, topic, 1.3 * minute_bytes)

    def run(name: str) -> str:
        client_id = f"{name.replace(' ', '-')}-{rate}"
        limit(
            bootstrap,
            (("client-id", client_id),),
            producer_byte_rate=rate,
            consumer_byte_rate=rate,
        )
        return f"{CLIENTS[name](bootstrap, topic, client_id, minute_bytes) / rate:.3f}"

    with ThreadPoolExecutor(len(CLIENTS)) as threads:
        return f"{rate / 1e6:.0f} MB/s | {' | '.join(threads.map(run, CLIENTS))} |"


def measure_one(folder: Path) -> list[str]:
    """Rows of the table."""
    with FrazilDev(folder / "rates", *QUIET) as agent:
        return [f"| one agent | {measure_rate(agent.bootstrap, rate)}" for rate in RATES]


def measure_shared(folder: Path) -> list[str]:
    """Rows of the table: three agents, with one quota for all of them."""
    etcd, minio = EtcdServer(folder / "etcd"), MinioServer(folder / "minio")
    etcd.start()
    minio.start()
    try:
        scope = ("frazil.quota.scope=cluster", "jobs.enabled=false")
        with FrazilCluster(folder / "shared", etcd, minio, *scope) as cluster:
            return [
                f"| three, `cluster` | {measure_rate(cluster.bootstrap, rate)}"
                for rate in CLUSTER_RATES
            ]
    finally:
        minio.stop()
        etcd.stop()


CPU_HEAD = """\
| request | µs | median of the ratios | 95 % interval |
|---|---|---|---|
"""
HEADS = {
    "unused": "*No quota is set*, beside the checkout of before. The bar: the median at most 1.01.\n\n"
    + CPU_HEAD,
    "counted": "*Every user has quotas of bytes* that nobody reaches, beside none. Sockets, which are not in here, cost"
    " a request as much again or more.\n\n" + CPU_HEAD,
    "timed": "*And a quota of request time*.\n\n" + CPU_HEAD,
    "rate": """\
*What clients get in a minute*, by their quotas, from the first second on. The bar: within 5 %.

| agents | quota | librdkafka writes | Java writes | librdkafka reads | Java reads |
|---|---|---|---|---|---|
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_quotas")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--before", type=Path, help="a checkout of before, to compare with")
    parser.add_argument("--pairs", type=int, default=12, help="of runs")
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    pairs = options.pairs
    tables: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as name:
        folder = Path(name)
        if "cpu" in options.only:
            here = Path(__file__).parents[2]
            plain, bytes_only = partial(request_costs, here), partial(request_costs, here, *BYTES)
            if options.before is not None:
                before = partial(request_costs, options.before)
                tables["unused"] = compare(plain, before, pairs=pairs)
            tables["counted"] = compare(bytes_only, plain, pairs=pairs)
            timed = partial(request_costs, here, *BYTES, TIME)
            tables["timed"] = compare(timed, plain, pairs=pairs)
        rates = measure_one(folder) if "rate" in options.only else []
        if "cluster" in options.only:
            rates += measure_shared(folder)
        if rates:
            tables["rate"] = rates
    parts = [
        f"`python -m tests.bench.bench_quotas`: {pairs} pairs of runs.",
        "",
        f"{machine()} · load average {load_before:.1f} before",
    ]
    for name, rows in tables.items():
        parts += ["", HEADS[name] + "\n".join(rows)]
    if options.write:
        write_section("Quotas", "\n".join(parts))
    else:
        print("\n".join(parts))


if __name__ == "__main__":
    main()
