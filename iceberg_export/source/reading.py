"""What a task of a query does: rows of a split of chunks, or of some files of a table.

Every batch has the columns that Spark was told, in their order and of Spark's own Arrow types. A
column that one side does not have is null there.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import names
from iceberg_export.errors import PlanError
from iceberg_export.read_chunks import open_reader, span_bytes
from iceberg_export.rows import TimestampLimits, limit_timestamps, span_rows
from iceberg_export.source.filters import Wanted
from iceberg_export.source.tasks import ChunkTask, Task


def read_task(task: Task, schema: pa.Schema, box: Wanted) -> Iterator[pa.RecordBatch]:
    """The rows of a task that lie in the box, in columns of `schema`. Raises ExportError.

    Partitions and offsets are the plan's business; timestamps differ from record to record.
    """
    for rows in _rows(task, schema, box):
        found = _between(rows, box)
        if found.num_rows:
            yield from fit(found, schema).to_batches()


def _rows(task: Task, schema: pa.Schema, box: Wanted) -> Iterator[pa.Table]:
    if isinstance(task, ChunkTask):
        return _chunk_rows(task)
    # PyIceberg takes longer to load than a small topic to be read.
    from iceberg_export.source.tables import table_rows

    return table_rows(task, schema, box)


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
                if task.timestamps is not None:
                    rows = limit_timestamps(rows, TimestampLimits(*task.timestamps))  # noqa: PLW2901
                yield rows if task.typing is None else _decoded(task, rows)


def _decoded(task: ChunkTask, rows: pa.Table) -> pa.Table:
    """The rows with decoded columns, as the exporter would write them; bad ones are left out, as
    they will not be in the table, or are an error."""
    from iceberg_export.typed_rows import judge, reason_of

    judged = judge(task.typing, rows)
    for source, ids in judged.unknown.items():
        number, indexes = min(ids)
        if number in (task.typing.value if source == names.VALUE else task.typing.key).schemas:
            raise PlanError(
                f"message {list(indexes)} of schema {number} of {source} has fields that the table "
                "has no columns for yet; export the topic first"
            )
        raise PlanError(
            f"schema {number} of {source} is no version of the topic's subject; set "
            "frazil.iceberg.value.subject (or key.subject) of the topic"
        )
    if judged.bad.num_rows and task.fails:
        raise PlanError(reason_of(judged.bad))
    return judged.rows


def fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, by name."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
