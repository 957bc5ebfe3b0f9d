"""Rows of data files as a reader of the table sees them: `NullKeepingScan`.

PyIceberg's `ArrowScan` (0.12) makes a list anew from its offsets where the elements are structs,
and a map where the values are, and forgets which of them were null: they come out empty
(`ArrowProjectionVisitor.list` and `.map`). Whoever writes what he read would lose the difference,
so all that reads tables here reads through this. Columns are found by field id, position deletes
applied, types promoted, as PyIceberg does; only lists and maps are put together here.

Leaves out row filters: callers choose files, and filter rows themselves.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowAccessor,
    ArrowProjectionVisitor,
    ArrowScan,
    _combine_positional_deletes,
    _get_column_projection_values,
    _get_file_format,
    pyarrow_to_schema,
)
from pyiceberg.schema import Schema, prune_columns, visit_with_partner
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType
from typing_extensions import override

BUFFER_BYTES = 8 * 1024 * 1024
"""As PyIceberg reads."""


class _Projection(ArrowProjectionVisitor):
    """A batch of a file, in the columns and types of the table."""

    @override
    def list(
        self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None
    ) -> pa.Array | None:
        if value_array is None or not isinstance(list_array, pa.ListArray | pa.LargeListArray):
            return super().list(list_type, list_array, value_array)
        values = self._cast_if_needed(list_type.element_field, value_array)
        element = self._construct_field(list_type.element_field, values.type)
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
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        kind = pa.map_(
            self._construct_field(map_type.key_field, keys.type),
            self._construct_field(map_type.value_field, values.type),
        )
        return pa.MapArray.from_arrays(
            _offsets(map_array), keys, values, type=kind, mask=_mask(map_array)
        )


def _offsets(array: pa.Array) -> pa.Array:
    """Arrow takes no mask beside offsets that are a slice of others: these are not."""
    return pa.array(np.asarray(array.offsets))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


class NullKeepingScan(ArrowScan):
    """`ArrowScan` without a filter, for the columns `projected`."""

    def __init__(self, metadata: TableMetadata, io: FileIO, projected: Schema) -> None:
        super().__init__(metadata, io, projected, AlwaysTrue())

    @override
    def _record_batches_from_scan_tasks_and_deletes(
        self, tasks: Iterable[FileScanTask], deletes_per_file: Mapping[str, list[pa.ChunkedArray]]
    ) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            yield from self._batches(task, deletes_per_file.get(task.file.file_path))

    def _batches(
        self, task: FileScanTask, deletes: list[pa.ChunkedArray] | None
    ) -> Iterator[pa.RecordBatch]:
        metadata = self._table_metadata
        file_format: Any = _get_file_format(
            task.file.file_format, pre_buffer=True, buffer_size=BUFFER_BYTES
        )
        with self._io.new_input(task.file.file_path).open() as source:
            fragment = file_format.make_fragment(source)
            found = pyarrow_to_schema(
                fragment.physical_schema,
                metadata.name_mapping(),
                downcast_ns_timestamp_to_us=metadata.format_version <= 2,
                format_version=metadata.format_version,
            )
            missing = _get_column_projection_values(
                task.file,
                self._projected_schema,
                metadata.schema(),
                metadata.specs().get(task.file.spec_id),
                found.field_ids,
            )
            here = prune_columns(found, self._projected_field_ids, select_full_types=False)
            names = [column.name for column in here.columns]
            place = 0
            for batch in ds.Scanner.from_fragment(fragment, columns=names).to_batches():
                first, place = place, place + len(batch)
                kept = batch
                if deletes:
                    kept = batch.take(_combine_positional_deletes(deletes, first, place))
                if kept.num_rows:
                    yield self._projected(here, kept, missing)

    def _projected(
        self, here: Schema, batch: pa.RecordBatch, missing: dict[int, Any]
    ) -> pa.RecordBatch:
        projection = _Projection(
            here,
            self._table_metadata.format_version <= 2,
            projected_missing_fields=missing,
            allow_timestamp_tz_mismatch=True,
        )
        columns = visit_with_partner(self._projected_schema, batch, projection, ArrowAccessor(here))
        return pa.RecordBatch.from_struct_array(columns)
