"""What a task of a query does: rows of a split of chunks, or of some files of a table.

Every batch has the columns that Spark was told, in their order and of Spark's own Arrow types. A
column that one side does not have is null there.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadataUtil

from iceberg_export import names
from iceberg_export.plan import Split, StoreAddress
from iceberg_export.read_chunks import open_reader, span_bytes
from iceberg_export.rows import span_rows
from iceberg_export.source.filters import Wanted


class ChunkTask(NamedTuple):
    """Records from chunks."""

    store: StoreAddress
    store_options: dict[str, str]
    split: Split


class TableTask(NamedTuple):
    """Rows from data files of one snapshot, deletes applied."""

    metadata_json: str
    io_properties: dict[str, str]
    files: tuple[FileScanTask, ...]


Task = ChunkTask | TableTask


def read_task(task: Task, schema: pa.Schema, box: Wanted) -> Iterator[pa.RecordBatch]:
    """The rows of a task that lie in the box, in columns of `schema`. Raises ExportError.

    Partitions and offsets are the plan's business; timestamps differ from record to record.
    """
    pieces = _chunk_rows(task) if isinstance(task, ChunkTask) else _table_rows(task, schema, box)
    for rows in pieces:
        found = _between(rows, box)
        if found.num_rows:
            yield from fit(found, schema).to_batches()


def _between(rows: pa.Table, box: Wanted) -> pa.Table:
    if box.micros_from is None and box.micros_to is None:
        return rows
    micros = rows.column(names.TIMESTAMP).cast(pa.int64())
    if box.micros_from is not None:
        # A null is neither before nor after: such rows go.
        here = pc.greater_equal(micros, box.micros_from)
        rows, micros = rows.filter(here), micros.filter(here)
    return rows if box.micros_to is None else rows.filter(pc.less(micros, box.micros_to))


def _chunk_rows(task: ChunkTask) -> Iterator[pa.Table]:
    reader = open_reader(task.store, task.store_options)
    for span, data in span_bytes(reader, task.split.spans):
        for rows, _tally in span_rows(span, data):
            if rows.num_rows:
                yield rows


def _table_rows(task: TableTask, schema: pa.Schema, box: Wanted) -> Iterator[pa.Table]:
    metadata = TableMetadataUtil.parse_raw(task.metadata_json)
    needed = [*schema.names, names.PARTITION, names.TIMESTAMP]
    here = [field for field in metadata.schema().fields if field.name in needed]
    scan = ArrowScan(
        metadata,
        load_file_io(task.io_properties, metadata.location),
        metadata.schema().select(*(field.name for field in here)),
        AlwaysTrue(),
    )
    for batch in scan.to_record_batches(task.files):
        rows = pa.Table.from_batches([batch])
        if box.partitions is not None:
            wanted = pa.array(sorted(box.partitions), rows.schema.field(names.PARTITION).type)
            rows = rows.filter(pc.is_in(rows.column(names.PARTITION), wanted))
        yield rows


def fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, by name."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
