"""Small files of a table become large ones, with the same rows.

By default only files that have been in the table for a day: what exports still write to is left alone, so
both go on side by side, and each file is rewritten about once. A budget of bytes goes to where the smallest
files are; the rest is for the next time. Files of one table partition go
together, in the order of their offsets, up to the target size of a file. The commit replaces
files on a head that has seen nothing but appends since they were read (`commit.replace_files`).
Leaves out files of another partition spec than the table's own, and tables with equality deletes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record

from iceberg_export import names
from iceberg_export.errors import PlanError, StateError
from iceberg_export.files.partition_values import hashable
from iceberg_export.files.read import scan_files
from iceberg_export.files.rewrite import (
    RewriteResult,
    RewriteTask,
    deleted_unless_committed,
    rewrite_files,
)
from iceberg_export.files.target import target_of
from iceberg_export.runs.job import Job
from iceberg_export.table import commit
from iceberg_export.table.catalog import Identifier, guarded
from iceberg_export.table.run_marks import RunMark
from iceberg_export.upkeep.maintain import COMPACTION, load

CLOSED_MS = 24 * 3_600_000
FILES_MIN = 2


class Limits(NamedTuple):
    """Which small files are joined."""

    age_ms_min: int = CLOSED_MS
    """How long they have been in the table."""
    bytes_max: int | None = None
    """How many bytes of them are rewritten, about; None: all."""


DAY_OLD = Limits()


class Compacted(NamedTuple):
    table: str
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    left: int = 0
    """Small files beyond the budget."""


class Small(NamedTuple):
    """A file that is worth joining with others."""

    file: FileScanTask
    partition: Record
    byte_count: int
    order: tuple[int, int]
    """(partition, offset) of its first record."""


def groups_of(files: Sequence[Small], bytes_max: int) -> list[list[Small]]:
    """Groups files to be joined, by table partition, in order, each group at most about a file."""
    by_partition: dict[Any, list[Small]] = defaultdict(list)
    for file in files:
        values = tuple(file.partition[place] for place in range(len(file.partition)))
        by_partition[hashable(values)].append(file)
    groups: list[list[Small]] = []
    for same in by_partition.values():
        group: list[Small] = []
        size = 0
        for file in sorted(same, key=lambda one: one.order):
            if group and size + file.byte_count > bytes_max:
                groups.append(group)
                group, size = [], 0
            group.append(file)
            size += file.byte_count
        groups.append(group)
    return [group for group in groups if len(group) >= FILES_MIN]


def within_budget(groups: Sequence[list[Small]], bytes_max: int | None) -> list[list[Small]]:
    """Returns the groups of the smallest files, of so many bytes together, or one alone."""
    if bytes_max is None:
        return list(groups)
    found: list[list[Small]] = []
    for group in sorted(groups, key=lambda one: (_mean_size(one), one[0].order)):
        bytes_max -= sum(file.byte_count for file in group)
        if found and bytes_max < 0:
            break
        found.append(group)
    return found


def _mean_size(group: Sequence[Small]) -> float:
    return sum(file.byte_count for file in group) / len(group)


def _bound(bounds: Mapping[int, bytes] | None, field_id: int) -> int:
    """Of whole numbers, of whichever width: others may have made a column wider since the file was written."""
    found = (bounds or {}).get(field_id)
    return int.from_bytes(found or b"", "little", signed=True)


def _added_ms(table: Table) -> dict[str, int]:
    """Returns when each file came into the table; 0 when that snapshot has expired."""
    times = {one.snapshot_id: one.timestamp_ms for one in table.metadata.snapshots}
    found: dict[str, int] = {}
    head = table.metadata.snapshot_by_name("main")
    for manifest in head.manifests(table.io) if head else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            found[entry.data_file.file_path] = times.get(entry.snapshot_id or 0, 0)
    return found


def small_files(table: Table, bytes_max: int, added_before_ms: int) -> list[Small]:
    """Returns files below half the target size that came before then. Raises CatalogError, StateError."""
    if table.metadata.snapshot_by_name("main") is None:
        return []
    name = ".".join(table.name())
    added = guarded(f"read the manifests of {name}", lambda: _added_ms(table))
    schema = table.metadata.schema()
    if lost := {names.PARTITION, names.OFFSET}.difference(schema.column_names):
        raise StateError(f"table {name} has lost its column {lost.pop()}; it is left as it is")
    partition_id = schema.find_field(names.PARTITION).field_id
    offset_id = schema.find_field(names.OFFSET).field_id
    found = []
    for task in scan_files(table):
        file = task.file
        if file.spec_id != table.metadata.default_spec_id:
            continue
        if added.get(file.file_path, added_before_ms + 1) > added_before_ms:
            continue
        if file.file_size_in_bytes * 2 > bytes_max and not task.delete_files:
            continue
        order = (
            _bound(file.lower_bounds, partition_id),
            _bound(file.lower_bounds, offset_id),
        )
        found.append(Small(task, file.partition, file.file_size_in_bytes, order))
    return found


def compact(job: Job, identifier: Identifier, now_ms: int, limits: Limits = DAY_OLD) -> Compacted:
    """Joins small files. Raises OvertakenError when others changed them meanwhile, ExportError."""
    table = load(job, identifier)
    name = ".".join(identifier)
    target = target_of(table, job.settings.number("file.bytes.max"))
    bytes_max = target.file_bytes_max
    every = groups_of(small_files(table, bytes_max, now_ms - limits.age_ms_min), bytes_max)
    groups = within_budget(every, limits.bytes_max)
    if not groups:
        return Compacted(name)
    run_id = f"{job.run_id}{COMPACTION}"
    tasks = [
        RewriteTask(number, target, f"{run_id}-{number:05d}", tuple(one.file for one in group))
        for number, group in enumerate(groups)
    ]
    with RunMark(table, run_id):
        results = job.runner().run(
            rewrite_files,
            tasks,
            sizes=[sum(one.byte_count for one in group) for group in groups],
            title=f"{name}: {sum(map(len, groups))} small files",
        )
        _check_rows(groups, results, name)
        head = table.metadata.snapshot_by_name("main")
        change = commit.FileChange(
            added=[file for result in results for file in result.files],
            removed=[one.file.file for group in groups for one in group],
            base_id=head.snapshot_id if head else None,
        )
        with deleted_unless_committed(table, change.added):
            commit.replace_files(
                job.catalog, identifier, change, rewrite_id=run_id, pause=job.pause, hook=job.hook
            )
    return Compacted(
        name,
        len(change.removed),
        len(change.added),
        sum(result.rows_written for result in results),
        left=sum(map(len, every)) - len(change.removed),
    )


def _check_rows(groups: list[list[Small]], results: list[RewriteResult], name: str) -> None:
    """Raises PlanError unless every row of every file was read and written."""
    if sorted(result.number for result in results) != list(range(len(groups))):
        raise PlanError(f"{len(groups)} tasks gave {len(results)} results; {name} is as it was")
    for result in results:
        group = groups[result.number]
        rows = sum(one.file.file.record_count for one in group)
        deletes = any(one.file.delete_files for one in group)
        lost = result.rows_read != rows and not (deletes and result.rows_read < rows)
        if lost or result.rows_written != result.rows_read:
            raise PlanError(
                f"{rows} rows were to be rewritten, {result.rows_read} were read and "
                f"{result.rows_written} written; {name} is as it was"
            )
