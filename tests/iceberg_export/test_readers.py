"""Engines that share no code with the exporter read what it wrote: row for row, and by aggregates.

The table has been through what tables go through: several commits, transactions, days, a delete
and two changes of the schema by somebody else.
"""

from pathlib import Path
from typing import NamedTuple

import pytest
from pyiceberg.types import LongType, StringType

from tests.iceberg_export import reader_tables
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import DAY_MS, Place
from tests.iceberg_export.kit.registry import ORDER_1, ORDER_2, ORDER_3, FakeRegistry, avro
from tests.iceberg_export.kit.world import InTransaction, some_records
from tests.iceberg_export.reader_tables import Question, metadata_of
from tests.iceberg_export.readers import (
    Engine,
    Rows,
    clickhouse_engine,
    duckdb_engine,
    pyiceberg_engine,
    spark_engine,
    trino_engine,
    wanted_rows,
    wanted_summary,
)

NOV_15_US = 1_700_006_400_000_000
FIRST_MS = NOV_15_US // 1000 - 5 * DAY_MS // 2
"""At noon."""


class Written(NamedTuple):
    metadata: Path
    rows: Rows


def write(here: Place) -> Written:
    """A table with a history, and what must be in it."""
    here.sets = ("table.partition.by=day", "commit.bytes.max=20000")
    for number in range(10):
        records = some_records(120, 120 * number, FIRST_MS + number * DAY_MS)
        opened = {p: [InTransaction(number, records), records[:20]] for p in range(3)}
        here.world.commit("orders", opened, codec=number % 5)
        for partition in range(3):
            here.world.end("orders", partition, number, commit=(number + partition) % 3 > 0)
        if number == 4:
            assert here.export().commits > 1
            foreign(here.table())
    assert here.export().commits > 1
    rows = [row for row in wanted_rows(here.world, "orders") if not is_deleted(row)]
    return Written(metadata_of(here), rows)


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
    here = Place(tmp_path_factory.mktemp("readers"), 3)
    found = write(here)
    here.close()
    assert len(found.rows) > 1000
    return found


ENGINES = {
    "duckdb": lambda request: duckdb_engine(request.getfixturevalue("duck")),
    "pyiceberg": lambda request: pyiceberg_engine(request.getfixturevalue("duck")),
    "clickhouse": lambda _request: clickhouse_engine(),
}


@pytest.fixture(params=ENGINES)
def engine(request) -> Engine:
    """Each engine that needs no server and no JVM."""
    return ENGINES[request.param](request)


@pytest.fixture
def spark(session) -> Engine:
    return spark_engine(session)


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


TYPED_ROWS = [
    (0, 7, "Ulm", None, None),
    (1, None, None, None, None),
    (2, 1 << 40, "Köln", 2.5, None),
    (3, 9, None, None, "Ada"),
]


@pytest.fixture(scope="module")
def typed(tmp_path_factory) -> Path:
    """A table whose Avro schema grew twice: a wider number, a new column, then a struct."""
    here, registry = Place(tmp_path_factory.mktemp("typed"), 1), FakeRegistry()
    here.configure(value_mode="avro")
    with served(registry) as url:
        here.sets = ("table.partition.by=day", f"schema.registry.url={url}")
        for schema, *values in (
            (ORDER_1, {"id": 7, "city": "Ulm"}, None),
            (ORDER_2, {"id": 1 << 40, "city": "Köln", "price": 2.5}),
            (ORDER_3, {"id": 9, "who": {"name": "Ada"}}),
        ):
            number = registry.register("orders-value", schema)
            here.send(*(value and avro(number, schema, value) for value in values))
            assert here.export().commits == 1
    metadata = metadata_of(here)
    here.close()
    return metadata


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


@pytest.fixture(scope="module")
def by_value(tmp_path_factory) -> list[Question]:
    return reader_tables.by_value(tmp_path_factory.mktemp("by-value"))


@pytest.fixture(scope="module")
def ruled(tmp_path_factory) -> list[Question]:
    return reader_tables.ruled(tmp_path_factory.mktemp("ruled"))


@pytest.fixture(scope="module")
def inferred(tmp_path_factory) -> list[Question]:
    return reader_tables.inferred(tmp_path_factory.mktemp("inferred"))


def check_all(engine: Engine, questions: list[Question]) -> None:
    for question in questions:
        assert question.rows
        assert engine.ask(question.metadata, question.said(engine.dialect)) == question.rows


HISTORIES = {
    "written": check, "typed": check_typed, "nested": check_all, "newest": check_all,
    "by_value": check_all, "ruled": check_all, "inferred": check_all,
}  # fmt: skip
"""What befell the table: many commits and others, schemas that grew, nested columns and dead letters,
mode upsert by keys as they are and by their columns, rules for columns, JSON whose types drift."""


def check_history(engine: Engine, history: str, request: pytest.FixtureRequest) -> None:
    HISTORIES[history](engine, request.getfixturevalue(history))


@pytest.mark.parametrize("history", HISTORIES)
def test_each_engine_reads_what_was_written(engine, history, request):
    check_history(engine, history, request)


@pytest.mark.parametrize("history", HISTORIES)
def test_spark_sql_reads_what_was_written(spark, history, request):
    check_history(spark, history, request)


@pytest.mark.parametrize("history", HISTORIES)
def test_trino_reads_what_was_written(trino, history, request):
    check_history(trino_engine(trino), history, request)
