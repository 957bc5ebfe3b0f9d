"""Null lists and maps stay null wherever rows of a table are read: PyIceberg makes them empty."""

import io
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record as PartitionRecord

from iceberg_export import names
from iceberg_export.files.read import NullKeepingScan
from iceberg_export.runs.job import export_topic
from iceberg_export.source.reading import read_task
from iceberg_export.source.tables import columns_of, open_table, plan_table
from iceberg_export.upkeep.compact import compact
from iceberg_export.verify.proof import verify_topic
from iceberg_export.verify.upsert import verify_upsert
from protocol.records import Record
from tests.iceberg_export.fake_registry import FakeRegistry, served_registry
from tests.iceberg_export.source.test_queries import client, options
from tests.iceberg_export.world import World, make_job, served

NOW_MS = 1_763_000_000_000
FAR = 1 << 50
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "x", "type": "int"}]}
CART = {
    "type": "record",
    "name": "Cart",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "items", "type": ["null", {"type": "array", "items": ITEM}]},
        {"name": "by", "type": ["null", {"type": "map", "values": "Item"}]},
    ],
}
LISTS = [None, [], [{"x": 1}]]
MAPS = [[("a", {"x": 2})], None, []]


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("carts", 1)
    found.configs["carts"] = {"value.mode": "avro"}
    return found


@pytest.fixture
def shop(world, tmp_path):
    """(makes jobs, sends three carts, the agent's address, the registry's)."""
    registry, made = FakeRegistry(), []
    number = registry.register("carts-value", CART)

    def cart(i):
        by = None if MAPS[i] is None else dict(MAPS[i])
        out = io.BytesIO()
        value = {"id": i, "items": LISTS[i], "by": by}
        fastavro.schemaless_writer(out, fastavro.parse_schema(dict(CART)), value)
        framed = b"\0" + number.to_bytes(4, "big") + out.getvalue()
        return Record(timestamp=NOW_MS, key=b"k%d" % i, value=framed)

    def send(*some):
        world.commit("carts", {0: [[cart(i) for i in some]]})

    with served(world) as address, served_registry(registry) as url:

        def job():
            sets = (f"schema.registry.url={url}", "table.partition.by=none")
            run_id = f"r{len(made)}"
            found = make_job(world, address, tmp_path / "data", run_id=run_id, sets=sets)
            made.append(found._replace(clock_ms=lambda: NOW_MS))
            return made[-1]

        yield job, send, address, url
    for one in made:
        one.catalog.engine.dispose()


def topic_of(job):
    (found,) = job.client.topics().topics
    return found


def export(job):
    export_topic(job, topic_of(job))


def in_files(job):
    """What lies in the table's files, by id, read by Arrow alone."""
    tasks = job.catalog.load_table(("frazil", "carts")).scan().plan_files()
    paths = [task.file.file_path.removeprefix("file://") for task in tasks]
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    return len(paths), [(row["items"], row["by"]) for row in sorted(rows, key=lambda r: r["id"])]


def test_compaction_leaves_null_lists_and_maps_null_and_verify_proves_it(shop):
    job, send, _, _ = shop
    for i in range(3):
        send(i)
        export(job())
    told = job()
    assert in_files(told)[0] == 3
    assert compact(told, ("frazil", "carts"), FAR).files_after == 1
    assert in_files(told) == (1, list(zip(LISTS, MAPS, strict=True)))
    assert verify_topic(told, topic_of(told)).problems == ()


@pytest.mark.parametrize("column", ["items", "by"])
def test_verify_tells_an_empty_list_or_map_from_none(shop, column):
    job, send, _, _ = shop
    send(0, 1, 2)
    told = job()
    export(told)
    (task,) = told.catalog.load_table(("frazil", "carts")).scan().plan_files()
    path = Path(task.file.file_path.removeprefix("file://"))
    rows = pq.ParquetFile(path).read()
    at = rows.schema.get_field_index(column)
    emptied = pa.array([v or [] for v in rows.column(column).to_pylist()], rows.field(at).type)
    rows = rows.set_column(at, rows.field(at), emptied)
    pq.write_table(rows, path, store_schema=False)
    (problem,) = verify_topic(told, topic_of(told)).problems
    assert "3 records on both sides, but not the same ones" in problem


def test_a_bucket_that_is_written_anew_keeps_its_null_lists_and_maps(shop, world):
    world.configs["carts"] |= {"mode": "upsert", "partition.by": "bucket(1, kafka_key)"}
    job, send, _, _ = shop
    send(0, 1, 2)
    export(job())
    send(2)
    told = job()
    export(told)
    assert in_files(told) == (1, list(zip(LISTS, MAPS, strict=True)))
    assert verify_upsert(told, topic_of(told)).problems == ()


def test_a_query_of_the_table_shows_null_lists_and_maps_as_null(shop):
    job, send, address, url = shop
    send(0, 1, 2)
    told = job()
    export(told)
    send(0, 1, 2)
    found = options(address, table="carts", **{"schema.registry.url": url})
    table = open_table(found, told.catalog)
    columns = columns_of(found, table, lambda: client(found))
    tasks = plan_table(found, client(found), table, found.query_range)
    batches = [batch for task in tasks for batch in read_task(task, columns, found.query_range)]
    rows = pa.Table.from_batches(batches).sort_by(names.OFFSET).to_pylist()
    assert [(row["items"], row["by"]) for row in rows] == 2 * list(zip(LISTS, MAPS, strict=True))


def test_columns_that_came_later_and_deletes_count_within_lists_of_lists(shop, tmp_path):
    job, send, _, _ = shop
    send(0, 1, 2)
    told = job()
    export(told)
    table = told.catalog.load_table(("frazil", "carts"))
    with table.update_schema() as update:
        update.union_by_name(
            pa.schema(
                {
                    "items": pa.list_(pa.struct({"x": pa.int64(), "y": pa.string()})),
                    "deep": pa.list_(pa.list_(pa.struct({"z": pa.int32()}))),
                }
            )
        )
    deep = [None, [None, [], [{"z": 1}]], []]
    more = {names.PARTITION: [0] * 3, names.OFFSET: [3, 4, 5], "deep": deep}
    arrow = {field.name: field.type for field in table.schema().as_arrow()}
    fields = [pa.field(n, arrow[n], n not in {names.PARTITION, names.OFFSET}) for n in more]
    table.append(pa.table(list(more.values()), schema=pa.schema(fields)))
    tasks = sorted(table.scan().plan_files(), key=lambda one: one.file.file_path)
    (old,) = [one for one in tasks if "/r0-" in one.file.file_path]
    (new,) = [one for one in tasks if one is not old]

    def rows_of(*some):
        io_ = load_file_io({}, table.metadata.location)
        scan = NullKeepingScan(table.metadata, io_, table.schema())
        batches = [pa.Table.from_batches([one]) for one in scan.to_record_batches(some)]
        return pa.concat_tables(batches, promote_options="permissive").to_pylist()

    assert [(row["items"], row["deep"]) for row in rows_of(old)] == [
        (None, None), ([], None), ([{"x": 1, "y": None}], None),
    ]  # fmt: skip
    assert [(row["items"], row["deep"]) for row in rows_of(new)] == [(None, one) for one in deep]
    path = tmp_path / "deletes.parquet"
    pq.write_table(
        pa.table({"file_path": [old.file.file_path] * 2, "pos": pa.array([0, 2], pa.int64())}), path
    )
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=PartitionRecord(),
        record_count=2,
        file_size_in_bytes=path.stat().st_size,
    )
    (row,) = rows_of(FileScanTask(old.file, {deletes}))
    assert (row["id"], row["items"], row["by"]) == (1, [], None)
