"""`python -m tests.bench.bench_export`: a topic into an Iceberg table, by three ways.

The same records, made by one producer with zstd, lie in a Frazil agent and in Apache Kafka:
`frazil export run --once` reads the agent's chunks, Spark's own Kafka source with an Iceberg append
and Kafka Connect with Iceberg's sink read from Kafka. All write to this machine's disk. CPU seconds are
those of the whole process tree of the exporting side; the broker's are told beside them.

Each way first exports a smaller topic, in the same process: start, compilers and caches are paid
there and told apart. DuckDB then counts what is in each table.

    python -m tests.parts java kafka iceberg spark-kafka connect-iceberg
    python -m tests.bench.bench_export [--records 5000000] [--only frazil,spark,connect] [--write]
"""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.bench.cpu import cpu_seconds
from tests.bench.report import machine, write_section
from tests.bench.tree import MemorySampler, cpu_by_kind
from tests.parts import install
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev, KafkaServer
from tests.parts.topics import create_topic

PARTITIONS = 12
WARM, BENCH = "a_warm", "b_bench"
WARM_RECORDS = 1_000_000
ROOT = Path(__file__).parents[2]
PATIENCE_S = 3600.0


class Cost(NamedTuple):
    """Of one way. Seconds of CPU."""

    name: str
    command: str
    warm: float
    """From the start of the process until the smaller topic is in its table."""
    bench: float
    """From then until the big one is."""
    kinds: dict[str, float]
    """`bench` by kinds of processes."""
    broker: float
    """Of the broker meanwhile."""
    wall: float
    driver_bytes: int
    tree_bytes: int
    rows: int


def value_of(number: int) -> bytes:
    """About 108 bytes of JSON: with a key of 9 and what the format adds, a record of 120."""
    return (
        f'{{"order":{10_000_000 + number},"customer":"c{number * 7919 % 99991:05d}","amount":'
        f'{number * 31 % 10007},"country":"{("DE", "FR", "PL", "US")[number % 4]}",'
        f'"state":"paid","at":{1_760_000_000_000 + number * 37}}}'
    ).encode()


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Produce the records, as librdkafka does by default but for zstd and larger batches."""
    create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "zstd",
            "compression.level": 1,
            "linger.ms": 100,
            "batch.size": 65_536,
            "queue.buffering.max.messages": 500_000,
            "enable.idempotence": True,
        }
    )
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic, value_of(number), f"k{number:08d}", partition=number // 500 % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0, "not all records were acknowledged"


class Sides(NamedTuple):
    """Where the records are, and room for tables."""

    folder: Path
    agent: FrazilDev
    kafka: KafkaServer | None
    records: int

    @property
    def brokers(self) -> str:
        """What the rivals read from."""
        return self.agent.bootstrap if self.kafka is None else self.kafka.bootstrap

    @property
    def broker_pid(self) -> int:
        return self.agent.child.pid if self.kafka is None else self.kafka.child.pid


def start(
    argv: list[str], log: Path, *, stdout: int | None = subprocess.PIPE
) -> subprocess.Popen[str]:
    with log.open("w") as errors:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=stdout or errors,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


def measured(
    name: str,
    command: str,
    process: subprocess.Popen[str],
    broker: int,
    *,
    until: Callable[[str], None],
    rows: Callable[[], int],
    log: Path,
) -> Cost:
    """What it costs until each topic is in; `until(topic)` waits for that. Ends the process."""
    sampler = MemorySampler(process.pid)
    try:
        until(WARM)
        warm, begun, broker_before = (
            cpu_by_kind(process.pid),
            time.perf_counter(),
            cpu_seconds(broker),
        )
        until(BENCH)
        kinds = {kind: used - warm[kind] for kind, used in cpu_by_kind(process.pid).items()}
        wall, broker_used = time.perf_counter() - begun, cpu_seconds(broker) - broker_before
    except BaseException:
        print(log.read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        sampler.stop()
        end(process)
    return Cost(
        name,
        command,
        sum(warm.values()),
        sum(kinds.values()),
        kinds,
        broker_used,
        wall,
        sampler.driver_bytes,
        sampler.tree_bytes,
        rows(),
    )


def end(process: subprocess.Popen[str]) -> None:
    """Ask it to end: by the end of its input, then by a signal."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def line_by_line(process: subprocess.Popen[str]) -> Callable[[str], None]:
    """Waits for the line of standard output that begins with the topic's name."""

    def until(topic: str) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(topic):
                return
        raise AssertionError(f"{process.args} ended without a line about {topic}")

    return until


def newest(folder: Path) -> Path:
    """The newest metadata file of a table (v3.metadata.json or 00003-….metadata.json)."""
    found = [*folder.glob("metadata/*.metadata.json")]
    return max(found, key=lambda path: int(path.name.lstrip("v").split(".")[0].split("-")[0]))


def count(metadata: Path) -> int:
    """Distinct places in the log (or rows, of a table that does not keep them), by DuckDB."""
    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"INSTALL '{extension}'")
        connection.execute(f"LOAD {extension.name.split('.')[0]}")
    found = connection.execute(f"SELECT count(*) FROM iceberg_scan('{metadata}')").fetchone()
    connection.close()
    assert found is not None
    return int(found[0])


def by_frazil(sides: Sides) -> Cost:
    data = sides.folder / "tables"
    argv = [sys.executable, "-m", "iceberg_export", "run", "--once", "--master", "local[2]"]
    argv += ["--agent", f"http://127.0.0.1:{sides.agent.http_port}", "--data", str(data)]
    log = sides.folder / "frazil-export.log"
    process = start(argv, log)
    return measured(
        "frazil export",
        "frazil export run --once --master local[2]",
        process,
        sides.agent.child.pid,
        until=line_by_line(process),
        rows=lambda: count(newest(data / "warehouse" / "frazil" / BENCH)),
        log=log,
    )


def by_spark(sides: Sides) -> Cost:
    warehouse = sides.folder / "spark"
    jars = [*install.iceberg_spark().glob("*.jar"), *install.spark_kafka().glob("*.jar")]
    argv = [sys.executable, "-m", "tests.bench.spark_append", sides.brokers, str(warehouse)]
    log = sides.folder / "spark.log"
    process = start([*argv, ",".join(map(str, jars)), WARM, BENCH], log)
    return measured(
        "Spark 4.1: Kafka source, Iceberg append",
        "python -m tests.bench.spark_append",
        process,
        sides.broker_pid,
        until=line_by_line(process),
        rows=lambda: count(newest(warehouse / "db" / BENCH)),
        log=log,
    )


WORKER = """bootstrap.servers={brokers}
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.storage.file.filename={folder}/connect-offsets
offset.flush.interval.ms=5000
plugin.discovery=only_scan
consumer.auto.offset.reset=earliest
consumer.max.poll.records=5000
"""


def by_connect(sides: Sides) -> Cost:
    port = free_port()
    folder, warehouse = sides.folder, sides.folder / "connect"
    properties = folder / "worker.properties"
    properties.write_text(WORKER.format(brokers=sides.brokers, port=port, folder=folder))
    create_topic(AdminClient({"bootstrap.servers": sides.brokers}), "control-iceberg", 1)
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Xmx2g"]
    classes = ["-cp", f"{install.connect_iceberg()}/*"]
    log = folder / "connect.log"
    standalone = "org.apache.kafka.connect.cli.ConnectStandalone"
    process = start(
        [install.java(), *quiet, *classes, standalone, str(properties)], log, stdout=None
    )

    def ask(method: str, path: str, body: dict | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(
                method, path, json.dumps(body or {}), {"Content-Type": "application/json"}
            )
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def until(topic: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while ask("GET", "/") != 200:
            assert process.poll() is None, "Kafka Connect ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.5)
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "1",
            "topics": topic,
            "iceberg.tables": f"db.{topic}",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.control.commit.interval-ms": "5000",
            "iceberg.catalog": "lake",
            "iceberg.catalog.type": "hadoop",
            "iceberg.catalog.warehouse": f"file://{warehouse}",
        }
        status = ask("POST", "/connectors", {"name": topic, "config": config})
        assert status == 201, f"Kafka Connect answered {status}"
        wanted = WARM_RECORDS if topic == WARM else sides.records
        while total(warehouse / "db" / topic) < wanted:
            assert process.poll() is None, "Kafka Connect ended by itself"
            assert time.monotonic() < deadline, "the sink is too slow"
            time.sleep(0.5)
        ask("DELETE", f"/connectors/{topic}")

    return measured(
        "Kafka Connect: Iceberg sink (JSON)",
        standalone,
        process,
        sides.broker_pid,
        until=until,
        rows=lambda: count(newest(warehouse / "db" / BENCH)),
        log=log,
    )


def total(folder: Path) -> int:
    """The records of a table, as the summary of its newest snapshot says."""
    if not list(folder.glob("metadata/*.metadata.json")):
        return 0
    try:
        metadata = json.loads(newest(folder).read_text())
    except ValueError:
        return 0
    now = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == now:
            return int(snapshot["summary"]["total-records"])
    return 0


INTRODUCTION = """`make bench-export`: {records} records of 120 bytes (JSON, zstd batches of librdkafka,
{partitions} partitions) from a topic into an Iceberg table on the same disk, by three ways in one run. Frazil's
exporter reads an agent's chunks, the two others Apache Kafka 4.3.1; Kafka Connect decodes the JSON
(max.poll.records=5000, in its favour), the others keep values as they are. CPU is that of the exporting
side's whole process tree; each first exports a million records unmeasured.

{machine}

{table}

CPU seconds by processes. {kinds}. The bars: at most half of Spark's and a fifth of Connect's CPU; driver below 1 GB.
"""

WAYS: dict[str, Callable[[Sides], Cost]] = {
    "frazil": by_frazil,
    "spark": by_spark,
    "connect": by_connect,
}


def table(costs: list[Cost], records: int) -> str:
    head = (
        "CPU s per million",
        "k records/s per core",
        "times ours",
        "start and first million, CPU s",
        "broker meanwhile, CPU s",
        "driver MB",
        "tree MB",
    )
    lines = [
        f"| | {' | '.join(head)} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ours = costs[0].bench
    for one in costs:
        cells = [
            one.name,
            f"**{one.bench / records * 1e6:.2f}**",
            f"{records / one.bench / 1e3:.0f}",
            f"{one.bench / ours:.1f}",
            f"{one.warm:.1f}",
            f"{one.broker:.1f}",
            f"{one.driver_bytes / 1e6:.0f}",
            f"{one.tree_bytes / 1e6:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def report(costs: list[Cost], records: int) -> str:
    """The section of BENCHMARKS.md."""
    by_processes = [
        f"{one.name}: {', '.join(f'{kind} {used:.2f}' for kind, used in one.kinds.items() if used)}"
        for one in costs
    ]
    return INTRODUCTION.format(
        records=f"{records:,}",
        partitions=PARTITIONS,
        machine=machine(),
        table=table(costs, records),
        kinds="; ".join(by_processes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_export")
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--only", default=",".join(WAYS), help="which ways, with commas")
    parser.add_argument(
        "--rivals-read", choices=("kafka", "frazil"), default="kafka", help="from which broker"
    )
    options = parser.parse_args()
    names = options.only.split(",")
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as name:
        folder = Path(name)
        agent = FrazilDev(folder / "agent")
        beside = options.rivals_read == "kafka" and names != ["frazil"]
        kafka = KafkaServer(folder / "kafka", java=install.measured_jvm("1g")) if beside else None
        sides = Sides(folder, agent, kafka, options.records)
        servers = [agent] if kafka is None else [agent, kafka]
        try:
            for server in servers:
                server.start()
            for bootstrap in {agent.bootstrap, sides.brokers}:
                for topic, number in ((WARM, WARM_RECORDS), (BENCH, options.records)):
                    fill(bootstrap, topic, number)
            costs = []
            for way in names:
                costs.append(WAYS[way](sides))
                assert costs[-1].rows == options.records, f"{way}: {costs[-1].rows} rows"
                print(f"{costs[-1]}", file=sys.stderr, flush=True)
        finally:
            for server in servers:
                server.stop()
    text = report(costs, options.records)
    print(text)
    if options.write:
        write_section("Exports", text)


if __name__ == "__main__":
    main()
