"""Which partition of the table each row belongs to, for any mix of Iceberg's transforms.

Values are those of Iceberg's Java library to the ends of every type (`transform_cases.tsv` among
the tests): its integers wrap around, and so do ours. No calendar of Python's is asked, since that
ends with the year 9999. One thing has no value: a decimal that truncation makes longer than its
type; such rows are to be kept from `split_rows` (`partition_limits`).

Transforms are arithmetic on whole columns, but for buckets and decimals, of which each value that
differs is looked at once. The rows of one partition keep their order. A null stays null.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DecimalType, IcebergType, PrimitiveType

from iceberg_export.errors import StateError
from iceberg_export.table.partition_limits import (
    DecimalTruncation,
    column_at,
    rows_without_partition,
    truncated,
)

_UNITS: dict[type, str] = {
    YearTransform: "Y",
    MonthTransform: "M",
    DayTransform: "D",
    HourTransform: "h",
}
_OTHERS = (IdentityTransform, BucketTransform, TruncateTransform, VoidTransform)
_DAY_HOURS = 24
_HOUR_S = 3_600
_SECOND_TICKS = {"us": 1_000_000, "ns": 1_000_000_000}


Ints = npt.NDArray[np.int64]


class PartitionColumn(NamedTuple):
    """One field of a table's partitioning and where its values come from."""

    field: PartitionField
    path: tuple[str, ...]
    """Of the source column; longer than one inside of structs."""
    kind: IcebergType


def partition_columns(metadata: TableMetadata) -> tuple[PartitionColumn, ...]:
    """Returns the fields that the table is partitioned by. Raises StateError for what we cannot write."""
    return tuple(_column(field, metadata.schema()) for field in metadata.spec().fields)


def _column(field: PartitionField, schema: Schema) -> PartitionColumn:
    source = schema.find_field(field.source_id)
    path = _path(schema, field.source_id)
    known = type(field.transform) in _UNITS or isinstance(field.transform, _OTHERS)
    is_primitive = isinstance(source.field_type, PrimitiveType)
    if not (known and path and is_primitive and field.transform.can_transform(source.field_type)):
        raise StateError(
            f"the exporter cannot write into partitions by {field.transform} of {source.name}"
        )
    return PartitionColumn(field, path, source.field_type)


def _path(schema: Schema, field_id: int) -> tuple[str, ...]:
    """Returns the names from the top to a field that is in no list and no map; () for others."""

    def search(fields: Any, above: tuple[str, ...]) -> tuple[str, ...]:
        for one in fields:
            path = (*above, one.name)
            if one.field_id == field_id:
                return path
            if one.field_type.is_struct and (found := search(one.field_type.fields, path)):
                return found
        return ()

    return search(schema.fields, ())


def split_rows(
    columns: tuple[PartitionColumn, ...], rows: pa.Table
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yields each partition's values and rows; the values are `()` in a table without partitions.

    Values are as Iceberg stores them: days and microseconds as numbers. Raises StateError for a
    row that `partition_limits.rows_without_partition` names.
    """
    if not columns:
        yield (), rows
        return
    if (same := _single_partition(columns, rows)) is not None:
        yield same, rows
        return
    for reason in rows_without_partition(filter(None, map(_truncation, columns)), rows).values():
        raise StateError(f"a row of the table cannot be written into its partition: {reason}")
    encoded = [_values(column, rows).dictionary_encode("encode") for column in columns]
    codes = np.zeros(rows.num_rows, np.int64)
    for one in encoded:
        # Fewer than 2**31 of each, and never more combinations than rows after `unique`.
        codes = codes * len(one.dictionary) + np.asarray(one.indices)
        _, codes = np.unique(codes, return_inverse=True)
    if not codes.any():
        yield _python_values(columns, encoded, 0), rows
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    for places in np.split(order, bounds):
        yield _python_values(columns, encoded, int(places[0])), rows.take(pa.array(places))


def decimal_truncations(metadata: TableMetadata) -> tuple[DecimalTruncation, ...]:
    """Returns the partition fields that truncate decimals."""
    fields = metadata.spec().fields
    of_decimals = [one for one in fields if isinstance(one.transform, TruncateTransform)]
    return tuple(
        filter(None, (_truncation(_column(one, metadata.schema())) for one in of_decimals))
    )


def _truncation(column: PartitionColumn) -> DecimalTruncation | None:
    transform, kind = column.field.transform, column.kind
    if not (isinstance(transform, TruncateTransform) and isinstance(kind, DecimalType)):
        return None
    return DecimalTruncation(column.path, transform.width, kind.precision, kind.scale)


def hashable(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns a key that is equal for equal partitions only: Python's NaNs differ, and its zeros do not."""
    return tuple(repr(one) if isinstance(one, float) else one for one in values)


def _python_values(
    columns: tuple[PartitionColumn, ...], encoded: list[pa.Array], row: int
) -> tuple[Any, ...]:
    """Returns the partition's values in Python's types."""
    found = []
    for column, array in zip(columns, encoded, strict=True):
        value = array[row].as_py()
        form = _float_form(column)
        found.append(struct.unpack(form, value)[0] if form and value is not None else value)
    return tuple(found)


def _single_partition(
    columns: tuple[PartitionColumn, ...], rows: pa.Table
) -> tuple[Any, ...] | None:
    """Returns the partition of all rows, when their least and greatest times tell; else None.

    Most rows that are written together are of one day: this spares them the work for each row.
    Before 1970 later times may lie in earlier partitions (`_since_1970`).
    """
    found = []
    for column in columns:
        unit = _UNITS.get(type(column.field.transform))
        source = column_at(column.path, rows)
        if unit is None or source.null_count > 0 or len(source) == 0:
            return None
        bounds = pc.min_max(source)
        ends = np.array([bounds["min"].value, bounds["max"].value], np.int64)
        first, last = _since_1970(ends, source.type, unit)
        if first != last or ends[0] < 0:
            return None
        found.append(int(_wrapped_int32(first)))
    return tuple(found)


def _values(column: PartitionColumn, rows: pa.Table) -> pa.Array:
    """Returns a value for each row, equal where the partitions are; floats as their bytes."""
    source = column_at(column.path, rows)
    transform = column.field.transform
    if isinstance(transform, VoidTransform) or pa.types.is_null(source.type):
        return pa.nulls(len(source), pa.int32())
    if (unit := _UNITS.get(type(transform))) is not None:
        ticks = _stored_form(source).fill_null(0).to_numpy().astype(np.int64)
        whole = _wrapped_int32(_since_1970(ticks, source.type, unit))
        return pa.array(whole, mask=~np.asarray(source.is_valid()))
    stored = _stored_form(source)
    if isinstance(transform, BucketTransform):
        return _map_distinct(stored, transform.transform(column.kind), pa.int32())
    if isinstance(transform, TruncateTransform):
        return _truncate(stored, transform.width, column.kind)
    form = _float_form(column)
    return _float_bytes(stored, form) if form else stored


def _stored_form(source: pa.Array) -> pa.Array:
    """Returns values as Iceberg stores them: times as numbers, a UUID as its bytes."""
    kind = source.type
    if isinstance(source, pa.ExtensionArray):
        return source.storage
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind)
    return source.view(_width(kind)) if is_time else source


def _width(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _map_distinct(source: pa.Array, apply: Any, kind: pa.DataType) -> pa.Array:
    """Applies a Python function to each value, once for equal ones."""
    unique = source.dictionary_encode()
    results = pa.array([apply(value.as_py()) for value in unique.dictionary], kind)
    return results.take(unique.indices) if len(results) else pa.nulls(len(source), kind)


def _truncate(source: pa.Array, width: int, kind: IcebergType) -> pa.Array:
    if isinstance(kind, DecimalType):
        return _map_distinct(source, lambda value: truncated(value, width, kind.scale), source.type)
    if pa.types.is_integer(source.type):
        numbers = source.fill_null(0).to_numpy()
        by = numbers.dtype.type(width)
        # Java's own expression: its remainder has the sign of the number, and all of it wraps.
        whole = numbers - np.fmod(np.fmod(numbers, by) + by, by)
        return pa.array(whole, mask=~np.asarray(source.is_valid()))
    if pa.types.is_string(source.type) or pa.types.is_large_string(source.type):
        return pc.utf8_slice_codeunits(source, 0, width)
    return pc.binary_slice(source, 0, width)


def _float_form(column: PartitionColumn) -> str:
    """Returns `struct`'s format for an identity partition of floats; "" for all others."""
    if not isinstance(column.field.transform, IdentityTransform):
        return ""
    return {"float": "<f", "double": "<d"}.get(str(column.kind), "")


def _float_bytes(source: pa.Array, form: str) -> pa.Array:
    """Returns floats as bytes, equal where Java has them equal: two zeros, one NaN."""
    numbers = source.fill_null(0.0).to_numpy().copy()
    numbers[np.isnan(numbers)] = np.nan
    size = struct.calcsize(form)
    stored = pa.Array.from_buffers(
        pa.binary(size), len(numbers), [None, pa.py_buffer(numbers.tobytes())]
    )
    return pc.if_else(source.is_valid(), stored, pa.scalar(None, stored.type))


def _since_1970(ticks: Ints, kind: pa.DataType, unit: str) -> Ints:
    """Whole years, months, days or hours of moments, rounded down also before 1970.

    There the last tick of a second counts as that of the second before: so Iceberg's Java library
    has it (`DateTimeUtil.convertMicros`), and its readers look in the partitions that it writes.
    """
    if pa.types.is_timestamp(kind):
        second = _SECOND_TICKS[kind.unit]
        seconds = ticks // second
        seconds -= (ticks < 0) & (ticks - seconds * second == second - 1)
        ticks = seconds // (_HOUR_S if unit == "h" else _HOUR_S * _DAY_HOURS)
    if unit in {"Y", "M"}:
        # Of days, none of which is numpy's "not a time": that is the least of 64 bits.
        ticks = ticks.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)
    return ticks


def _wrapped_int32(whole: Any) -> Any:
    """In 32 bits, as Java's cast leaves the hours of the year 300,000."""
    return whole.astype(np.int32)
