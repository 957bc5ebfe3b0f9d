"""Real clients, each turn in a process of its own: librdkafka and Kafka's own tools in Java."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.sides import Cost, Side, costing
from tests.parts import install

JAVA_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
JAVA_CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
RECORD_BYTES = 1024
WAIT_S = 300.0
JAVA_LINGER_MS = 5
"""Kafka's default since 4.0."""
Seen = dict[str, float]


def rdkafka(
    side: Side,
    work: str,
    topic: str,
    *,
    meanwhile: Callable[[], None] = lambda: None,
    **more: float,
) -> tuple[Seen, Cost]:
    """What `tests.bench.rdkafka` saw, and what its work cost the broker."""
    options = [part for name, value in more.items() for part in (f"--{name}", str(value))]
    argv = [sys.executable, "-m", "tests.bench.rdkafka", work]
    where = ["--port", str(side.port), "--topic", topic]
    client = subprocess.Popen([*argv, *where, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n", f"{work} did not begin"
        with costing(side) as cost:
            meanwhile()
            line = client.stdout.readline()
        assert client.wait(WAIT_S) == 0
    finally:
        client.kill()
        client.wait()
    return json.loads(line), cost


def java_produce(side: Side, topic: str, *, records: int, batch: int) -> tuple[Seen, Cost]:
    """kafka-producer-perf-test, as fast as it goes."""
    given = {
        "bootstrap.servers": f"127.0.0.1:{side.port}",
        "acks": "all",
        "batch.size": str(batch),
        "linger.ms": str(JAVA_LINGER_MS),
    }
    told, cost = _java(
        side,
        JAVA_PRODUCER,
        *("--topic", topic, "--num-records", str(records), "--record-size", str(RECORD_BYTES)),
        *("--throughput", "-1", "--command-property"),
        *(f"{name}={value}" for name, value in given.items()),
    )
    return produced(told), cost


def produced(told: str) -> Seen:
    """What kafka-producer-perf-test tells at its end."""
    summaries = re.findall(
        r"^(\d+) records sent, ([\d.]+) records/sec .* (\d+) ms 50th, .* (\d+) ms 99th",
        told,
        re.MULTILINE,
    )
    assert summaries, told
    records, per_second, p50_ms, p99_ms = map(float, summaries[-1])
    return {
        "bytes": records * RECORD_BYTES,
        "records": records,
        "seconds": records / per_second,
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
    }


def franz_go(
    side: Side, work: str, topic: str, *, partitions: int, records: int
) -> tuple[Seen, Cost]:
    """franz-go at full speed, in batches of 16 KiB: "produce", or "consume" from the beginning."""
    program = install.franz_go_program(Path(__file__).parent / "franz_load.go")
    where = [f"127.0.0.1:{side.port}", topic, work, str(partitions), str(records)]
    told, cost = _run(side, [str(program), *where])
    count, seconds = told.split()
    seen = {"records": float(count), "bytes": float(count) * RECORD_BYTES}
    return {**seen, "seconds": float(seconds)}, cost


def java_consume(side: Side, topic: str, *, records: int) -> tuple[Seen, Cost]:
    """kafka-consumer-perf-test from the beginning; its time without that of joining the group."""
    told, cost = _java(
        side,
        JAVA_CONSUMER,
        *("--bootstrap-server", f"127.0.0.1:{side.port}", "--topic", topic),
        *("--num-records", str(records), "--hide-header"),
    )
    return consumed(told), cost


def consumed(told: str) -> Seen:
    """What kafka-consumer-perf-test tells: its line of figures ends with the time of fetching (ms),
    and MB and records a second of that time."""
    lines = [line.split(", ") for line in told.splitlines() if line.count(", ") == 9]
    assert lines, told
    records, fetch_ms = float(lines[-1][4]), float(lines[-1][7])
    return {"bytes": records * RECORD_BYTES, "records": records, "seconds": fetch_ms / 1000}


def _java(side: Side, program: str, *arguments: str) -> tuple[str, Cost]:
    return _run(
        side, [*install.jvm("512m"), "-cp", f"{install.kafka_jars()}/*", program, *arguments]
    )


def _run(side: Side, argv: Sequence[str]) -> tuple[str, Cost]:
    """What a program prints, and what it cost the broker."""
    with costing(side) as cost:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, cost
