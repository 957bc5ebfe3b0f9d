"""PostgreSQL, Debezium's connector in Kafka Connect, an agent, and tables like the database's.

People work with the database, change its schema and move keys, while everything is killed or started
anew in turn; the tables are exported to in between. At the end each has the rows of the database.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from iceberg_export.plan.agent_client import Pinned, Topic
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.job import Job
from iceberg_export.table.catalog import table_name
from iceberg_export.verify.upsert import verify_upsert
from tests.iceberg_export.cdc.shop import MIGRATIONS, Shop
from tests.iceberg_export.kit.world import make_job
from tests.iceberg_export.readers import (
    DUCKDB,
    Engine,
    duckdb_engine,
    spark_engine,
    trino_engine,
)
from tests.parts import install
from tests.parts.connect import ConnectWorker
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev, PostgresServer
from tests.parts.topics import create_topic
from tests.parts.trino import TrinoServer

pytestmark = pytest.mark.integration

CHANGES: Final = int(os.environ.get("CHANGES", "6000"))
"""`make debezium CHANGES=n` makes others."""
PREFIX: Final = "shop.public."
PARTITIONS: Final = 3
CONFIGS: Final = {
    "frazil.iceberg.envelope": "debezium",
    "frazil.iceberg.envelope.transactions": "true",
    "frazil.iceberg.value.mode": "avro",
    "frazil.iceberg.key.mode": "avro",
    "frazil.iceberg.mode": "upsert",
    "cleanup.policy": "compact",
}
ORDERS: Final = (
    "id, customer, city, CAST(price AS {text}), paid, weight, {millis:placed}, CAST(day AS {text}),"
    " CAST(extra AS {text}), CAST(ref AS {text}), {bytes:photo}, CAST(discount AS {text}), town"
)
STOCK: Final = "place, item, count"
POSTGRES: Final = DUCKDB._replace(
    text="text",
    millis="CAST(1000 * extract(epoch FROM {}) AS bigint)",
    bytes="upper(encode({}, 'hex'))",
)
PATIENCE_S: Final = 120.0


class Parts(NamedTuple):
    postgres: PostgresServer
    agent: FrazilDev
    connect: ConnectWorker


@contextmanager
def running(folder: Path) -> Iterator[Parts]:
    registry = f"http://127.0.0.1:{free_port()}"
    with ExitStack() as ends:
        postgres = PostgresServer(folder, wal_level="logical")
        postgres.start()
        ends.callback(postgres.stop)
        agent = FrazilDev(folder, "--set", f"schema.registry.listeners={registry}")
        ends.enter_context(agent)
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        for table in ("orders", "stock"):
            create_topic(admin, PREFIX + table, PARTITIONS, CONFIGS)
        connect = worker(folder / "connect", postgres, agent, registry)
        ends.callback(connect.child.stop)
        yield Parts(postgres, agent, connect)


def worker(
    folder: Path, postgres: PostgresServer, agent: FrazilDev, registry: str
) -> ConnectWorker:
    source = Path(__file__).parent / "java" / "RegistryConverter.java"
    *program, converter = install.java_program(source, install.debezium())
    sides = [f"{side}.converter" for side in ("key", "value")]
    settings = {
        "bootstrap.servers": agent.bootstrap,
        **dict.fromkeys(sides, converter),
        **{f"{side}.registry.url": registry for side in sides},
    }
    connector = {
        "name": "shop",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "frazil",
        "database.password": "",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": "public.orders,public.stock",
        "time.precision.mode": "connect",
        "provide.transaction.metadata": "true",
        "retriable.restart.connector.wait.ms": "500",
        "errors.max.retries": "-1",
        # The registry is in the agent, which is killed as well.
        "errors.retry.timeout": "-1",
        "errors.retry.delay.max.ms": "1000",
    }
    return ConnectWorker(folder, program, settings, connector)


class Tables:
    """The exporter of the agent's topics."""

    def __init__(self, agent: FrazilDev, data: Path) -> None:
        self._agent, self._data = agent, data
        self._runs = 0

    def export(self) -> None:
        with self._job() as job, Pinned(job.client, f"export-{job.run_id}", 60_000):
            for topic in topics_of(job):
                export_topic(job, topic)

    def check(self) -> None:
        """Each is proven to have what the log has, and nothing is a dead letter."""
        with self._job() as job:
            for topic in topics_of(job):
                verdict = verify_upsert(job, topic)
                assert (verdict.problems, verdict.dead) == ((), 0)

    def metadata(self, table: str) -> Path:
        """The newest metadata file of a table of the database."""
        with self._job() as job:
            found = job.catalog.load_table(("frazil", table_name(PREFIX + table)))
            return Path(found.metadata_location.removeprefix("file://"))

    @contextmanager
    def _job(self) -> Iterator[Job]:
        self._runs += 1
        agent = f"http://127.0.0.1:{self._agent.http_port}"
        job = make_job(agent, self._data, f"r{self._runs}")
        yield job
        job.catalog.engine.dispose()


def topics_of(job: Job) -> list[Topic]:
    return [topic for topic in job.client.topics().topics if topic.name.startswith(PREFIX)]


def wait_for(parts: Parts, mark: bytes) -> None:
    """Until changes with that mark are in every partition: all before are, then, since each has its order."""
    config = {"bootstrap.servers": parts.agent.bootstrap, "group.id": mark.decode()}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.subscribe([PREFIX + table for table in ("orders", "stock")])
    deadline = time.monotonic() + PATIENCE_S
    seen: set[tuple[str | None, int | None]] = set()
    while len(seen) < 2 * PARTITIONS:
        assert time.monotonic() < deadline, parts.connect.child.tail()
        message = consumer.poll(1)
        if message is not None and mark in (message.value() or b""):
            seen.add((message.topic(), message.partition()))
    consumer.close()


def befall(parts: Parts, number: int) -> None:
    """The next part ends and begins again; the connector goes on by itself but when it is the part."""
    match number % 3:
        case 0:
            parts.connect.child.kill()
            parts.connect.start()
        case 1:
            parts.postgres.restart()
        case 2:
            parts.agent.child.kill()
            parts.agent.start()


class Copied(NamedTuple):
    """The database at the end, and the metadata files of its tables."""

    shop: Shop
    metadata: dict[str, Path]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    folder = tmp_path_factory.mktemp("debezium")
    with running(folder) as parts:
        shop = Shop(parts.postgres.uri.replace("+psycopg", ""), seed=7)
        shop.open()
        tables = Tables(parts.agent, folder / "tables")
        share = CHANGES // (3 * len(MIGRATIONS))
        # What the snapshot reads.
        shop.work(share)
        parts.connect.start()
        for number, migration in enumerate(MIGRATIONS):
            shop.work(share)
            befall(parts, number)
            shop.work(share)
            shop.migrate(migration)
            wait_for(parts, shop.mark())
            tables.export()
        shop.work(CHANGES - shop.changes)
        wait_for(parts, shop.mark())
        tables.export()
        tables.check()
        yield Copied(shop, {name: tables.metadata(name) for name in ("orders", "stock")})


def test_duckdb_finds_the_rows_of_the_database(
    copied: Copied, duck: duckdb.DuckDBPyConnection
) -> None:
    check_copy(copied, duckdb_engine(duck))


def test_spark_finds_the_rows_of_the_database(copied: Copied, session: SparkSession) -> None:
    check_copy(copied, spark_engine(session))


def test_trino_finds_the_rows_of_the_database(copied: Copied, trino: TrinoServer) -> None:
    check_copy(copied, trino_engine(trino))


def test_each_change_says_of_which_transaction_of_the_database_it_is(
    copied: Copied, duck: duckdb.DuckDBPyConnection
) -> None:
    query = (
        "SELECT kafka_cdc_op = 'r', count(kafka_cdc_transaction), count(kafka_cdc_transaction_order), count(*)"
        " FROM {table} GROUP BY 1"
    )
    rows = duckdb_engine(duck).ask(copied.metadata["orders"], query)
    told = {is_read: counts for is_read, *counts in rows}
    ids, orders, changes = told[False]
    assert ids == orders == changes > 0


def check_copy(copied: Copied, engine: Engine) -> None:
    for table, columns in {"orders": ORDERS, "stock": STOCK}.items():
        wanted = copied.shop.ask(f"SELECT {POSTGRES.say(columns)} FROM {table}")
        query = f"SELECT {engine.dialect.say(columns)} FROM {{table}}"
        rows = engine.ask(copied.metadata[table], query)
        assert len(rows) == len(wanted) > 0
        assert set(rows) == set(wanted)
