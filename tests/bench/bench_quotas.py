"""What client quotas cost, and how exactly they hold: `python -m tests.bench.bench_quotas`.

`cpu`: an agent's CPU for produce and fetch, two agents side by side that take slices in turn: without any
quota beside a checkout of before (`--before FOLDER`), and with quotas for every user beside one without.
`rate`: what clients of librdkafka get in a minute, by quota.

    python -m tests.bench.bench_quotas [--only cpu rate] [--before FOLDER] [--pairs 20] [--write]
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from protocol import apis
from tests.bench.pairs import QUIET, pairs_of_slices
from tests.bench.report import machine, write_section
from tests.broker.handlers.test_quotas import altering, entry
from tests.clients.raw import Connection
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

EVERY_USER = (("user", None),)
PLENTY = 1e12
"""Nobody is over it; everybody is counted."""
RATES = (1_000_000, 10_000_000)
MINUTE_S, WARM_S = 60.0, 11.0
"""The ten seconds' worth that may come at once are not measured."""
MESSAGE_BYTES = 1_000


def limit(agent: FrazilDev, entity: tuple[tuple[str, str | None], ...], **quotas: float) -> None:
    with Connection(agent.bootstrap) as connection:
        request = altering(entry(entity, *quotas.items()))
        (row,) = connection.ask(apis.ALTER_CLIENT_QUOTAS, 1, request).entries
    assert row.error_code == 0, row.error_message


def measure_unused(folder: Path, before: Path, *, pairs: int, seconds: float) -> list[str]:
    """Rows of the table: no quota is set; the other agent is of a checkout of before."""
    now, then = FrazilDev(folder / "now", *QUIET), FrazilDev(folder / "then", *QUIET)
    then.child.env["PYTHONPATH"] = str(before)
    with now, then:
        return pairs_of_slices((now, then), prepare=lambda: None, pairs=pairs, seconds=seconds)


def measure_counted(folder: Path, *, pairs: int, seconds: float) -> list[str]:
    """Rows of the table: every user has quotas at one of two agents."""
    with FrazilDev(folder / "with", *QUIET) as one, FrazilDev(folder / "without", *QUIET) as other:
        limit(
            one,
            EVERY_USER,
            producer_byte_rate=PLENTY,
            consumer_byte_rate=PLENTY,
            request_percentage=PLENTY,
        )
        return pairs_of_slices((one, other), prepare=lambda: None, pairs=pairs, seconds=seconds)


def produced_per_second(agent: FrazilDev, topic: str, *, seconds: float) -> float:
    acknowledged: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": agent.bootstrap,
            "client.id": "writer",
            "queue.buffering.max.kbytes": 4_000,
        }
    )
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        try:
            producer.produce(
                topic,
                bytes(MESSAGE_BYTES),
                on_delivery=lambda error, _: acknowledged.append(time.monotonic()),
            )
        except BufferError:
            producer.poll(0.01)
    warm, end = begun + WARM_S, begun + seconds
    count = sum(warm < each <= end for each in acknowledged)
    producer.purge()
    producer.flush(10)
    return count * MESSAGE_BYTES / (end - warm)


def consumed_per_second(agent: FrazilDev, topic: str, *, seconds: float) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": agent.bootstrap,
            "client.id": "reader",
            "group.id": f"reader-{topic}",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 100_000,
        }
    )
    consumer.subscribe([topic])
    while consumer.poll(1.0) is None:
        pass
    begun = time.monotonic()
    count = 0
    while time.monotonic() < begun + seconds:
        count += len(consumer.consume(1_000, timeout=0.1))
    consumer.close()
    return count * MESSAGE_BYTES / seconds


def _fill(agent: FrazilDev, topic: str, byte_count: float) -> None:
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    for _ in range(int(byte_count / MESSAGE_BYTES)):
        while True:
            try:
                producer.produce(topic, bytes(MESSAGE_BYTES))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)


def measure_rates(folder: Path, *, seconds: float) -> list[str]:
    """Rows of the table."""
    rows = []
    with FrazilDev(folder / "rates", *QUIET) as agent:
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        for rate in RATES:
            topic = f"rate-{rate}"
            create_topic(admin, topic, 1)
            _fill(agent, topic, rate * seconds * 1.5)
            limit(agent, (("client-id", "writer"),), producer_byte_rate=rate)
            limit(agent, (("client-id", "reader"),), consumer_byte_rate=rate)
            wrote = produced_per_second(agent, topic, seconds=seconds)
            read = consumed_per_second(agent, topic, seconds=seconds)
            rows.append(f"| {rate / 1e6:.0f} MB/s | {wrote / rate:.3f} | {read / rate:.3f} |")
            print(rows[-1], flush=True)
    return rows


CPU_HEAD = """\
| case | CPU s per GB | median of the ratios | 95 % interval |
|---|---|---|---|
"""
HEADS = {
    "unused": "*No quota is set*, beside the checkout of before. The bar: the upper end at most 1.01.\n\n"
    + CPU_HEAD,
    "counted": "*Every user has quotas* that nobody reaches, beside none. The bar: the upper end at most"
    " 1.03.\n\n" + CPU_HEAD,
    "rate": """\
*What a client of librdkafka gets in a minute*, by its quota. The bar: within 5 %.

| quota | written | read |
|---|---|---|
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_quotas")
    parser.add_argument("--only", nargs="+", choices=("cpu", "rate"), default=["cpu", "rate"])
    parser.add_argument("--before", type=Path, help="a checkout of before, to compare with")
    parser.add_argument("--pairs", type=int, default=20, help="of slices")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one slice, at most")
    parser.add_argument("--minute", type=float, default=MINUTE_S, help="of one rate")
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    pairs, seconds = options.pairs, options.seconds
    tables: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as name:
        folder = Path(name)
        if "cpu" in options.only:
            if options.before is not None:
                tables["unused"] = measure_unused(
                    folder / "unused", options.before, pairs=pairs, seconds=seconds
                )
            tables["counted"] = measure_counted(folder / "counted", pairs=pairs, seconds=seconds)
        if "rate" in options.only:
            tables["rate"] = measure_rates(folder, seconds=options.minute)
    parts = [
        f"`python -m tests.bench.bench_quotas`: `frazil dev`, {pairs} pairs of slices (`tests/bench/pairs.py`).",
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
