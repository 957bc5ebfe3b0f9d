"""Writes data files of a table anew without some of their rows: the change of files for a commit."""

from collections.abc import Sequence

from pyiceberg.table import FileScanTask, Table

from iceberg_export.files.rewrite import (
    RewriteResult,
    RewriteTask,
    Unwanted,
    delete_files,
    rewrite_files,
)
from iceberg_export.files.target import target_of
from iceberg_export.runs.job import Job
from iceberg_export.table import commit


def without_rows(
    job: Job, table: Table, files: Sequence[FileScanTask], unwanted: Unwanted, name: str
) -> tuple[commit.FileChange, list[RewriteResult]]:
    """Returns the change of files, and what was done for those that changed. Nothing is committed."""
    if not files:
        return commit.FileChange(), []
    target = target_of(table, job.settings.number("file.bytes.max"))
    tasks = [
        RewriteTask(number, target, f"{name}-{number:05d}", (file,), unwanted)
        for number, file in enumerate(files)
    ]
    results = job.runner().run(
        rewrite_files,
        tasks,
        sizes=[file.file.file_size_in_bytes for file in files],
        title=f"{'.'.join(table.name())}: {len(files)} files",
    )
    # A file's bounds may span the rows that go though none of its own is among them: that one stays.
    same = [result for result in results if result.rows_read == result.rows_written]
    delete_files(table, [file for result in same for file in result.files])
    results = [result for result in results if result.rows_read != result.rows_written]
    head = table.current_snapshot()
    change = commit.FileChange(
        added=[file for result in results for file in result.files],
        removed=[files[result.number].file for result in results],
        base_id=head.snapshot_id if head else None,
    )
    return change, results
