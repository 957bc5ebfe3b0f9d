"""Rows in the order that their table asks for, a row group at a time.

Readers skip row groups by the least and the greatest value of each column, which is where an order pays. A whole
file is sorted when it is one row group alone, so none claims an order's id.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform


class SortColumn(NamedTuple):
    path: tuple[str, ...]
    descending: bool
    nulls_first: bool


def sort_columns(metadata: TableMetadata) -> tuple[SortColumn, ...]:
    """Returns what the table is sorted by, up to the first field that is none of its columns as it is."""
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    found: list[SortColumn] = []
    schema = metadata.schema()
    for field in order.fields if order is not None else ():
        name = schema.find_column_name(field.source_id)
        if name is None or not isinstance(field.transform, IdentityTransform):
            break
        found.append(
            SortColumn(
                tuple(name.split(".")),
                field.direction == SortDirection.DESC,
                field.null_order == NullOrder.NULLS_FIRST,
            )
        )
    return tuple(found)


def sort_rows(rows: pa.Table, columns: tuple[SortColumn, ...]) -> pa.Table:
    """Returns the rows in that order; equal ones stay as they are to each other."""
    if not columns or rows.num_rows < 2:
        return rows
    keys: dict[str, Any] = {}
    by = []
    for place, column in enumerate(columns):
        values: Any = rows.column(column.path[0])
        if len(column.path) > 1:
            values = pc.struct_field(values, list(column.path[1:]))
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.cast(values.type.storage_type)  # A UUID, which Arrow does not sort.
        # Arrow puts the nulls of all keys on one side: whether there is a value is a key of its own.
        keys[f"null {place}"] = pc.cast(values.is_valid(), pa.int8())
        by.append((f"null {place}", "ascending" if column.nulls_first else "descending"))
        keys[f"key {place}"] = values
        by.append((f"key {place}", "descending" if column.descending else "ascending"))
    keys["at"] = pa.array(np.arange(rows.num_rows))
    by.append(("at", "ascending"))
    return rows.take(pc.sort_indices(pa.table(keys), sort_keys=by))
