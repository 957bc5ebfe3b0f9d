"""`python -m tests.bench.bench_fresh`: how old what `spark.read` sees is, and what agents pay for it.

One `frazil dev` takes records at a steady rate all the time. Again and again one more record is
produced, and from its acknowledgement the time runs until a query of a warm Spark session has counted
it: of the topic, and of the table with what is not in it yet. Each query asks for that one record
by partition and offset, as somebody who looks for it would; a second one asks for all of the last
minute. The agent's CPU is told for as long without reads, in turns.

    python -m tests.bench.bench_fresh [--tries 20] [--rate 500] [--write]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from iceberg_export.source.data_source import register
from tests.bench.cpu import cpu_seconds
from tests.bench.report import machine, write_section
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

PARTITIONS = 4
TOPIC = "fresh"
TRY_S = 1.0
"""Between two tries."""
PATIENCE_S = 120.0
MINUTE_MS = 60_000
ROOT = Path(__file__).parents[2]


class Ack(NamedTuple):
    partition: int
    offset: int
    at_s: float


class Load:
    """Records at a rate, from a thread; `mark` adds one and waits for its acknowledgement."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._rate = rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _produce(self) -> None:
        value = os.urandom(60).hex().encode()
        while not self._ended.wait(0.1):
            for _ in range(self._rate // 10):
                self._producer.produce(TOPIC, value)
            self._producer.poll(0)

    def mark(self) -> Ack:
        acks: list[Ack] = []

        def acked(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            acks.append(Ack(partition, offset, time.perf_counter()))

        self._producer.produce(TOPIC, b"mark", on_delivery=acked)
        deadline = time.perf_counter() + PATIENCE_S
        while not acks:
            self._producer.poll(0.01)
            assert time.perf_counter() < deadline, "a record was not acknowledged"
        return acks[0]


@contextmanager
def spark_session(folder: Path) -> Iterator[Any]:
    """A session of the user's own, as docs/tables.md says to start it."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    log4j = ROOT / "iceberg_export" / "log4j2.properties"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{log4j}")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.python.daemon.module", "iceberg_export.spark_daemon")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(session)
    yield session
    session.stop()


Query = Callable[[Ack], int]


def queries(session: Any, agent: FrazilDev, data: Path) -> dict[str, Query]:
    """By name: a query that counts one record."""
    reader = session.read.format("frazil").option("agent", f"http://127.0.0.1:{agent.http_port}")

    def place(ack: Ack) -> str:
        return f"kafka_partition = {ack.partition} AND kafka_offset = {ack.offset}"

    def topic(ack: Ack) -> int:
        options = reader.option("topic", TOPIC).option("pushFilters", "true")
        return int(options.load().where(place(ack)).count())

    def minute(ack: Ack) -> int:
        since = f"kafka_timestamp >= timestamp_millis({int(time.time() * 1000) - MINUTE_MS})"
        frame = reader.option("topic", TOPIC).option("pushFilters", "true").load().where(since)
        return int(frame.selectExpr(f"count_if({place(ack)})").first()[0])

    def table(ack: Ack) -> int:
        options = session.read.format("frazil").option("table", f"frazil.{TOPIC}")
        options = options.option("agent", f"http://127.0.0.1:{agent.http_port}")
        return int(options.option("data", str(data)).load().where(place(ack)).count())

    return {"topic, that record": topic, "topic, the last minute": minute, "table and topic": table}


def seen_after_s(load: Load, query: Query) -> float:
    """Seconds from the acknowledgement of a record until the query counts it."""
    ack = load.mark()
    while query(ack) != 1:
        assert time.perf_counter() - ack.at_s < PATIENCE_S, "the record is not seen"
    return time.perf_counter() - ack.at_s


class Row(NamedTuple):
    name: str
    seconds: list[float]
    agent_reading: float
    """CPU seconds of the agent per second, while the query ran again and again."""
    agent_alone: float


def measure(agent: FrazilDev, load: Load, name: str, query: Query, tries: int) -> Row:
    seen_after_s(load, query)  # Spark compiles, workers start.
    alone = reading = alone_s = reading_s = 0.0
    seconds = []
    for _ in range(tries):
        before, began = cpu_seconds(agent.child.pid), time.perf_counter()
        time.sleep(TRY_S)
        middle, middle_s = cpu_seconds(agent.child.pid), time.perf_counter()
        seconds.append(seen_after_s(load, query))
        time.sleep(max(0.0, TRY_S - seconds[-1]))
        after, ended = cpu_seconds(agent.child.pid), time.perf_counter()
        alone, alone_s = alone + middle - before, alone_s + middle_s - began
        reading, reading_s = reading + after - middle, reading_s + ended - middle_s
    print(f"{name}: {statistics.median(seconds):.2f} s", flush=True)
    return Row(name, seconds, reading / reading_s, alone / alone_s)


def report(rows: list[Row], rate: int, load_before: float) -> str:
    lines = [
        f"`python -m tests.bench.bench_fresh`: one `frazil dev` that takes {rate} records a second, and",
        "one warm Spark session (`local[2]`) on the same machine. From a record's acknowledgement until",
        "a query has counted it; the agent's CPU meanwhile, and as long without any query, in turns (a",
        "query begins every second or as soon as the one before has ended).",
        "",
        f"{machine()} · load average {load_before:.1f} before",
        "",
        "| query | tries | acknowledged to seen, p50, max s | agent's CPU with reads, without |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row.name} | {len(row.seconds)} | {statistics.median(row.seconds):.2f}, "
        f"{max(row.seconds):.2f} | {row.agent_reading:.1%}, {row.agent_alone:.1%} of a core |"
        for row in rows
    ]
    lines += [
        "",
        "The bar: seen within 2 s, the agent's CPU unchanged (one request for each query).",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_fresh")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--rate", type=int, default=500, help="records a second, all the time")
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with FrazilDev(folder / "agent") as agent:
            create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), TOPIC, PARTITIONS)
            with Load(agent.bootstrap, arguments.rate) as load:
                load.mark()
                export = [sys.executable, "-m", "iceberg_export", "run", "--once"]
                export += ["--agent", f"http://127.0.0.1:{agent.http_port}"]
                subprocess.run([*export, "--data", str(folder / "data")], check=True, cwd=ROOT)
                with spark_session(folder) as session:
                    rows = [
                        measure(agent, load, title, query, arguments.tries)
                        for title, query in queries(session, agent, folder / "data").items()
                    ]
            assert agent.stop() == 0
    text = report(rows, arguments.rate, load_before)
    print(text)
    if arguments.write:
        write_section("Fresh reads", text)


if __name__ == "__main__":
    main()
