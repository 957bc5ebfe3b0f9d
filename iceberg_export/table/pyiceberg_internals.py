"""PyIceberg (0.12) where its public names do not reach: the one place that uses its private ones.

Whoever raises its version reads this file; all else of the exporter speaks to public names, which
a test sees to. Each function says why there is no other way. `mend` sets right, in this process,
what PyIceberg gets wrong.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any

import pyarrow as pa
from pyiceberg.avro import reader
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowProjectionVisitor,
    ArrowScan,
    PyArrowFile,
    _combine_positional_deletes,
    _get_column_projection_values,
    _get_file_format,
    _pyarrow_to_schema_without_ids,
)
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, FileScanTask, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.types import NestedField
from pyiceberg.utils import datetime as moments
from typing_extensions import override

# Commits. `Transaction.commit_transaction` repeats a refused commit on any newer head, which an
# exactly-once commit must not: what it would send is taken from it, and sent by `commit`.


def append_producer(transaction: Transaction, summary: Mapping[str, str]) -> Any:
    """Returns what adds a snapshot with files: an append that merges manifests if the table says so.

    The public ways choose for themselves, or take no files that are there already.
    """
    return transaction._append_snapshot_producer(dict(summary))  # noqa: SLF001


def updates_of(transaction: Transaction) -> tuple[TableUpdate, ...]:
    """Returns what the transaction would send."""
    return transaction._updates  # noqa: SLF001


def requirements_of(transaction: Transaction) -> tuple[TableRequirement, ...]:
    """Returns what the transaction would demand, besides the table's UUID."""
    return transaction._requirements  # noqa: SLF001


def staged_table(transaction: CreateTableTransaction) -> Table:
    """Returns the table that is not there yet: catalogs want one to commit to."""
    return transaction._table  # noqa: SLF001


# Types.


def schema_without_ids(columns: pa.Schema) -> Schema:
    """Returns Arrow's types as Iceberg's. The public way wants field ids in the Arrow schema."""
    return _pyarrow_to_schema_without_ids(columns, format_version=2)


# Access.


def session_of(rest_catalog: Any) -> Any:
    """Returns what speaks HTTP, a `requests.Session`: no setting makes it stop waiting.

    The catalog's class is not imported, since tasks import this module and have no catalog.
    """
    return rest_catalog._session  # noqa: SLF001


def where_it_lies(file: PyArrowFile) -> tuple[str, Any, int]:
    """Returns (path, file system, buffer size) of a file, which are what another one is made of."""
    return file._path, file._filesystem, file._buffer_size  # noqa: SLF001


# Scans. `ArrowScan` finds files' columns and deletes, but has no place to put another projection.


class Projection(ArrowProjectionVisitor):
    """A batch of a file, in the columns and types of the table."""

    def __init__(self, here: Schema, metadata: TableMetadata, missing: dict[int, Any]) -> None:
        """`here`: the batch's columns; `missing`: values of columns that it has not, by field id."""
        super().__init__(
            here,
            metadata.format_version <= 2,
            projected_missing_fields=missing,
            allow_timestamp_tz_mismatch=True,
        )

    def cast(self, field: NestedField, values: pa.Array) -> pa.Array:
        """Returns the values in the type of this field of the table."""
        return self._cast_if_needed(field, values)

    def arrow_field(self, field: NestedField, kind: pa.DataType) -> pa.Field:
        return self._construct_field(field, kind)


class Scan(ArrowScan, ABC):
    """`ArrowScan` without a filter, whose batches a subclass makes in `batches`."""

    def __init__(self, metadata: TableMetadata, io: FileIO, projected: Schema) -> None:
        super().__init__(metadata, io, projected, AlwaysTrue())
        self.metadata = metadata
        self.io = io
        self.columns = projected

    @abstractmethod
    def batches(
        self, task: FileScanTask, deletes: list[pa.ChunkedArray] | None
    ) -> Iterator[pa.RecordBatch]:
        """Returns the rows of a file without those that `deletes` name by position."""

    @property
    def field_ids(self) -> set[int]:
        return self._projected_field_ids

    @override
    def _record_batches_from_scan_tasks_and_deletes(
        self, tasks: Iterable[FileScanTask], deletes_per_file: Mapping[str, list[pa.ChunkedArray]]
    ) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            yield from self.batches(task, deletes_per_file.get(task.file.file_path))


def file_format(kind: FileFormat, buffer_bytes: int) -> Any:
    """Returns Arrow's reader of a kind of file, with the columns' ids."""
    return _get_file_format(kind, pre_buffer=True, buffer_size=buffer_bytes)


def values_of_missing(
    file: DataFile, metadata: TableMetadata, columns: Schema, found: Schema
) -> dict[int, Any]:
    """Returns the values of identity partitions, by field id, that a file need not hold."""
    spec = metadata.specs().get(file.spec_id)
    return _get_column_projection_values(file, columns, metadata.schema(), spec, found.field_ids)


def kept_rows(deletes: list[pa.ChunkedArray], first: int, end: int) -> pa.Array:
    """Returns which rows from `first` to `end` no delete names, counted from `first`."""
    return _combine_positional_deletes(deletes, first, end)


# Mends.

_DOUBLE = Struct("<d")
_MOMENTS_AS_TEXT = ("to_human_day", "to_human_hour", "to_human_timestamp", "to_human_timestamptz")


def _read_double(_self: Any, decoder: Any) -> float:
    found: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
    return found


def _without_end(text_of: Callable[[int], str]) -> Callable[[int], str]:
    def text_or_number(ordinal: int) -> str:
        try:
            return text_of(ordinal)
        except OverflowError:
            return str(ordinal)

    return text_or_number


def mend() -> None:
    """Once in a process is enough, more often does no harm.

    * Doubles that manifests hold as partition values are read as floats, and written so when
      manifests are merged: the file then is of a partition that none of its rows is in.
    * A commit says each file's partition as text, for which it asks Python's calendar. That one
      ends with the year 9999, so no commit with a later day ever gets in. Such moments are written
      as numbers.
    """
    for name in _MOMENTS_AS_TEXT:
        setattr(moments, name, _without_end(getattr(moments, name)))
    setattr(reader.DoubleReader, "read", _read_double)  # noqa: B010 - mypy knows better.
