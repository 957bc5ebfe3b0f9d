"""Engines that share no code with the exporter read what it wrote: row for row, and by aggregates.

The table has been through what tables go through: several commits, transactions, days, a delete
and two changes of the schema by somebody else.
"""

from pathlib import Path
from typing import NamedTuple

import pytest
from pyiceberg.types import LongType, StringType

from iceberg_export.runs.job import export_topic
from tests.iceberg_export import reader_tables
from tests.iceberg_export.fake_registry import FakeRegistry, served_registry
from tests.iceberg_export.reader_tables import Question
from tests.iceberg_export.readers import (
    Engine,
    Rows,
    clickhouse_engine,
    duckdb_engine,
    pyiceberg_engine,
    spark_engine,
    wanted_rows,
    wanted_summary,
)
from tests.iceberg_export.runs.test_typed_export import ORDER_1, ORDER_2, ORDER_3, avro, send
from tests.iceberg_export.world import InTransaction, World, make_job, served, some_records

DAY_MS = 86_400_000
NOV_15_US = 1_700_006_400_000_000
FIRST_MS = NOV_15_US // 1000 - 5 * DAY_MS // 2
"""At noon."""


class Written(NamedTuple):
    metadata: Path
    rows: Rows


def write(world: World, data: Path) -> Written:
    """A table with a history, and what must be in it."""
    world.create("orders", 3)
    with served(world) as address:
        job = make_job(world, address, data, sets=["commit.bytes.max=20000"])
        (topic,) = job.client.topics().topics
        for number in range(10):
            day_ms = FIRST_MS + number * DAY_MS
            records = some_records(120, 120 * number, day_ms)
            opened = {p: [InTransaction(number, records), records[:20]] for p in range(3)}
            world.commit("orders", opened, codec=number % 5)
            for partition in range(3):
                world.end("orders", partition, number, commit=(number + partition) % 3 > 0)
            if number == 4:
                assert export_topic(job, topic).commits > 1
                foreign(job.catalog.load_table(("frazil", "orders")))
        assert export_topic(job, topic).commits > 1
        location = job.catalog.load_table(("frazil", "orders")).metadata_location
        job.catalog.engine.dispose()
    rows = [row for row in wanted_rows(world, "orders") if not is_deleted(row)]
    return Written(Path(location.removeprefix("file://")), rows)


def foreign(table) -> None:
    """What others do to a table while it is exported to."""
    with table.update_schema() as update:
        update.add_column("note", StringType(), doc="not the exporter's")
        update.update_column("kafka_partition", LongType())
    table.delete("kafka_timestamp < '2023-11-15T00:00:00+00:00'")


def is_deleted(row) -> bool:
    return row[2] < NOV_15_US


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers")
    found = write(World(folder / "store"), folder / "data")
    assert len(found.rows) > 1000
    return found


@pytest.fixture
def duckdb(duck) -> Engine:
    return duckdb_engine(duck)


@pytest.fixture
def spark(session) -> Engine:
    return spark_engine(session)


@pytest.fixture
def clickhouse() -> Engine:
    return clickhouse_engine()


@pytest.fixture
def pyiceberg(duck) -> Engine:
    return pyiceberg_engine(duck)


def check(engine: Engine, written: Written) -> None:
    """Rows, aggregates, and the rows of a range, whose files are found by bounds and partition."""
    rows = [(*row, None) for row in written.rows]
    assert engine.rows(written.metadata, more=", note") == rows
    assert engine.summary(written.metadata) == wanted_summary(written.rows)
    by_offset = "kafka_partition = 1 AND kafka_offset >= 500 AND kafka_offset < 800"
    found = engine.rows(written.metadata, where=by_offset)
    assert found == [row for row in written.rows if row[0] == 1 and 500 <= row[1] < 800]
    assert found
    midnight = engine.instant("2023-11-16 00:00:00")
    found = engine.rows(written.metadata, where=f"kafka_timestamp >= {midnight}")
    assert found == [row for row in written.rows if row[2] >= NOV_15_US + DAY_MS * 1000]
    assert 0 < len(found) < len(written.rows)


def test_duckdb_reads_the_committed_records(duckdb, written):
    check(duckdb, written)


def test_clickhouse_reads_the_committed_records(clickhouse, written):
    check(clickhouse, written)


def test_spark_sql_reads_the_committed_records(spark, written):
    check(spark, written)


TYPED_ROWS = [
    (0, 7, "Ulm", None, None),
    (1, None, None, None, None),
    (2, 1 << 40, "Köln", 2.5, None),
    (3, 9, None, None, "Ada"),
]


@pytest.fixture(scope="module")
def typed(tmp_path_factory) -> Path:
    """A table whose Avro schema grew twice: a wider number, a new column, then a struct."""
    folder = tmp_path_factory.mktemp("typed")
    world, registry = World(folder / "store"), FakeRegistry()
    world.create("orders", 1)
    world.configs["orders"] = {"value.mode": "avro"}
    with served(world) as address, served_registry(registry) as url:
        job = make_job(world, address, folder / "data", sets=[f"schema.registry.url={url}"])
        (topic,) = job.client.topics().topics
        for schema, *values in (
            (ORDER_1, {"id": 7, "city": "Ulm"}, None),
            (ORDER_2, {"id": 1 << 40, "city": "Köln", "price": 2.5}),
            (ORDER_3, {"id": 9, "who": {"name": "Ada"}}),
        ):
            number = registry.register("orders-value", schema)
            send(world, *(value and avro(number, schema, value) for value in values))
            assert export_topic(job, topic).commits == 1
        location = job.catalog.load_table(("frazil", "orders")).metadata_location
        job.catalog.engine.dispose()
    return Path(location.removeprefix("file://"))


def check_typed(engine: Engine, metadata: Path) -> None:
    name = engine.member("who", "name")
    query = f"SELECT kafka_offset, id, city, price, {name} FROM {{table}} ORDER BY 1"
    assert engine.ask(metadata, query) == TYPED_ROWS


@pytest.fixture(scope="module")
def nested(tmp_path_factory) -> list[Question]:
    return reader_tables.nested(tmp_path_factory.mktemp("nested"))


@pytest.fixture(scope="module")
def newest(tmp_path_factory) -> list[Question]:
    return reader_tables.newest(tmp_path_factory.mktemp("newest"))


def check_all(engine: Engine, questions: list[Question]) -> None:
    for question in questions:
        assert question.rows
        assert engine.ask(question.metadata, question.said(engine.dialect)) == question.rows


def test_pyiceberg_reads_the_committed_records(pyiceberg, written):
    check(pyiceberg, written)


def test_pyiceberg_reads_columns_that_grew_and_widened(pyiceberg, typed):
    check_typed(pyiceberg, typed)


def test_duckdb_reads_nested_columns_and_dead_letters(duckdb, nested):
    check_all(duckdb, nested)


def test_clickhouse_reads_nested_columns_and_dead_letters(clickhouse, nested):
    check_all(clickhouse, nested)


def test_spark_sql_reads_nested_columns_and_dead_letters(spark, nested):
    check_all(spark, nested)


def test_pyiceberg_reads_nested_columns_and_dead_letters(pyiceberg, nested):
    check_all(pyiceberg, nested)


def test_duckdb_reads_the_newest_record_of_each_key(duckdb, newest):
    check_all(duckdb, newest)


def test_clickhouse_reads_the_newest_record_of_each_key(clickhouse, newest):
    check_all(clickhouse, newest)


def test_spark_sql_reads_the_newest_record_of_each_key(spark, newest):
    check_all(spark, newest)


def test_pyiceberg_reads_the_newest_record_of_each_key(pyiceberg, newest):
    check_all(pyiceberg, newest)


def test_duckdb_reads_columns_that_grew_and_widened(duckdb, typed):
    check_typed(duckdb, typed)


def test_clickhouse_reads_columns_that_grew_and_widened(clickhouse, typed):
    check_typed(clickhouse, typed)


def test_spark_sql_reads_columns_that_grew_and_widened(spark, typed):
    check_typed(spark, typed)
