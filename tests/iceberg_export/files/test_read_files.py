"""Null lists and maps stay null wherever rows of a table are read: PyIceberg makes them empty."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record as PartitionRecord

from iceberg_export import names
from iceberg_export.files.read import NullKeepingScan
from iceberg_export.upkeep.compact import compact
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import FAR, TABLE
from tests.iceberg_export.kit.registry import avro
from tests.iceberg_export.source.test_queries import decoded_rows, options

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
def shop(here, registry):
    """Sends carts to a topic of them."""
    number = registry.register("orders-value", CART)
    here.configure(value_mode="avro")

    def send(*some):
        values = [
            {"id": i, "items": LISTS[i], "by": None if MAPS[i] is None else dict(MAPS[i])}
            for i in some
        ]
        here.send(*(avro(number, CART, one) for one in values), keys=[b"k%d" % i for i in some])

    return send


def in_files(here):
    """What lies in the table's files, by id, read by Arrow alone."""
    paths = here.live_files()
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    return len(paths), [(row["items"], row["by"]) for row in sorted(rows, key=lambda r: r["id"])]


def test_compaction_leaves_null_lists_and_maps_null_and_verify_proves_it(here, shop):
    for i in range(3):
        shop(i)
        here.export()
    assert in_files(here)[0] == 3
    assert compact(here.job(), TABLE, FAR).files_after == 1
    assert in_files(here) == (1, list(zip(LISTS, MAPS, strict=True)))
    assert here.verify().problems == ()


@pytest.mark.parametrize("column", ["items", "by"])
def test_verify_tells_an_empty_list_or_map_from_none(here, shop, column):
    shop(0, 1, 2)
    here.export()
    (path,) = here.live_files()
    rows = pq.ParquetFile(path).read()
    at = rows.schema.get_field_index(column)
    emptied = pa.array([v or [] for v in rows.column(column).to_pylist()], rows.field(at).type)
    rows = rows.set_column(at, rows.field(at), emptied)
    pq.write_table(rows, path, store_schema=False)
    (problem,) = here.verify().problems
    assert "3 records on both sides, but not the same ones" in problem


def test_a_bucket_that_is_written_anew_keeps_its_null_lists_and_maps(here, shop):
    here.configure(value_mode="avro", mode="upsert", partition_by="bucket(1, kafka_key)")
    shop(0, 1, 2)
    here.export()
    shop(2)
    here.export()
    assert in_files(here) == (1, list(zip(LISTS, MAPS, strict=True)))
    assert here.verify().problems == ()


def test_a_query_of_the_table_shows_null_lists_and_maps_as_null(here, shop):
    shop(0, 1, 2)
    here.export()
    shop(0, 1, 2)
    url = here.sets[-1].partition("=")[2]
    with served(here.world) as address:
        rows = decoded_rows(
            options(address, table="orders", **{"schema.registry.url": url}), here.catalog
        )
    assert [(row["items"], row["by"]) for row in rows] == 2 * list(zip(LISTS, MAPS, strict=True))


def test_columns_that_came_later_and_deletes_count_within_lists_of_lists(here, shop, tmp_path):
    shop(0, 1, 2)
    here.export()
    table = here.table()
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
    (old,) = [one for one in tasks if "/r1-" in one.file.file_path]
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
