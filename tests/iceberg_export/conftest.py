"""One Spark for all tests of the exporter, and DuckDB as a witness that shares no code with it.

`tasks` is the exporter's own means to run tasks, `session` the Spark session beneath it: whoever
asks for either gets the one JVM of the whole run, with Iceberg's jar on its class path; `trino` is a server
of its own. A test may
register data sources and set catalogs (`session.conf.set("spark.sql.catalog.<own name>", …)`);
it must not stop the session, nor call in its own process what does (`Tasks.close`, the command
line's `run`). Tests with Spark or Trino are integration tests without saying so.
"""

import gc
import io
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pytest

from iceberg_export.progress import Progress
from iceberg_export.tasks import spark
from tests.iceberg_export.kit.drivers import Drivers, drivers_ready
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import Place, place
from tests.iceberg_export.kit.registry import FakeRegistry
from tests.parts import install
from tests.parts.servers import RestCatalogServer
from tests.parts.trino import TrinoServer

JVM_FIXTURES = frozenset({"tasks", "session", "trino"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark or Trino."""
    for item in items:
        if JVM_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            continue
        item.add_marker(pytest.mark.integration)
        # PySpark leaves the sockets of collect() to the garbage collector.
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def here() -> Iterator[Place]:
    """A topic of two partitions and its table, in this process alone."""
    with place() as found:
        yield found


@pytest.fixture
def registry(here: Place) -> Iterator[FakeRegistry]:
    """A schema registry that all runs over the topic ask."""
    found = FakeRegistry()
    with served(found) as url:
        here.sets = (*here.sets, f"schema.registry.url={url}")
        yield found


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """Iceberg's own REST catalog."""
    server = RestCatalogServer(tmp_path_factory.mktemp("rest"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def drivers() -> Iterator[Drivers]:
    """Processes that export and may be killed."""
    with drivers_ready() as found:
        yield found


@pytest.fixture(scope="session")
def one_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[spark.Tasks]:
    """The only Spark of a run; tests ask for `tasks` or `session`."""
    settings = {
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": f"{install.iceberg_spark()}/*",
        # Without them Spark finds no views in Iceberg's catalogs.
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
        # Off by default in 4.1; without it no filter reaches a data source in Python.
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    found = spark.start(settings, Progress(io.StringIO(), time.perf_counter))
    yield found
    gateway = found._session.sparkContext._gateway
    with warnings.catch_warnings():
        # This may run in the teardown of a test without Spark.
        warnings.simplefilter("ignore", ResourceWarning)
        found.close()
        gateway.shutdown()
        gc.collect()
    # The JVM would end with this process only; it ends with its input.
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


@pytest.fixture
def tasks(one_spark: spark.Tasks) -> Iterator[spark.Tasks]:
    """Where the exporter's tasks run: real Spark, one at a time."""
    yield one_spark
    # What a test left to the garbage collector must not warn within another one.
    gc.collect()


@pytest.fixture
def session(tasks: spark.Tasks) -> Any:
    """The Spark session that `tasks` runs in."""
    return tasks._session


@pytest.fixture(scope="session")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrinoServer]:
    server = TrinoServer(tmp_path_factory.mktemp("trino"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its own reader of Iceberg tables: `iceberg_scan('….metadata.json')`."""
    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"INSTALL '{extension}'")
        connection.execute(f"LOAD {extension.name.split('.')[0]}")
    yield connection
    connection.close()
