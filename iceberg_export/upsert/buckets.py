"""Buckets of a table of mode upsert: new records are merged into them, each is written anew.

The table is partitioned by buckets of its keys, or of columns that keys have become, and by nothing else
(not at all: then it is one bucket), so all that is known of a key lies in the files of one bucket. A task that has read chunks leaves its records in one file for the
tasks that follow (several, where it does not all fit into its memory), one row group for each bucket
(`ShuffleWriter`); one task for each bucket
that has new records then reads what the table has of it, adds those, keeps the newest of each key
and writes the bucket's new files (`merge_bucket`). Buckets without new records stay as they are.

Memory: one bucket of the table and its new records, so N is to be chosen by the size of the table.
Nothing is visible until the commit, which takes the old files out and puts the new ones in.
"""

import contextlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, Transform

from iceberg_export import names
from iceberg_export.errors import CorruptSpanError, StateError
from iceberg_export.files.partition_values import PartitionColumn, partition_columns, split_rows
from iceberg_export.files.read import read_rows
from iceberg_export.files.target import Target
from iceberg_export.files.write import FileWriter, aligned, discarded_on_error
from iceberg_export.table.catalog import CATALOG_ERRORS, first_line
from iceberg_export.table.edits import Edits
from iceberg_export.table.settings_kept import MODE
from iceberg_export.upsert.newest_records import (
    KEY_BYTES,
    TOMBSTONE,
    last_in_partition,
    newest_rows,
)

BUCKETS = (
    f"a table of mode upsert is partitioned by buckets of its key, as bucket(16, {names.KEY}), or of columns"
    " of it, or not at all"
)
FOLDER = "shuffle"
"""Beside the table's data: what is forgotten here is an orphan like any other."""
GATHERED_BYTES_MAX = 128 * 1024 * 1024
"""Arrow bytes of records before those that are not the last of their key are let go, and, if more than
half stay, all are written."""


Bucket = tuple[int | None, ...]
"""The table's partition: a number for each field, None where a column of the key is null."""


class ShuffleFile(NamedTuple):
    """The records of one split, ready for the tasks of their buckets."""

    path: str
    groups: dict[Bucket, tuple[int, int]]
    """By bucket: the row group, and its rows."""
    taken: int
    """Records that the file stands for, more than it has."""


class BucketTask(NamedTuple):
    """One bucket to be written anew."""

    bucket: Bucket
    number: int
    """Among those of the export."""
    target: Target
    name: str
    """What names of new files begin with, before the attempt's number."""
    files: tuple[FileScanTask, ...]
    """What the table has of it."""
    groups: tuple[tuple[str, int], ...]
    """Paths and row groups of the new records."""


class BucketResult(NamedTuple):
    bucket: Bucket
    files: list[DataFile]
    rows_before: int
    rows_new: int
    rows_after: int
    same: bool
    """Nothing changes: `files` is empty, the old ones stay."""


def bucket_columns(metadata: TableMetadata) -> tuple[PartitionColumn, ...]:
    """Returns the partition fields, all by key. Raises StateError for a table that cannot be upserted."""
    columns = partition_columns(metadata)
    problem = other_than_buckets((one.path, one.field.transform) for one in columns)
    if not columns and metadata.properties.get(MODE) != "upsert":
        # It may have several rows of a key, and rows of tombstones.
        problem = f"{BUCKETS}; this one has no partitions and was made for mode append"
    if problem:
        raise StateError(f"{problem}; give the topic another table")
    return columns


def other_than_buckets(parts: Iterable[tuple[Sequence[str], Transform[Any, Any]]]) -> str | None:
    """Why a table of mode upsert cannot have these partitions, if it cannot."""
    others = [
        f"{transform} of {'.'.join(path)}"
        for path, transform in parts
        if path[0] != names.KEY or not isinstance(transform, BucketTransform)
    ]
    if not others:
        return None
    return f"{BUCKETS}, and not by {', '.join(others)}"


def check_key(table: str, edits: Edits, added_again: Collection[str]) -> None:
    """Raises StateError when people changed the columns of a key so that equal keys are not found any more."""
    inner = edits.below(names.KEY)
    lost = names.KEY in edits.dropped or names.KEY in edits.renamed or _has_dropped(inner)
    if lost or names.KEY in added_again:
        raise StateError(
            f"columns of {names.KEY} of table {table} were dropped, added again or renamed; by them mode"
            " upsert finds the rows of a key. Give the topic another table"
        )


def _has_dropped(edits: Edits) -> bool:
    return bool(edits.dropped) or any(map(_has_dropped, edits.inner.values()))


def bucket_of(file: DataFile, columns: Sequence[PartitionColumn]) -> Bucket:
    """Returns the bucket that a file of the table belongs to."""
    return tuple(file.partition[place] for place in range(len(columns)))


def in_order(buckets: Iterable[Bucket]) -> list[Bucket]:
    """Returns them sorted, those of null columns first."""
    return sorted(buckets, key=lambda bucket: [-1 if one is None else one for one in bucket])


def with_key_and_tombstone(
    rows: pa.Table, raw: pa.Table, deleted: pa.Array | None = None
) -> pa.Table:
    """Adds to `rows` of the table the keys and tombstones of the same records, `raw`.

    `deleted`: records that are tombstones by what their values say.
    """
    assert rows.num_rows == raw.num_rows
    gone = pc.is_null(raw.column(names.VALUE))
    if deleted is not None:
        gone = pc.or_(gone, deleted)
    keys = pa.types.is_struct(rows.schema.field(names.KEY).type)
    sent = _no_bytes(rows) if keys else raw.column(names.KEY)
    return rows.append_column(KEY_BYTES, sent).append_column(TOMBSTONE, gone)


def _key_bytes(rows: pa.Table) -> pa.ChunkedArray:
    """Returns what producers sent, as far as the table has it."""
    keys = rows.column(names.KEY)
    return _no_bytes(rows) if pa.types.is_struct(keys.type) else keys.cast(pa.large_binary())


def _no_bytes(rows: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(rows.num_rows, pa.large_binary())])


class ShuffleWriter:
    """Takes rows as `FileWriter` does, with `KEY_BYTES` and `TOMBSTONE`; leaves one file, or several
    where keys are many."""

    def __init__(self, target: Target, name: str) -> None:
        self._metadata, self._io = target.open()
        self._columns = bucket_columns(self._metadata)
        self._prefix = f"{self._metadata.location}/{FOLDER}/{name}"
        self._schema = shuffle_schema(self._metadata)
        self._gathered: list[pa.Table] = []
        self._bytes = 0
        self._taken = 0
        self._paths: list[str] = []
        self._files: list[ShuffleFile] = []

    def write(self, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        self._taken += rows.num_rows
        self._gathered.append(aligned(rows, self._schema))
        self._bytes += self._gathered[-1].nbytes
        if self._bytes > GATHERED_BYTES_MAX:
            rows = last_in_partition(pa.concat_tables(self._gathered))
            self._gathered, self._bytes = [rows], rows.nbytes
            if self._bytes > GATHERED_BYTES_MAX // 2:
                self._write(rows)

    def close(self) -> list[ShuffleFile]:
        """Returns the files, if there were rows."""
        if self._gathered:
            self._write(last_in_partition(pa.concat_tables(self._gathered)))
        return self._files

    def _write(self, rows: pa.Table) -> None:
        self._gathered, self._bytes = [], 0
        groups: dict[Bucket, tuple[int, int]] = {}
        number = f"-{len(self._paths)}" if self._paths else ""
        path = f"{self._prefix}{number}.parquet"
        self._paths.append(path)
        with (
            self._io.new_output(path).create() as sink,
            pq.ParquetWriter(
                sink, rows.schema, compression="zstd", compression_level=1, use_dictionary=False,
                write_statistics=False,
            ) as writer,
        ):  # fmt: skip
            for bucket, part in split_rows(self._columns, rows):
                groups[bucket] = (len(groups), part.num_rows)
                writer.write_table(part, row_group_size=part.num_rows)
        self._files.append(ShuffleFile(path, groups, self._taken))
        self._taken = 0

    def discard(self) -> None:
        """Deletes the files, after a failure."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                self._io.delete(path)


def shuffle_schema(metadata: TableMetadata) -> pa.Schema:
    """Returns the schema of shuffle files: the table's columns, the key's bytes and the tombstone."""
    return pa.schema(
        [
            *schema_to_pyarrow(metadata.schema(), include_field_ids=False),
            pa.field(KEY_BYTES, pa.large_binary()),
            pa.field(TOMBSTONE, pa.bool_()),
        ]
    )


def row_groups_of(shuffled: Iterable[ShuffleFile]) -> dict[Bucket, list[tuple[str, int]]]:
    """Returns, by bucket, paths and row groups of its records."""
    groups: dict[Bucket, list[tuple[str, int]]] = {}
    for file in shuffled:
        for bucket, (group, _rows) in file.groups.items():
            groups.setdefault(bucket, []).append((file.path, group))
    return groups


def merge_bucket(task: BucketTask, attempt: int) -> BucketResult:
    """Writes a bucket anew. Raises StateError, CorruptSpanError; then none of its files are left."""
    metadata, io = task.target.open()
    schema = shuffle_schema(metadata)
    writer = FileWriter(task.target, f"{task.name}-{task.number:05d}-{attempt}")
    try:
        with discarded_on_error(writer):
            before = rows_before(task.files, metadata, io, schema)
            fresh = [read_row_group(io, path, group, schema) for path, group in task.groups]
            rows = pa.concat_tables([before, *fresh])
            places = newest_rows(rows)
            same = len(places) == before.num_rows and bool((np.sort(places) == _upto(places)).all())
            if not same:
                writer.write(rows.take(pa.array(places)).drop_columns([KEY_BYTES, TOMBSTONE]))
            files = writer.close()
    except CATALOG_ERRORS as error:
        raise StateError(f"cannot write a bucket anew: {first_line(error)}") from error
    new = rows.num_rows - before.num_rows
    return BucketResult(task.bucket, files, before.num_rows, new, len(places), same)


def _upto(places: Any) -> Any:
    return np.arange(len(places))


def rows_before(
    files: Sequence[FileScanTask], metadata: TableMetadata, io: Any, schema: pa.Schema
) -> pa.Table:
    """Returns the table's rows, deletes of others applied; their keys are what producers sent."""
    found = [schema.empty_table()]
    for rows in read_rows(files, metadata, io) if files else ():
        # None: a table of mode upsert has no rows without a key.
        gone = pc.is_null(rows.column(names.KEY))
        keyed = rows.append_column(KEY_BYTES, _key_bytes(rows)).append_column(TOMBSTONE, gone)
        found.append(aligned(keyed, schema))
    return pa.concat_tables(found)


def read_row_group(io: Any, path: str, group: int, schema: pa.Schema) -> pa.Table:
    try:
        with io.new_input(path).open() as source:
            return aligned(pq.ParquetFile(source).read_row_group(group), schema)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise CorruptSpanError(f"cannot read {path}: {first_line(error)}") from error
