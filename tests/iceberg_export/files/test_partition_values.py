"""Rows to table partitions: equal to what PyIceberg's own transforms say, row by row, but where those
are not what Iceberg's Java library says (`test_transform_cases`)."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import TruncateTransform, UnknownTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from iceberg_export.errors import SettingsError, StateError
from iceberg_export.files.partition_values import partition_columns, split_rows
from iceberg_export.table import schema
from iceberg_export.table.topic_settings import parse_partition_by

TIMES = st.integers(-(10**16), 10**16)
KINDS = {
    "i": (IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "l": (LongType(), pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "s": (StringType(), pa.large_string(), st.text(max_size=4)),
    "b": (BinaryType(), pa.large_binary(), st.binary(max_size=4)),
    "d": (DateType(), pa.date32(), st.integers(-200_000, 200_000)),
    "t": (TimestampType(), pa.timestamp("us"), TIMES),
    "z": (TimestamptzType(), pa.timestamp("us", "UTC"), TIMES),
    "n": (DecimalType(9, 2), pa.decimal128(9, 2), st.integers(-(10**9) + 5, 10**9 - 1)),
}
TERMS = {
    "i": ["i", "bucket(4,i)", "truncate(10,i)"],
    "l": ["l", "bucket(4,l)", "truncate(7,l)"],
    "s": ["s", "bucket(4,s)", "truncate(2,s)"],
    "b": ["b", "bucket(4,b)"],
    "d": ["d", "year(d)", "month(d)", "day(d)", "bucket(4,d)"],
    "t": ["t", "year(t)", "month(t)", "day(t)", "hour(t)", "bucket(4,t)"],
    "z": ["z", "year(z)", "month(z)", "day(z)", "hour(z)"],
    "n": ["n", "bucket(4,n)", "truncate(5,n)"],
}
TABLE = Schema(
    NestedField(1, "row", LongType(), required=True),
    *(NestedField(2 + i, name, kind[0], required=False) for i, (name, kind) in enumerate(KINDS.items())),
)  # fmt: skip


def metadata_of(table_schema, spec):
    return new_table_metadata(table_schema, spec, UNSORTED_SORT_ORDER, "file:///t", {})


def columns_of(text, table_schema=TABLE):
    spec = schema.partition_spec(parse_partition_by(text), table_schema)
    return partition_columns(metadata_of(table_schema, spec))


def java_says(transform, kind, value):
    if isinstance(kind, TimestampType | TimestamptzType) and value is not None and value < 0:
        is_time = str(transform) in {"year", "month", "day", "hour"}
        value -= 1_000_000 if is_time and (value + 1) % 1_000_000 == 0 else 0
    found = transform.transform(kind)(value)
    if isinstance(transform, TruncateTransform) and isinstance(found, int):
        bits = 32 if isinstance(kind, IntegerType) else 64
        return (found + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    return found


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_row_lies_in_the_partition_that_icebergs_transform_says(data):
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True))
    terms = [data.draw(st.sampled_from(TERMS[name])) for name in names]
    count = data.draw(st.integers(1, 12))
    raw, arrays = {}, {}
    for name in names:
        _, kind, values = KINDS[name]
        raw[name] = data.draw(st.lists(st.none() | values, min_size=count, max_size=count))
        shown = [Decimal(v).scaleb(-2) if name == "n" and v is not None else v for v in raw[name]]
        raw[name] = shown if name == "n" else raw[name]
        arrays[name] = (
            pa.array(shown, pa.int32()).cast(kind) if name == "d" else pa.array(shown, kind)
        )
    rows = pa.table({"row": pa.array(range(count), pa.int64()), **arrays})
    columns = columns_of(",".join(terms))
    seen = []
    groups = list(split_rows(columns, rows))
    for values, part in groups:
        numbers = part["row"].to_pylist()
        assert numbers == sorted(numbers)
        seen += numbers
        for number in numbers:
            for name, column, found in zip(names, columns, values, strict=True):
                assert found == java_says(column.field.transform, KINDS[name][0], raw[name][number])
    assert sorted(seen) == list(range(count))
    assert len({values for values, _ in groups}) == len(groups)


def test_a_field_inside_of_a_struct_can_be_partitioned_by():
    table_schema = Schema(
        NestedField(
            1, "value", StructType(NestedField(2, "city", StringType(), required=False)),
            required=False,
        )
    )  # fmt: skip
    kind = pa.struct([("city", pa.large_string())])
    rows = pa.table({"value": pa.array([{"city": "Ulm"}, None, {"city": None}], kind)})
    groups = {
        values: len(part)
        for values, part in split_rows(columns_of("value.city", table_schema), rows)
    }
    assert groups == {("Ulm",): 1, (None,): 2}


def test_rows_without_the_column_lie_in_the_partition_of_null():
    (found,) = split_rows(columns_of("bucket(4,s), day(z)"), pa.table({"row": [1, 2]}))
    assert (found[0], len(found[1])) == ((None, None), 2)


def test_a_transform_that_is_not_known_is_refused():
    spec = PartitionSpec(PartitionField(1, 1000, UnknownTransform("zorder"), "v"))
    with pytest.raises(StateError, match="cannot write into partitions by unknown of row"):
        partition_columns(metadata_of(TABLE, spec))


def test_a_column_of_a_list_is_refused():
    table_schema = Schema(
        NestedField(1, "l", ListType(element_id=2, element_type=StringType()), required=False)
    )
    spec = PartitionSpec(PartitionField(2, 1000, schema._TRANSFORMS["identity"](0), "v"))
    with pytest.raises(StateError, match="cannot write into partitions"):
        partition_columns(metadata_of(table_schema, spec))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere", "names the column nowhere, the table has row, i"),
        ("day(s)", "says day of s, which is a string"),
        ("hour(d)", "says hour of d, which is a date"),
    ],
)
def test_a_partitioning_that_does_not_fit_the_columns_is_refused(text, said):
    with pytest.raises(SettingsError) as refused:
        schema.partition_spec(parse_partition_by(text), TABLE)
    assert said in str(refused.value)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["day", "hour", "month", "year"]),
    st.integers(-400, 400),
    st.lists(st.integers(-3_600_000_000, 3_600_000_000), min_size=1, max_size=4),
)
def test_rows_of_about_one_time_lie_where_icebergs_transform_says(transform, day, around):
    micros = [day * 86_400_000_000 + each for each in around]
    rows = pa.table({"z": pa.array(micros, pa.timestamp("us", "UTC"))})
    (column,) = columns = columns_of(f"{transform}(z)")
    wanted = {}
    for one in micros:
        value = java_says(column.field.transform, TimestamptzType(), one)
        wanted.setdefault((value,), []).append(one)
    found = {values: part["z"].cast(pa.int64()) for values, part in split_rows(columns, rows)}
    assert {values: times.to_pylist() for values, times in found.items()} == wanted
