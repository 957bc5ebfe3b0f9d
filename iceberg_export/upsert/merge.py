"""Merges the records of an export in mode upsert into the table's buckets, and commits.

Buckets are written anew from the files of one snapshot. A commit that finds the table changed by
others since (deletes, compaction: `OvertakenError`) is given up and the buckets are merged again on
what the table is now; the records need not be read again. What is written and not used stays for
`maintain --orphans`: an attempt without an answer may still land.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from iceberg_export.errors import OvertakenError, PlanError, StateError
from iceberg_export.files.partition_values import PartitionColumn
from iceberg_export.files.read import scan_files
from iceberg_export.files.target import target_of
from iceberg_export.table.catalog import Identifier, existing_table, try_delete
from iceberg_export.upsert.buckets import (
    Bucket,
    BucketResult,
    BucketTask,
    ShuffleFile,
    bucket_columns,
    bucket_of,
    in_order,
    merge_bucket,
    row_groups_of,
)

MERGES_MAX = 5


class MergeContext(NamedTuple):
    """What merging needs of an export."""

    catalog: Catalog
    runner: Callable[[], Any]
    """Where tasks run, as `job.Job.runner`."""
    file_bytes_max: int


class Merged(NamedTuple):
    """What a commit is to do to the table."""

    added: list[DataFile]
    removed: list[DataFile]
    base_id: int
    """Snapshot that `removed` was read at."""


CommitFiles = Callable[[list[DataFile], list[DataFile], int], None]
"""Commits (added, removed, base_id); raises OvertakenError when `removed` is out of date."""


def merge_and_commit(
    context: MergeContext,
    identifier: Identifier,
    shuffled: Sequence[ShuffleFile],
    run_id: str,
    send: CommitFiles,
) -> Merged:
    """Merges the records into the table until a commit of it is in. Raises ExportError."""
    for attempt in range(MERGES_MAX):
        table = existing_table(context.catalog, identifier)
        merged = _merge(context, table, shuffled, f"{run_id}-m{attempt}")
        try:
            send(*merged)
        except OvertakenError:
            if attempt == MERGES_MAX - 1:
                raise
            continue
        for file in shuffled:
            try_delete(table.io, file.path)
        return merged
    raise AssertionError("the last attempt returns or raises")


def _merge(
    context: MergeContext, table: Table, shuffled: Sequence[ShuffleFile], name: str
) -> Merged:
    columns = bucket_columns(table.metadata)
    head = table.metadata.snapshot_by_name("main")
    assert head is not None
    groups = row_groups_of(shuffled)
    there = _files_of(table, set(groups), columns)
    target = target_of(table, context.file_bytes_max)
    tasks = [
        BucketTask(bucket, number, target, name, tuple(there[bucket]), tuple(groups[bucket]))
        for number, bucket in enumerate(in_order(groups))
    ]
    if not tasks:
        return Merged([], [], head.snapshot_id)
    results = context.runner().run(
        merge_bucket,
        tasks,
        sizes=[sum(one.file.file_size_in_bytes for one in task.files) for task in tasks],
        title=f"{'.'.join(table.name())}: buckets",
    )
    _check(tasks, results, shuffled)
    changed = {result.bucket for result in results if not result.same}
    return Merged(
        added=[file for result in results for file in result.files],
        removed=[one.file for bucket in in_order(changed) for one in there[bucket]],
        base_id=head.snapshot_id,
    )


def _files_of(
    table: Table, buckets: set[Bucket], columns: Sequence[PartitionColumn]
) -> dict[Bucket, list[FileScanTask]]:
    """Returns the table's files by bucket, with the deletes of others."""
    name = ".".join(table.name())
    found: dict[Bucket, list[FileScanTask]] = {bucket: [] for bucket in buckets}
    for task in scan_files(table):
        if task.file.spec_id != table.metadata.default_spec_id:
            raise StateError(
                f"table {name} has files of another partitioning, which mode upsert cannot merge; "
                "rewrite its data files first"
            )
        bucket = bucket_of(task.file, columns)
        if bucket in found:
            found[bucket].append(task)
    return found


def _check(
    tasks: Sequence[BucketTask], results: Sequence[BucketResult], shuffled: Sequence[ShuffleFile]
) -> None:
    """Raises PlanError unless each bucket got all its records, and all its rows were read."""
    if in_order(result.bucket for result in results) != [task.bucket for task in tasks]:
        raise PlanError(f"{len(tasks)} tasks gave {len(results)} results; nothing was exported")
    sent = sum(rows for file in shuffled for _group, rows in file.groups.values())
    if sum(result.rows_new for result in results) != sent:
        raise PlanError("buckets have got another number of records; nothing was exported")
    by_bucket = {result.bucket: result for result in results}
    for task in tasks:
        result = by_bucket[task.bucket]
        rows = sum(one.file.record_count for one in task.files)
        deletes = any(one.delete_files for one in task.files)
        if result.rows_before > rows or (result.rows_before < rows and not deletes):
            raise PlanError(
                f"bucket {task.bucket}: {result.rows_before} rows were read of {rows}; "
                "nothing was exported"
            )
        written = sum(file.record_count for file in result.files)
        if not result.same and written != result.rows_after:
            raise PlanError(f"bucket {task.bucket}: {written} rows written of {result.rows_after}")
