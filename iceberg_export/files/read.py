"""Data files of a table, and their rows as a reader of the table sees them.

PyIceberg's `ArrowScan` (0.12) makes a list anew from its offsets where the elements are structs,
and a map where the values are, and forgets which of them were null: they come out empty
(`ArrowProjectionVisitor.list` and `.map`). Whoever writes what he read would lose the difference,
so all that reads whole rows here uses `NullKeepingScan`. Columns are found by field id, position
deletes applied, types promoted, as PyIceberg does; only lists and maps are put together here.

Leaves out row filters: callers choose files, and filter rows themselves.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowAccessor, pyarrow_to_schema
from pyiceberg.schema import Schema, prune_columns, visit_with_partner
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType
from typing_extensions import override

from iceberg_export.table.catalog import guarded
from iceberg_export.table.pyiceberg_internals import (
    Projection,
    Scan,
    file_format,
    kept_rows,
    values_of_missing,
)

BUFFER_BYTES = 8 * 1024 * 1024
"""As PyIceberg reads."""


class _Projection(Projection):
    """With lists and maps as they are."""

    @override
    def list(
        self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None
    ) -> pa.Array | None:
        if value_array is None or not isinstance(list_array, pa.ListArray | pa.LargeListArray):
            return super().list(list_type, list_array, value_array)
        values = self.cast(list_type.element_field, value_array)
        element = self.arrow_field(list_type.element_field, values.type)
        is_large = isinstance(list_array, pa.LargeListArray)
        return type(list_array).from_arrays(
            _offsets(list_array),
            values,
            type=pa.large_list(element) if is_large else pa.list_(element),
            mask=_mask(list_array),
        )

    @override
    def map(
        self,
        map_type: MapType,
        map_array: pa.Array | None,
        key_result: pa.Array | None,
        value_result: pa.Array | None,
    ) -> pa.Array | None:
        if key_result is None or value_result is None or not isinstance(map_array, pa.MapArray):
            return None
        keys = self.cast(map_type.key_field, key_result)
        values = self.cast(map_type.value_field, value_result)
        kind = pa.map_(
            self.arrow_field(map_type.key_field, keys.type),
            self.arrow_field(map_type.value_field, values.type),
        )
        return pa.MapArray.from_arrays(
            _offsets(map_array), keys, values, type=kind, mask=_mask(map_array)
        )


def _offsets(array: pa.Array) -> pa.Array:
    """Arrow takes no mask beside offsets that are a slice of others: these are not."""
    return pa.array(np.asarray(array.offsets))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


class NullKeepingScan(Scan):
    """PyIceberg's scan without a filter, for the columns `projected`."""

    @override
    def batches(
        self, task: FileScanTask, deletes: list[pa.ChunkedArray] | None
    ) -> Iterator[pa.RecordBatch]:
        metadata = self.metadata
        read = file_format(task.file.file_format, BUFFER_BYTES)
        with self.io.new_input(task.file.file_path).open() as source:
            fragment = read.make_fragment(source)
            found = pyarrow_to_schema(
                fragment.physical_schema,
                metadata.name_mapping(),
                downcast_ns_timestamp_to_us=metadata.format_version <= 2,
                format_version=metadata.format_version,
            )
            missing = values_of_missing(task.file, metadata, self.columns, found)
            here = prune_columns(found, self.field_ids, select_full_types=False)
            names = [column.name for column in here.columns]
            place = 0
            for batch in ds.Scanner.from_fragment(fragment, columns=names).to_batches():
                first, place = place, place + len(batch)
                kept = batch.take(kept_rows(deletes, first, place)) if deletes else batch
                if kept.num_rows:
                    yield self._projected(here, kept, missing)

    def _projected(
        self, here: Schema, batch: pa.RecordBatch, missing: dict[int, Any]
    ) -> pa.RecordBatch:
        projection = _Projection(here, self.metadata, missing)
        columns = visit_with_partner(self.columns, batch, projection, ArrowAccessor(here))
        return pa.RecordBatch.from_struct_array(columns)


def read_rows(
    files: Iterable[FileScanTask],
    metadata: TableMetadata,
    io: FileIO,
    columns: Schema | None = None,
) -> Iterator[pa.Table]:
    """Yields the rows of the files batch by batch, deletes applied; `columns`: all, if not given."""
    scan = NullKeepingScan(metadata, io, columns or metadata.schema())
    for batch in scan.to_record_batches(files):
        yield pa.Table.from_batches([batch])


def scan_files(table: Table, rows: BooleanExpression | None = None) -> list[FileScanTask]:
    """Returns the data files that may hold such rows, with their deletes. Raises CatalogError."""
    name = ".".join(table.name())
    scan = table.scan() if rows is None else table.scan(row_filter=rows)
    return guarded(f"read the file list of {name}", lambda: list(scan.plan_files()))


def group_files(files: Iterable[FileScanTask], bytes_max: int) -> list[list[FileScanTask]]:
    """Groups files for tasks, in order, about `bytes_max` in each group."""
    groups: list[list[FileScanTask]] = []
    room = 0
    for file in files:
        size = file.file.file_size_in_bytes
        if not groups or room < size:
            groups.append([])
            room = bytes_max
        groups[-1].append(file)
        room -= size
    return groups
