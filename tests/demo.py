"""`make demo`: one record set, the whole way, counted three times.

Starts an embedded agent on free ports, produces with a progress bar, the first records in a
transaction, with another one aborted before it. Consumes in a group, shows the group's lag,
exports, and reads the table with Spark SQL and with DuckDB: what was aborted is nowhere. All
happens in a temporary folder that goes away.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.parts import install
from tests.parts.servers import FrazilDev

RECORDS = 100_000
IN_TRANSACTION = 1_000
"""The first ones of them; as many more are written and aborted."""
PARTITIONS = 4
TOPIC = "demo"
GROUP = "readers"
BAR = 30
FRAZIL = str(Path(sys.executable).parent / "frazil")


def progress(title: str, done: int, total: int) -> None:
    filled = BAR * done // total
    end = "\n" if done >= total else ""
    bar = "█" * filled + "·" * (BAR - filled)
    print(f"\r  {title:<10} {bar} {done:>7} of {total}", end=end, flush=True)


def produce(bootstrap: str) -> None:
    common = {
        "bootstrap.servers": bootstrap,
        "compression.type": "zstd",
        "linger.ms": 20,
        "queue.buffering.max.messages": 2 * RECORDS,
    }
    done = 0

    def delivered(error, _message) -> None:
        nonlocal done
        if error is not None:
            sys.exit(f"a record was not delivered: {error}")
        done += 1
        if done % 1000 == 0:
            progress("produced", done, RECORDS)

    def send(producer: Producer, numbers: range, on_delivery=None) -> None:
        for number in numbers:
            value = json.dumps({"order": number, "amount": number % 97}).encode()
            producer.produce(TOPIC, value=value, key=f"{number % 1000}", on_delivery=on_delivery)
            producer.poll(0)
        if producer.flush(60):
            sys.exit("not all records were acknowledged within a minute")

    print(f"  One transaction of {IN_TRANSACTION} records is aborted, the next one is committed.")
    transactional = Producer({**common, "transactional.id": "demo"})
    transactional.init_transactions(30)
    transactional.begin_transaction()
    send(transactional, range(-IN_TRANSACTION, 0))
    transactional.abort_transaction(30)
    transactional.begin_transaction()
    send(transactional, range(IN_TRANSACTION), delivered)
    transactional.commit_transaction(30)
    plain = Producer({**common, "enable.idempotence": True})
    send(plain, range(IN_TRANSACTION, RECORDS), delivered)


def consume(bootstrap: str) -> int:
    """How many records a group reads; it commits when it closes."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    count = 0
    while count < RECORDS:
        messages = consumer.consume(5000, timeout=30)
        if not messages:
            sys.exit(f"\nonly {count} of {RECORDS} records could be read")
        for message in messages:
            if message.error() is not None:
                sys.exit(f"\n{message.error()}")
        count += len(messages)
        progress("consumed", count, RECORDS)
    consumer.close()
    return count


def describe(bootstrap: str) -> None:
    """Show what the group has read."""
    subprocess.run([FRAZIL, "group", "describe", GROUP, "--bootstrap", bootstrap], check=True)


def export(agent: FrazilDev, data: Path) -> Path:
    """Run the export; the table's newest metadata file."""
    subprocess.run(
        [
            *(FRAZIL, "export", "run", "--once"),
            *("--agent", f"http://127.0.0.1:{agent.http_port}", "--data", str(data)),
        ],
        check=True,
    )
    found = sorted(data.glob("**/metadata/*.metadata.json"), key=lambda path: path.name)
    return found[-1]


def count_by_spark(metadata: Path) -> int:
    """By Spark SQL with Iceberg's own reader."""
    from pyspark.sql import SparkSession

    install.java()
    (jar,) = install.iceberg_spark().glob("*.jar")
    quiet = Path(__file__).parent.parent / "iceberg_export" / "log4j2.properties"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", str(jar))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dlog4j2.configurationFile={quiet} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        )
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.read.format("iceberg").load(str(metadata)).createOrReplaceTempView(TOPIC)
    spark.sql(
        f"SELECT kafka_partition, count(*) AS records, min(kafka_offset) AS first,"
        f" max(kafka_offset) AS last FROM {TOPIC} GROUP BY 1 ORDER BY 1"
    ).show()
    count = spark.sql(f"SELECT count(*) FROM {TOPIC}").first()[0]
    spark.stop()
    return int(count)


def count_by_duckdb(metadata: Path) -> int:
    """By DuckDB, which shares no code with the exporter."""
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"INSTALL '{extension}'")
        connection.execute(f"LOAD {extension.name.split('.')[0]}")
    rows = connection.execute(
        "SELECT kafka_offset, kafka_timestamp, kafka_key, value"
        f" FROM iceberg_scan('{metadata}') WHERE kafka_partition = 0 ORDER BY 1 LIMIT 3"
    ).fetchall()
    for row in rows:
        print("   ", *row)
    counted = connection.execute(f"SELECT count(*) FROM iceberg_scan('{metadata}')").fetchone()
    connection.close()
    assert counted is not None
    return int(counted[0])


def steps(agent: FrazilDev, folder: Path) -> Sequence[int]:
    """The counts by consumer, Spark SQL and DuckDB."""
    print(f"An agent runs at {agent.bootstrap}.")
    produce(agent.bootstrap)
    consumed = consume(agent.bootstrap)
    print("The group has read it all:", flush=True)
    describe(agent.bootstrap)
    print("Exporting to an Iceberg table:")
    metadata = export(agent, folder / "tables")
    print("Spark SQL says:")
    by_spark = count_by_spark(metadata)
    print("DuckDB says:")
    by_duckdb = count_by_duckdb(metadata)
    return consumed, by_spark, by_duckdb


def main() -> None:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="frazil-demo-") as name:
        folder = Path(name)
        agent = FrazilDev(folder, "--set", f"num.partitions={PARTITIONS}")
        agent.start()
        try:
            consumed, by_spark, by_duckdb = steps(agent, folder)
        finally:
            ended = agent.stop()
    print(f"consumer {consumed} · Spark SQL {by_spark} · DuckDB {by_duckdb}")
    if {consumed, by_spark, by_duckdb} != {RECORDS} or ended != 0:
        sys.exit(f"the counts should all be {RECORDS}, and the agent should have ended with 0")
    print(f"All the same, in {time.perf_counter() - begun:.0f} s.")


if __name__ == "__main__":
    main()
