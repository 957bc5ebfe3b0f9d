"""Rows to Parquet files in the table's location, one at a time per table partition.

Streaming: rows gather to a row group, row groups to a file, which is closed at its target size.
Files of at most `OPEN_FILES_MAX` table partitions are open at once, so values all over the place
cost many files, never much memory. A file name carries run, split and attempt:
attempts of a task never share one, and what a loser wrote is an orphan nobody refers to.

The result is PyIceberg's own description of each file. Nothing is visible until the commit.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from iceberg_export import names
from iceberg_export.files.metrics import file_metrics
from iceberg_export.files.partition_values import hashable, partition_columns, split_rows
from iceberg_export.files.sort_rows import sort_columns, sort_rows
from iceberg_export.files.target import Target
from iceberg_export.table.pyiceberg_internals import mend

mend()
OPEN_FILES_MAX = 128
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Arrow bytes gathered before they are written, fewer for smaller files; two row groups are in memory at most,
three where the table has a sort order."""
GATHERED_BYTES_MAX = 4 * ROW_GROUP_BYTES
"""Over all open files."""
_DICTIONARY = [names.PARTITION, names.TIMESTAMP_TYPE]
_NO_STATISTICS = (names.VALUE, names.HEADERS)
FOLDER_CHARS_MAX = 200
"""Of what says a partition in a path, in ASCII. File systems take 255 for a folder's name."""


class _Folder(NamedTuple):
    """Where the files of a partition lie; a stand-in for PyIceberg's PartitionKey, which knows no
    two fields of one column."""

    path: str

    def to_path(self) -> str:
        return self.path


@dataclass(slots=True)
class _OpenFile:
    path: str
    sink: Any
    writer: Any
    partition: Record
    gathered: list[pa.Table]
    gathered_bytes: int = 0
    """Kept as a sum: asking Arrow for all pieces again with each new one cost a fifth of all."""


class Discardable(Protocol):
    """A writer of new files, which no snapshot names yet."""

    def discard(self) -> None: ...


@contextlib.contextmanager
def discarded_on_error(*writers: Discardable) -> Iterator[None]:
    """Discards what the writers have written when the `with` block fails."""
    with contextlib.ExitStack() as failed:
        for writer in writers:
            failed.callback(writer.discard)
        yield
        failed.pop_all()  # Nothing failed, so nothing is discarded.


class FileWriter:
    """Writes the rows of one attempt of one split."""

    def __init__(self, target: Target, name: str) -> None:
        self._metadata, self._io = target.open()
        self._locations = load_location_provider(self._metadata.location, self._metadata.properties)
        self._bytes_max = target.file_bytes_max
        # Else a small target could not be met: a file ends after a row group.
        self._group_bytes = min(ROW_GROUP_BYTES, target.file_bytes_max)
        self._name = name
        self._schema = self._metadata.schema()
        self._arrow_schema = schema_to_pyarrow(self._schema, include_field_ids=True)
        self._columns = partition_columns(self._metadata)
        self._sorted_by = sort_columns(self._metadata)
        self._open: dict[Any, _OpenFile] = {}
        self._count = 0
        self._files: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Takes rows with columns of the table, by name; within a file they keep their order, unless the table
        has one: then each row group has that."""
        if rows.num_rows == 0:
            return
        for values, part in split_rows(self._columns, rows):
            value = hashable(values)
            for some in _slices(part, self._group_bytes):
                self._gather(value, Record(*values), some)
        while len(self._open) > OPEN_FILES_MAX or self._gathered_bytes() > GATHERED_BYTES_MAX:
            self._finish(next(iter(self._open)))

    def _gather(self, value: Any, partition: Record, rows: pa.Table) -> None:
        file = self._open.pop(value, None) or self._start(partition)
        self._open[value] = file  # At the end: the first is the one longest unused.
        file.gathered.append(rows)
        file.gathered_bytes += rows.nbytes
        if file.gathered_bytes >= self._group_bytes:
            self._flush(file)
            if file.sink.tell() >= self._bytes_max:
                self._finish(value)

    def close(self) -> list[DataFile]:
        """Finishes all files and returns them, for the commit."""
        for value in list(self._open):
            self._finish(value)
        return self._files

    def discard(self) -> None:
        """Closes what is open and deletes everything that was written, after a failure.

        What cannot be deleted stays as an orphan, which nobody refers to: the failure that led
        here is the one to be shown.
        """
        paths = [file.file_path for file in self._files]
        for file in self._open.values():
            paths.append(file.path)
            with contextlib.suppress(OSError):
                file.writer.close()
                file.sink.close()
        self._open.clear()
        for path in paths:
            with contextlib.suppress(OSError):
                self._io.delete(path)

    def _gathered_bytes(self) -> int:
        return sum(file.gathered_bytes for file in self._open.values())

    def _folder(self, partition: Record) -> _Folder | None:
        """Returns the partition's folder; None where its name would be too long, or there is no partition."""
        if not self._columns:
            return None
        path = self._metadata.spec().partition_to_path(partition, self._schema)
        return _Folder(path) if len(path) <= FOLDER_CHARS_MAX else None

    def _start(self, partition: Record) -> _OpenFile:
        folder: Any = self._folder(partition)
        path = self._locations.new_data_location(f"{self._name}-{self._count:05d}.parquet", folder)
        self._count += 1
        sink = self._io.new_output(path).create()
        columns = [
            leaf
            for field in self._arrow_schema
            if field.name not in _NO_STATISTICS or _is_typed(field)
            for leaf in _leaves(field.name, field.type)
        ]
        writer = pq.ParquetWriter(
            sink,
            self._arrow_schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=_DICTIONARY,
            write_statistics=columns,
            write_page_index=True,
            store_schema=False,
        )
        return _OpenFile(path, sink, writer, partition, [])

    def _flush(self, file: _OpenFile) -> None:
        if not file.gathered:
            return
        # PyIceberg's reader says text for what files have, large text for what they lack.
        rows = pa.concat_tables(file.gathered, promote_options="permissive")
        file.gathered.clear()
        file.gathered_bytes = 0
        table = sort_rows(aligned(rows, self._arrow_schema), self._sorted_by)
        file.writer.write_table(table, row_group_size=table.num_rows)

    def _finish(self, value: Any) -> None:
        file = self._open[value]
        self._flush(file)
        file.writer.close()
        size = file.sink.tell()
        file.sink.close()
        del self._open[value]
        self._files.append(
            _data_file(self._metadata, file.path, size, file.writer.writer.metadata, file.partition)
        )


def _slices(rows: pa.Table, bytes_max: int) -> Iterator[pa.Table]:
    """Yields the rows, about so many bytes together."""
    count = -(-rows.nbytes // bytes_max)
    step = max(1, -(-rows.num_rows // max(1, count)))
    for at in range(0, rows.num_rows, step):
        yield rows.slice(at, step)


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the columns of `schema`, by name; those that the rows lack are null."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _is_typed(field: pa.Field) -> bool:
    """Tells whether the field is a decoded value."""
    return field.name == names.VALUE and not pa.types.is_large_binary(field.type)


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yields Parquet's names for the columns of a field."""
    if pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            yield from _leaves(f"{path}.{kind.field(place).name}", kind.field(place).type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_large_list(kind) or pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _data_file(
    metadata: TableMetadata, path: str, size: int, footer: Any, partition: Record
) -> DataFile:
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **file_metrics(metadata, footer),
    )
    # It is no part of an entry, so `from_args` would drop it.
    found.spec_id = metadata.default_spec_id
    return found


def describe_file(table: Table, path: str) -> DataFile:
    """Returns the entry of a file that a `FileWriter` wrote for this table, which has no partitions."""
    assert not table.metadata.spec().fields
    given = table.io.new_input(path)
    with given.open() as source:
        footer = pq.read_metadata(source)
    return _data_file(table.metadata, path, len(given), footer, Record())
