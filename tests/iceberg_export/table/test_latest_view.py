"""The view "newest record of each key": the statement in Spark SQL, DuckDB and Trino, and the view in a
REST catalog, which Spark reads. What each must show is what a dictionary keeps."""

import itertools

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType

from iceberg_export.cli.main import main
from iceberg_export.errors import CatalogError, StateError
from iceberg_export.runs.export import export_topic
from iceberg_export.table.catalog import open_catalog
from iceberg_export.table.catalog_view import create_latest_view
from iceberg_export.table.latest_view import create_view_statement, latest_query
from protocol.records import Record
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import NOW_MS, Place, place
from tests.iceberg_export.kit.world import World, make_job
from tests.iceberg_export.reader_tables import metadata_of
from tests.iceberg_export.table import catalogs

NUMBERS = itertools.count()
SHOWN = "kafka_partition, kafka_offset, kafka_key, value"


def record(key, value, timestamp=0):
    return Record(timestamp=NOW_MS + timestamp, key=key, value=value)


RECORDS = {
    0: [
        record(b"stays", b"1", 1),
        record(b"changes", b"1", 2),
        record(None, b"no key", 3),
        record(b"goes", b"1", 4),
        record(b"changes", b"2", 1),
        record(b"goes", None, 0),
        record(b"moves", b"1", 10),
        record(b"back", b"1", 10),
        record(b"", b"empty", 0),
        record(b"returns", None, 0),
        record(b"returns", b"2", 0),
    ],
    1: [
        record(b"moves", b"2", 11),
        record(b"back", b"2", 9),
        record(b"tie", b"1", 7),
        record(b"elsewhere", None, 20),
        record(None, None, 30),
    ],
}
"""Tombstones, keys that are null or empty, keys of both partitions, timestamps that go back."""
WANTED = [
    (0, 0, b"stays", b"1"),
    (0, 4, b"changes", b"2"),
    (0, 7, b"back", b"1"),
    (0, 8, b"", b"empty"),
    (0, 10, b"returns", b"2"),
    (1, 0, b"moves", b"2"),
    (1, 2, b"tie", b"1"),
]
"""As a reader of RECORDS would say."""


def fill(here):
    here.world.commit("orders", {partition: [some] for partition, some in RECORDS.items()})
    here.export()


@pytest.fixture
def here():
    with place() as found:
        fill(found)
        yield found


@pytest.fixture
def in_rest(rest, tmp_path):
    """A table in Iceberg's own REST catalog."""
    catalog = open_catalog(catalogs.rest(rest.url).told, tmp_path)
    found = Place(tmp_path, 2, catalog, ("frazil", f"v{next(NUMBERS)}"))
    fill(found)
    yield found
    catalog.close()


def columns(here):
    return [field.name for field in here.table().schema().fields]


def test_duckdb_finds_the_newest_record_of_each_key(here, duck):
    location = here.table().metadata_location
    duck.execute(f"CREATE OR REPLACE TEMP VIEW every_record AS FROM iceberg_scan('{location}')")
    query = latest_query(["every_record"], columns(here), "duckdb")
    assert duck.execute(f"SELECT {SHOWN} FROM ({query}) ORDER BY 1, 2").fetchall() == WANTED


def test_spark_finds_the_newest_record_of_each_key(here, session):
    location = here.table().metadata_location
    session.read.format("iceberg").load(location).createOrReplaceTempView("every_record")
    query = latest_query(["every_record"], columns(here), "spark")
    rows = session.sql(f"SELECT {SHOWN} FROM ({query}) ORDER BY 1, 2").collect()
    assert [(*row[:2], *map(bytes, row[2:])) for row in rows] == WANTED


def test_trino_shows_the_newest_record_of_each_key_by_the_statement_for_it(here, trino):
    name = trino.register(metadata_of(here))
    trino.query(create_view_statement(name.split("."), columns(here), "trino"))
    shown = "kafka_partition, kafka_offset, to_hex(kafka_key), to_hex(value)"
    rows = trino.query(f"SELECT {shown} FROM {name}_latest ORDER BY 1, 2")
    assert [(*row[:2], *map(bytes.fromhex, row[2:])) for row in rows] == WANTED


def made(here, **more):
    return create_latest_view(here.catalog, here.name, here.table(), NOW_MS, **more)


def in_spark(here, rest, session):
    name = f"latest_{here.name[1]}"
    session.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    session.conf.set(f"spark.sql.catalog.{name}.uri", rest.url)
    # Else Spark shows for half a minute what it has once looked up.
    session.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
    view = f"{name}.{here.name[0]}.{here.name[1]}_latest"
    rows = session.sql(f"SELECT {SHOWN} FROM {view} ORDER BY 1, 2").collect()
    return [(*row[:2], *map(bytes, row[2:])) for row in rows]


def test_spark_reads_the_view_that_was_made_in_a_rest_catalog(in_rest, rest, session):
    assert made(in_rest) == f"frazil.{in_rest.name[1]}_latest"
    assert in_spark(in_rest, rest, session) == WANTED
    # It is a query, not a copy: what others delete is gone from it, and what was older shows.
    in_rest.table().delete(EqualTo("kafka_offset", 0))
    left = [row for row in WANTED if row[1] != 0] + [(0, 6, b"moves", b"1")]
    assert in_spark(in_rest, rest, session) == sorted(left)


@pytest.mark.integration
def test_trino_reads_the_view_and_its_table_in_a_rest_catalog(in_rest, rest, trino):
    name = f"latest_{in_rest.name[1]}"
    made(in_rest, in_trino=name)
    told = {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": rest.url}
    trino.add_catalog(name, told)
    table = f"{name}.{in_rest.name[0]}.{in_rest.name[1]}"
    shown = "kafka_partition, kafka_offset, to_hex(kafka_key), to_hex(value)"
    rows = trino.query(f"SELECT {shown} FROM {table}_latest ORDER BY 1, 2")
    assert [(*row[:2], *map(bytes.fromhex, row[2:])) for row in rows] == WANTED
    assert trino.query(f"SELECT count(*) FROM {table}") == [(sum(map(len, RECORDS.values())),)]


def test_a_view_is_made_anew_only_when_the_columns_of_its_table_have_changed(in_rest):
    name = (in_rest.name[0], f"{in_rest.name[1]}_latest")
    made(in_rest)
    first = in_rest.catalog.load_view(name)
    made(in_rest)
    assert in_rest.catalog.load_view(name).uuid() == first.uuid()
    in_rest.table().update_schema().add_column("more", StringType()).commit()
    made(in_rest)
    second = in_rest.catalog.load_view(name)
    assert second.uuid() != first.uuid()
    assert [field.name for field in second.schema().fields] == columns(in_rest)


@pytest.mark.integration
def test_somebody_elses_view_of_that_name_is_left_alone(in_rest):
    name = (in_rest.name[0], f"{in_rest.name[1]}_latest")
    made(in_rest)
    there = in_rest.catalog.load_view(name)
    in_rest.catalog.drop_view(name)
    in_rest.catalog.create_view(name, there.schema(), there.current_version())
    theirs = in_rest.catalog.load_view(name).uuid()
    with pytest.raises(StateError, match="not made by the exporter"):
        made(in_rest)
    assert in_rest.catalog.load_view(name).uuid() == theirs


def test_a_catalog_without_views_says_what_to_do_instead(here):
    with pytest.raises(CatalogError, match="run the statement that `frazil export view` prints"):
        made(here)


@pytest.mark.integration
def test_the_command_makes_the_view(rest, tmp_path, capsys):
    world = World(tmp_path / "store")
    world.create("orders", 2)
    world.commit("orders", {partition: [some] for partition, some in RECORDS.items()})
    sets = ["catalog.type=rest", f"catalog.uri={rest.url}"]
    with served(world) as address:
        job = make_job(address, tmp_path / "data", sets=sets)
        export_topic(job, *job.client.topics().topics)
        named = [*("--agent", address), *("--data", str(tmp_path / "data"))]
        named += [part for one in sets for part in ("--set", one)]
        assert main(["view", "--topic", "orders", "--create", *named]) == 0
        made_by = capsys.readouterr().out
        assert main(["view", "--topic", "orders", "--create", "--catalog", "lake", *named]) == 0
    said = "orders: view frazil.orders_latest shows the newest record of each key"
    assert made_by == f"{said}; for Trino, add what it calls the catalog: --catalog NAME\n"
    assert capsys.readouterr().out == f"{said}\n"
    texts = job.catalog.load_view(("frazil", "orders_latest")).current_version().representations
    assert [one.root.dialect for one in texts] == ["spark", "trino"]
    assert job.catalog.load_view(("frazil", "orders_latest")).schema().fields
    job.catalog.close()
