"""Data files of a table written anew: several as one, or one without some of its rows.

One call per task, in a Spark executor or in this process. Rows are read as a reader of the table
would see them (position deletes applied, columns of the current schema), in the order of the
files given, and counted. Nothing is visible until the caller's commit; it owns the new files.
Leaves out which files (`reset`, `maintain`) and the commit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    Or,
)
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadataUtil

from iceberg_export import names
from iceberg_export.errors import StateError
from iceberg_export.files.read import NullKeepingScan
from iceberg_export.files.write import FileWriter, Target
from iceberg_export.table.catalog import CATALOG_ERRORS, first_line, guarded, io_properties


class RewriteTask(NamedTuple):
    """One task: `files` become new ones, without rows from `delete_from[partition]` on."""

    number: int
    target: Target
    name: str
    """What names of new files begin with, before the attempt's number."""
    files: tuple[FileScanTask, ...]
    delete_from: Mapping[int, int]


class RewriteResult(NamedTuple):
    number: int
    files: list[DataFile]
    rows_read: int
    rows_written: int


def rows_at_or_after(delete_from: Mapping[int, int]) -> BooleanExpression:
    """The rows that lie at or after the cut of their partition."""
    assert delete_from
    # Their constructors take terms by name, which their declared types do not know.
    equal: Any = EqualTo
    at_least: Any = GreaterThanOrEqual
    each = [
        And(equal(names.PARTITION, p), at_least(names.OFFSET, o)) for p, o in delete_from.items()
    ]
    return each[0] if len(each) == 1 else Or(*each)


def scan_files(table: Table, rows: BooleanExpression | None = None) -> list[FileScanTask]:
    """Data files that may hold such rows, with their deletes. Raises CatalogError."""
    name = ".".join(table.name())
    scan = table.scan() if rows is None else table.scan(row_filter=rows)
    return guarded(f"read the file list of {name}", lambda: list(scan.plan_files()))


def _without_deleted(rows: pa.Table, delete_from: Mapping[int, int]) -> pa.Table:
    """`rows` without those at or after their partition's cut."""
    for partition, cut in delete_from.items():
        gone = pc.and_(
            pc.equal(rows.column(names.PARTITION), partition),
            pc.greater_equal(rows.column(names.OFFSET), cut),
        )
        rows = rows.filter(pc.invert(gone))
    return rows


def rewrite_files(payload: RewriteTask, attempt: int) -> RewriteResult:
    """Write the files of one task. Raises StateError; then none of the new ones are left."""
    metadata = TableMetadataUtil.parse_raw(payload.target.metadata_json)
    io = load_file_io(payload.target.io_properties, metadata.location)
    writer = FileWriter(payload.target, f"{payload.name}-{attempt}")
    read = written = 0
    finished = False
    try:
        scan = NullKeepingScan(metadata, io, metadata.schema())
        for file in payload.files:
            for batch in scan.to_record_batches([file]):
                rows = pa.Table.from_batches([batch])
                read += rows.num_rows
                rows = _without_deleted(rows, payload.delete_from)
                written += rows.num_rows
                writer.write(rows)
        files = writer.close()
        finished = True
    except CATALOG_ERRORS as error:
        raise StateError(f"cannot rewrite files: {first_line(error)}") from error
    finally:
        if not finished:
            writer.discard()
    assert sum(file.record_count for file in files) == written
    return RewriteResult(payload.number, files, read, written)


def target_of(table: Table, file_bytes_max: int) -> Target:
    """The table for tasks."""
    return Target(table.metadata.model_dump_json(), io_properties(table), file_bytes_max)


def delete_files(table: Table, files: Sequence[DataFile]) -> None:
    """Delete new files that no snapshot will ever name; what cannot go is an orphan."""
    for file in files:
        try:
            table.io.delete(file.file_path)
        except CATALOG_ERRORS:
            continue
