"""Rewrites data files of a table: several as one, or one without some of its rows.

One call per task, in a Spark executor or in this process. Rows are read as a reader of the table
would see them (position deletes applied, columns of the current schema), in the order of the
files given, and counted. Nothing is visible until the caller's commit; it owns the new files.
Leaves out which files (`reset`, `redact`, `compact`) and the commit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThanOrEqual,
    Or,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from iceberg_export import names
from iceberg_export.errors import CommitUnknownError, ExportError, StateError
from iceberg_export.files.read import read_rows
from iceberg_export.files.target import Target
from iceberg_export.files.write import FileWriter, discarded_on_error
from iceberg_export.table.catalog import CATALOG_ERRORS, first_line, try_delete


class Unwanted(NamedTuple):
    """Rows that go, by their records' partitions and offsets."""

    delete_from: Mapping[int, int] = {}
    """From there on."""
    places: Mapping[int, npt.NDArray[np.int64]] = {}
    """There."""


class RewriteTask(NamedTuple):
    """One task: `files` become new ones, without the rows that are unwanted."""

    number: int
    target: Target
    name: str
    """What names of new files begin with, before the attempt's number."""
    files: tuple[FileScanTask, ...]
    unwanted: Unwanted = Unwanted()


class RewriteResult(NamedTuple):
    number: int
    files: list[DataFile]
    rows_read: int
    rows_written: int


def rows_at_or_after(delete_from: Mapping[int, int]) -> BooleanExpression:
    """Returns the filter for rows at or after an offset of their partition."""
    assert delete_from
    # Their constructors take terms by name, which their declared types do not know.
    equal: Any = EqualTo
    at_least: Any = GreaterThanOrEqual
    each = [
        And(equal(names.PARTITION, p), at_least(names.OFFSET, o)) for p, o in delete_from.items()
    ]
    return each[0] if len(each) == 1 else Or(*each)


def rows_among(places: Mapping[int, npt.NDArray[np.int64]]) -> BooleanExpression:
    """Returns the filter for rows from the first to the last of these offsets, ascending, of a partition."""
    at_most: Any = LessThanOrEqual
    each = [
        And(rows_at_or_after({p: int(some[0])}), at_most(names.OFFSET, int(some[-1])))
        for p, some in places.items()
    ]
    return each[0] if len(each) == 1 else Or(*each)


def _without(rows: pa.Table, unwanted: Unwanted) -> pa.Table:
    """Returns the rows without those that go."""
    for partition, cut in unwanted.delete_from.items():
        gone = pc.and_(
            pc.equal(rows.column(names.PARTITION), partition),
            pc.greater_equal(rows.column(names.OFFSET), cut),
        )
        rows = rows.filter(pc.invert(gone))
    for partition, places in unwanted.places.items():
        here = np.asarray(rows.column(names.PARTITION)) == partition
        offsets = np.asarray(rows.column(names.OFFSET))
        rows = rows.filter(pa.array(~(here & np.isin(offsets, places))))
    return rows


def rewrite_files(payload: RewriteTask, attempt: int) -> RewriteResult:
    """Writes the files of one task. Raises StateError; then none of the new ones are left."""
    metadata, io = payload.target.open()
    writer = FileWriter(payload.target, f"{payload.name}-{attempt}")
    read = written = 0
    try:
        with discarded_on_error(writer):
            # One file at a time: a scan may hold whole files in memory.
            for file in payload.files:
                for rows in read_rows([file], metadata, io):
                    read += rows.num_rows
                    kept = _without(rows, payload.unwanted)
                    written += kept.num_rows
                    writer.write(kept)
            files = writer.close()
    except CATALOG_ERRORS as error:
        raise StateError(f"cannot rewrite files: {first_line(error)}") from error
    assert sum(file.record_count for file in files) == written
    return RewriteResult(payload.number, files, read, written)


def delete_files(table: Table, files: Iterable[DataFile]) -> None:
    """Deletes new files that no snapshot will ever name; what cannot go is an orphan."""
    for file in files:
        try_delete(table.io, file.file_path)


@contextmanager
def deleted_unless_committed(table: Table, files: Sequence[DataFile]) -> Iterator[None]:
    """Deletes new files when the commit in the `with` block is refused.

    Files of a commit whose outcome is unknown stay: it may still take place.
    """
    try:
        yield
    except CommitUnknownError:
        raise
    except ExportError:
        delete_files(table, files)
        raise
