"""Which partition of the table each row belongs to, for any mix of Iceberg's transforms.

Values are those of Iceberg's specification (days since 1970, Murmur3 buckets, ...). Transforms of
times are arithmetic on whole columns; bucket and truncate are asked of PyIceberg once for each
value that differs. The rows of one partition keep their order. A null stays null.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
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
    YearTransform,
)
from pyiceberg.types import DateType, IcebergType, PrimitiveType, TimestampType, TimestamptzType

from iceberg_export.errors import StateError

_UNITS: dict[type, str] = {
    YearTransform: "Y",
    MonthTransform: "M",
    DayTransform: "D",
    HourTransform: "h",
}
_OTHERS = (IdentityTransform, BucketTransform, TruncateTransform)


class Column(NamedTuple):
    """One field of a table's partitioning and where its values come from."""

    field: PartitionField
    path: tuple[str, ...]
    """Of the source column; longer than one inside of structs."""
    kind: IcebergType


def partition_columns(metadata: TableMetadata) -> tuple[Column, ...]:
    """The fields that the table is partitioned by. Raises StateError for what we cannot write."""
    return tuple(_column(field, metadata.schema()) for field in metadata.spec().fields)


def _column(field: PartitionField, schema: Schema) -> Column:
    transform = type(field.transform)
    source = schema.find_field(field.source_id)
    is_time = isinstance(source.field_type, DateType | TimestampType | TimestamptzType)
    known = is_time if transform in _UNITS else transform in _OTHERS
    path = _path(schema, field.source_id)
    if not known or not path or not isinstance(source.field_type, PrimitiveType):
        raise StateError(
            f"the exporter cannot write into partitions by {field.transform} of {source.name}"
        )
    return Column(field, path, source.field_type)


def _path(schema: Schema, field_id: int) -> tuple[str, ...]:
    """Names from the top to a field that is in no list and no map; () for others."""

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
    columns: tuple[Column, ...], rows: pa.Table
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each partition with its values; `()` of a table that is not partitioned."""
    if not columns:
        yield (), rows
        return
    if (same := _only_values(columns, rows)) is not None:
        yield same, rows
        return
    encoded = [_values(column, rows).dictionary_encode("encode") for column in columns]
    codes = np.zeros(rows.num_rows, np.int64)
    for one in encoded:
        # Fewer than 2**31 of each, and never more combinations than rows after `unique`.
        codes = codes * len(one.dictionary) + np.asarray(one.indices)
        _, codes = np.unique(codes, return_inverse=True)
    if not codes.any():
        yield tuple(one[0].as_py() for one in encoded), rows
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    for places in np.split(order, bounds):
        first = int(places[0])
        yield tuple(one[first].as_py() for one in encoded), rows.take(pa.array(places))


def _only_values(columns: tuple[Column, ...], rows: pa.Table) -> tuple[Any, ...] | None:
    """The partition that all rows lie in, when their least and greatest times tell; else None.

    Most rows that are written together are of one day: this spares them the work for each row.
    """
    found = []
    for column in columns:
        unit = _UNITS.get(type(column.field.transform))
        source = _source(column.path, rows)
        if unit is None or source.null_count > 0 or len(source) == 0:
            return None
        bounds = pc.min_max(source)
        first, last = _since_1970(pa.array([bounds["min"], bounds["max"]], source.type), unit)
        if first != last:
            return None
        found.append(first.as_py())
    return tuple(found)


def _values(column: Column, rows: pa.Table) -> pa.Array:
    source = _source(column.path, rows)
    transform = column.field.transform
    if isinstance(transform, IdentityTransform):
        if isinstance(column.kind, TimestampType | TimestamptzType):
            return source.cast(pa.int64())
        return source
    if (unit := _UNITS.get(type(transform))) is not None:
        return _since_1970(source, unit)
    unique = source.dictionary_encode()
    apply = transform.transform(column.kind)
    results = pa.array([apply(value) for value in _python_values(column, unique.dictionary)])
    if len(results) == 0:
        return pa.nulls(len(source), pa.int32())
    return results.take(unique.indices)


def _python_values(column: Column, values: pa.Array) -> Iterable[Any]:
    """As PyIceberg's transforms take them: times as numbers."""
    if isinstance(column.kind, DateType):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type) or pa.types.is_time(values.type):
        values = values.cast(pa.int64())
    return (value.as_py() for value in values)


def _source(path: tuple[str, ...], rows: pa.Table) -> pa.Array:
    if path[0] not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.int64())
    found = rows.column(path[0]).combine_chunks()
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    for name in path[1:]:
        if found.type.get_field_index(name) < 0:
            return pa.nulls(rows.num_rows, pa.int64())
        found = pc.struct_field(found, name)
    return found


def _since_1970(source: pa.Array, unit: str) -> pa.Array:
    """Whole years, months, days or hours, rounded down also before 1970."""
    valid = source.is_valid()
    if pa.types.is_date(source.type):
        times = source.cast(pa.int32()).fill_null(0).to_numpy().astype("datetime64[D]")
    else:
        times = source.cast(pa.int64()).fill_null(0).to_numpy().astype("datetime64[us]")
    whole = times.astype(f"datetime64[{unit}]").astype(np.int64)
    return pa.array(whole, mask=~np.asarray(valid))
