"""Upkeep of a table: old snapshots expire, files that nobody refers to go.

Never touches what a live run wrote. A file counts as an orphan when no snapshot that is kept names
it, it is older than the caller says (by the store's clock) and its run has no young mark
(`run_marks`). That alone would not hold off a run that slept for days and then commits: so before
files go an empty commit moves the table's state on, and such a run is fenced. With a run alive
nothing is moved, since it would be fenced, too: then only files go that are older than the state's
last move by more than clocks differ, and the others stay for another time. So do files that join
small ones: no move of the state refuses their commit, it goes onto any number of appends.

A catalog with branches of its own (Nessie) names files that its tables do not tell of. There no
orphan can be known, and none is deleted: that catalog's own garbage collection does it.

Only files whose names end as data and metadata of Iceberg do are ever deleted. Leaves out small
files (`compact`).
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.errors import CatalogError
from iceberg_export.runs.job import Job
from iceberg_export.steps import Hook, no_hook
from iceberg_export.table import commit, state
from iceberg_export.table.catalog import (
    Identifier,
    find_table,
    guarded,
    keeps_branches,
    try_delete,
    view_of,
)
from iceberg_export.table.commit import ATTEMPTS_MAX
from iceberg_export.table.run_marks import (
    ALIVE_MS,
    ListedFile,
    RunMark,
    list_files,
    live_runs,
    marks_before,
)

SNAPSHOTS_KEPT_MIN = 100
KEPT_MS_MIN = 24 * 3_600_000
CLOCKS_APART_MS = 3_600_000
"""Between the store's clock and that of whoever made a snapshot."""
COMPACTION = "-compact"
"""Of the names of runs that join files, and so of those files."""
ORPHANS_UNKNOWN = (
    "no orphans are deleted: Nessie's branches, tags and history may name files that the table "
    "does not; its own nessie-gc deletes what none of them names"
)
_ORPHAN_ENDINGS = (".parquet", ".avro", ".metadata.json", ".puffin", ".orc", ".stats")


class MaintenanceReport(NamedTuple):
    """What maintenance did to one table."""

    table: str
    snapshots_expired: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0
    orphans_left: int = 0
    """That a live run keeps from being proven unused."""


def load(job: Job, identifier: Identifier) -> Table:
    """Loads the table. Raises CatalogError when there is none."""
    table = find_table(job.catalog, identifier)
    if table is None:
        raise CatalogError(f"there is no table {'.'.join(identifier)}")
    return table


def expirable(
    snapshots: Iterable[Snapshot], refs: set[int], keep: set[int], now_ms: int
) -> list[int]:
    """Returns ids of snapshots that may expire: neither among the newest, nor young, nor named."""
    newest_first = sorted(snapshots, key=lambda one: -(one.sequence_number or 0))
    return [
        one.snapshot_id
        for one in newest_first[SNAPSHOTS_KEPT_MIN:]
        if now_ms - one.timestamp_ms > KEPT_MS_MIN and one.snapshot_id not in refs | keep
    ]


def expire(job: Job, identifier: Identifier, now_ms: int) -> MaintenanceReport:
    """Expires old snapshots; their files become orphans. Raises CatalogError, StateError."""
    name = ".".join(identifier)
    for _ in job.pause.attempts():
        table = load(job, identifier)
        metadata = table.metadata
        refs = {ref.snapshot_id for ref in metadata.refs.values()}
        gone = expirable(metadata.snapshots, refs, _state_snapshot(table), now_ms)
        if not gone:
            return MaintenanceReport(name)
        # All branches and tags are asserted: none may have been set to what goes.
        requirements: tuple[Any, ...] = (
            AssertTableUUID(uuid=metadata.table_uuid),
            *(
                AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": found.snapshot_id})
                for ref, found in metadata.refs.items()
            ),
        )
        update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone})
        send = partial(job.catalog.commit_table, table, requirements, (update,))
        try:
            guarded(f"expire snapshots of {name}", send)
        except CommitFailedException:
            continue
        return MaintenanceReport(name, snapshots_expired=len(gone))
    raise CatalogError(f"table {name} changed {ATTEMPTS_MAX} times meanwhile; run again")


def _state_snapshot(table: Table) -> set[int]:
    """Returns the snapshot that carries the state of the head: it must stay."""
    at = table.metadata.snapshot_by_name("main")
    while at is not None:
        if at.summary is not None and state.OFFSETS in at.summary.additional_properties:
            return {at.snapshot_id}
        parent = at.parent_snapshot_id
        at = table.metadata.snapshot_by_id(parent) if parent is not None else None
    return set()


def _path(location: str) -> str:
    """One spelling: engines write file:/x, file:///x, s3:// and s3a:// for the same file."""
    return PyArrowFileIO.parse_location(location)[2]


def reachable(table: Table) -> set[str]:
    """Returns paths of all files that any snapshot, or the table's own history, names."""
    metadata = table.metadata
    found = {_path(table.metadata_location)}
    found |= {_path(entry.metadata_file) for entry in metadata.metadata_log}
    found |= {_path(one.statistics_path) for one in metadata.statistics}
    found |= {_path(one.statistics_path) for one in metadata.partition_statistics}
    read: set[str] = set()
    for snapshot in metadata.snapshots:
        found.add(_path(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in read:
                continue
            read.add(manifest.manifest_path)
            found.add(_path(manifest.manifest_path))
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found |= {_path(entry.data_file.file_path) for entry in entries}
    return found


def _state_set_ms(table: Table) -> int:
    """Returns when the export's state was last set, by its writer's clock; 0: nobody knows."""
    carriers = _state_snapshot(table)
    found = [one.timestamp_ms for one in table.metadata.snapshots if one.snapshot_id in carriers]
    return found[0] if found else 0


def delete_orphans(
    job: Job, identifier: Identifier, older_than_ms: int, hook: Hook = no_hook
) -> MaintenanceReport:
    """Deletes files that nobody refers to. Raises CatalogError, StateError."""
    if keeps_branches(job.catalog):
        raise CatalogError(ORPHANS_UNKNOWN)
    name = ".".join(identifier)
    table = load(job, identifier)
    with RunMark(table, f"{job.run_id}-maintain") as marker:
        # The list comes first: what is committed after it is not on it.
        files = list_files(table)
        now_ms = _mark_time_ms(marker, files)
        live = live_runs(files, table, now_ms) - {f"{job.run_id}-maintain"}
        owner = _main_table(job, identifier)
        if owner is not None:
            live |= live_runs(list_files(owner), owner, now_ms)
        old = [file for file in files if _may_be_orphan(file, live, now_ms - older_than_ms)]
        table = load(job, identifier)
        pending = _pending(owner) if owner is not None else set()
        orphans = [one for one in _unnamed(table, old) if _path(one.location) not in pending]
        sure = orphans
        if live:
            moved_ms = _state_set_ms(table)
            before_ms = moved_ms - CLOCKS_APART_MS
            sure = [
                one
                for one in orphans
                if one.modified_ms < before_ms and not _is_compacted_file(one)
            ]
        elif orphans:
            for one in (owner, table):
                if one is not None:
                    _fence(job, one, hook)
            sure = _unnamed(load(job, identifier), orphans)
        deleted = [file for file in sure if try_delete(table.io, file.location)]
        # Marks say nothing any more when they are old; who sleeps writes its own again.
        for mark in marks_before(files, table, now_ms - max(older_than_ms, ALIVE_MS)):
            try_delete(table.io, mark.location)
    return MaintenanceReport(
        name,
        files_deleted=len(deleted),
        bytes_deleted=sum(file.byte_count for file in deleted),
        orphans_left=len(orphans) - len(sure),
    )


def _mark_time_ms(marker: RunMark, files: list[ListedFile]) -> int:
    """Returns the time by the store's clock: that of a mark which was just written."""
    own = [file for file in files if _path(file.location) == _path(marker.location)]
    if not own:
        raise CatalogError(f"the mark {marker.location} is not listed; is the store consistent?")
    return own[0].modified_ms


def store_now_ms(job: Job, identifier: Identifier) -> int:
    """Returns the time by the store's clock. Raises CatalogError."""
    table = load(job, identifier)
    with RunMark(table, f"{job.run_id}-time") as marker:
        return _mark_time_ms(marker, list_files(table))


def _may_be_orphan(file: ListedFile, live: set[str], before_ms: int) -> bool:
    name = file.location.rsplit("/", 1)[-1]
    if file.modified_ms >= before_ms or not name.endswith(_ORPHAN_ENDINGS):
        return False
    return not any(name.startswith(f"{run_id}-") for run_id in live)


def _is_compacted_file(file: ListedFile) -> bool:
    return f"{COMPACTION}-" in file.location.rsplit("/", 1)[-1]


def _main_table(job: Job, identifier: Identifier) -> Table | None:
    """Returns the main table of a dead-letter table; None of other tables."""
    name = identifier[1].removesuffix(dead_letter_table.SUFFIX)
    return find_table(job.catalog, (identifier[0], name)) if name != identifier[1] else None


def _pending(owner: Table) -> set[str]:
    """Returns paths of dead letters that commits of the main table name: a crash may have left them
    uncommitted, and a rollback of either table may make them wanted again."""
    named = [
        dead_letter_table.decode_pending(one.dead_letters)
        for one in state.ancestor_states(view_of(owner))
    ]
    return {_path(path) for pending in named if pending for path in pending.paths}


def _fence(job: Job, table: Table, hook: Hook) -> None:
    namespace, name = table.name()[-2:]
    run_id = f"{job.run_id}-fence"
    commit.fence(job.catalog, (namespace, name), run_id=run_id, pause=job.pause, hook=hook)


def _unnamed(table: Table, files: list[ListedFile]) -> list[ListedFile]:
    if not files:
        return []
    name = ".".join(table.name())
    named = guarded(f"read what {name} refers to", lambda: reachable(table))
    return [file for file in files if _path(file.location) not in named]
