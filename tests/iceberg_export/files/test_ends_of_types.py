"""Values at the ends of their types go into a table and come back, whatever it is partitioned by."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import functions as F

from iceberg_export.files import write as write_files
from iceberg_export.files.partition_values import decimal_truncations
from iceberg_export.files.write import FileWriter, Target
from iceberg_export.table.catalog import io_properties
from iceberg_export.table.partition_limits import rows_without_partition
from tests.iceberg_export.files.test_transform_cases import TRANSFORMS, column, spelled, typed
from tests.iceberg_export.files.transform_cases import TRANSFORMS as TRANSFORM_NAMES
from tests.iceberg_export.files.transform_cases import values
from tests.iceberg_export.kit.place import memory_catalog

IN_FORMAT_2 = [kind for kind in values() if not kind.endswith("_ns")]
RESULTS = {case[:3]: case.result for case in TRANSFORMS}
TAKEN = {kind: [name for name in TRANSFORM_NAMES if (kind, name, values()[kind][-1]) in RESULTS]
         for kind in IN_FORMAT_2}  # fmt: skip


@pytest.fixture
def catalog(tmp_path):
    found = memory_catalog(tmp_path)
    found.create_namespace("lake")
    yield found
    found.engine.dispose()


def make(catalog, kind, *transforms):
    """An empty table with a number and a value of that type in each row, partitioned by the value."""
    table_schema = Schema(
        NestedField(1, "row", LongType(), required=False),
        NestedField(2, "v", kind, required=False),
    )
    fields = [PartitionField(2, 1000 + n, one, f"p{n}") for n, one in enumerate(transforms)]
    return catalog.create_table(("lake", "t"), table_schema, partition_spec=PartitionSpec(*fields))


def write(table, *pieces):
    """The data files of these pieces' rows, in the table."""
    text = table.metadata.model_dump_json()
    writer = FileWriter(Target(text, io_properties(table), 1 << 20), "run")
    for piece in pieces:
        writer.write(piece)
    files = writer.close()
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        for file in files:
            added.append_data_file(file)
    return [task.file for task in table.refresh().scan().plan_files()]


def held(file):
    """The rows of a file, as they are stored there."""
    return pq.read_table(file.file_path.removeprefix("file://"), partitioning=None)


@pytest.mark.parametrize("name", IN_FORMAT_2)
def test_each_value_is_written_into_its_partition_and_read_again(catalog, name):
    kind, texts = typed(name), values()[name]
    transforms = [parse_transform(one) for one in TAKEN[name]]
    table = make(catalog, kind, *transforms)
    rows = pa.table({"row": range(len(texts)), "v": column(kind, texts)})
    unheld = rows_without_partition(decimal_truncations(table.metadata), rows)
    kept = [row for row in range(len(texts)) if row not in unheld]
    files = write(table, rows.take(pa.array(kept)))
    found = {}
    for file in files:
        # Read from the manifest, which has days of a date as numbers.
        told = [spelled(value, one.result_type(kind)) for value, one in zip(file.partition, transforms, strict=True)]  # fmt: skip
        found |= dict.fromkeys(held(file)["row"].to_pylist(), told)
    assert found == {row: [RESULTS[name, one, texts[row]] for one in TAKEN[name]] for row in kept}
    # As text: no NaN is equal to itself.
    scanned = table.scan().to_arrow().sort_by("row")["v"].combine_chunks()
    wanted = rows.take(pa.array(kept))["v"].combine_chunks()
    assert [str(one) for one in plain(scanned)] == [str(one) for one in plain(wanted)]


@pytest.mark.parametrize("name", IN_FORMAT_2)
def test_the_bounds_of_a_column_hold_its_least_and_greatest_value(catalog, name):
    kind = typed(name)
    table = make(catalog, kind)
    texts = values()[name]
    (file,) = write(table, pa.table({"row": range(len(texts)), "v": column(kind, texts)}))
    stored = [value for value in plain(column(kind, texts)) if value == value]
    assert from_bytes(kind, file.lower_bounds[2]) <= min(stored)
    if 2 in file.upper_bounds:
        assert from_bytes(kind, file.upper_bounds[2]) >= max(stored)
    assert 2 in file.upper_bounds or name in {"string", "binary"}


def plain(array: pa.Array) -> list[Any]:
    """As Iceberg stores values, and as the bounds of metrics are decoded."""
    if pa.types.is_temporal(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()
    return [getattr(one, "bytes", one) for one in array.to_pylist()]


def test_a_value_too_long_for_parquets_statistics_leaves_the_column_without_bounds(
    catalog, monkeypatch
):
    monkeypatch.setattr(write_files, "ROW_GROUP_BYTES", 1)
    table = make(catalog, StringType())
    pieces = [pa.table({"row": [n], "v": [text]}) for n, text in enumerate(["b", "z" * 10_000])]
    write(table, *pieces)
    assert table.scan(row_filter=f"v = '{'z' * 10_000}'").to_arrow()["row"].to_pylist() == [1]


def test_no_number_is_one_partition_and_each_zero_is_one(catalog):
    table = make(catalog, typed("double"), IdentityTransform())
    piece = pa.table({"row": range(4), "v": [float("nan"), -0.0, 0.0, float("nan")]})
    files = write(table, piece, piece)
    assert sorted((str(file.partition[0]), file.record_count) for file in files) == [
        ("-0.0", 2), ("0.0", 2), ("nan", 4),
    ]  # fmt: skip


def test_two_partitions_may_come_from_one_column(catalog):
    spec = PartitionSpec(PartitionField(2, 1000, parse_transform("truncate[10]"), "t"),
                         PartitionField(2, 1001, parse_transform("bucket[2]"), "b"))  # fmt: skip
    fields = Schema(NestedField(1, "row", LongType()), NestedField(2, "v", LongType()))
    table = catalog.create_table(("lake", "t"), fields, partition_spec=spec)
    files = write(table, pa.table({"row": [1, 2], "v": [11, 29]}))
    assert sorted(file.partition[0] for file in files) == [10, 20]


def test_a_partition_that_no_folder_can_be_named_by_lies_beside_the_folders(catalog, tmp_path):
    table = make(catalog, StringType(), IdentityTransform())
    texts = ["short", "x" * 5_000]
    files = write(table, pa.table({"row": [0, 1], "v": texts}))
    folders = {file.partition[0][:5]: file.file_path.split("/data/")[1].count("/") for file in files}  # fmt: skip
    assert folders == {"short": 1, "xxxxx": 0}


ASKED = {
    "int": F.lit,
    "long": F.lit,
    "decimal(9,2)": lambda number: F.lit(Decimal(number).scaleb(-2)),
    "decimal(38,0)": lambda number: F.lit(Decimal(number)),
    "date": lambda days: F.expr(f"date_from_unix_date({days})"),
    "timestamp": lambda micros: F.expr(f"cast(timestamp_micros({micros}) as timestamp_ntz)"),
}


@pytest.mark.parametrize("name", ASKED)
def test_icebergs_reader_for_spark_finds_each_row_by_its_value(catalog, session, name):
    kind, numbers = typed(name), sorted(map(int, values()[name]))
    table = make(catalog, kind, *map(parse_transform, TAKEN[name]))
    rows = pa.table({"row": range(len(numbers)), "v": column(kind, [str(one) for one in numbers])})
    unheld = rows_without_partition(decimal_truncations(table.metadata), rows)
    kept = [row for row in range(len(numbers)) if row not in unheld]
    write(table, rows.take(pa.array(kept)))
    seen = session.read.format("iceberg").load(table.metadata_location)
    for row in (
        kept[0],
        kept[1],
        kept[len(kept) // 2 - 1],
        kept[len(kept) // 2],
        kept[-2],
        kept[-1],
    ):
        found = seen.where(F.col("v") == ASKED[name](numbers[row])).select("row").collect()
        assert [one.row for one in found] == [row], numbers[row]
