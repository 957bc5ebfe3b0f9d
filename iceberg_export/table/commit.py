"""The commit: a compare-and-set on the table itself, which makes an export exactly-once.

Files, snapshot summary and table properties go into one Iceberg commit whose own requirement is
that `main` still is the snapshot that this exporter loaded. What may happen, and what then:

* refused (somebody committed first): load the table again. Its state is another one: `FencedError`.
  Only changes by others (compaction, deletes): the same files on the new head.
* no answer: load the table again, and search it for the run id. Found in any snapshot: done. So
  nothing is committed twice or lost.
* a table without any snapshot: not every catalog enforces "there is no snapshot yet" (Nessie 0.99
  does not). So `initialise` creates a table together with an empty one, and no records go into
  a table that has none.

A commit that removes files (upsert, compaction, reset) was made from their rows. It goes onto a
newer head only when nothing but appends lies between: a delete in between may have marked rows of
those files, and would be undone.

Files are of the partition spec that they were written by, and PyIceberg enters all files into manifests of the
table's newest one, where their partition values mean something else: readers that filter do not find
their rows. So a commit is refused when others partitioned the table anew meanwhile.

The library's own retry would apply the files blindly to any new head, so `commit_transaction` is
not used: updates and requirements go to the catalog directly, once each time the table is loaded.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertCreate, AssertRefSnapshotId, AssertTableUUID

from iceberg_export.errors import (
    CatalogError,
    CommitUnknownError,
    FencedError,
    OvertakenError,
    StateError,
)
from iceberg_export.steps import Hook, Step, no_hook
from iceberg_export.table import schema, state
from iceberg_export.table.catalog import (
    CATALOG_ERRORS,
    UNFORESEEN_ERRORS,
    Identifier,
    find_table,
    first_line,
    guarded,
    stage_table,
    view_of,
)
from iceberg_export.table.pyiceberg_internals import append_producer, staged_table, updates_of
from iceberg_export.table.state import FOLLOWS_NOTHING, Follows, State
from storage.stores.retry_policy import RetryPolicy

ATTEMPTS_MAX = 10
RETRY = RetryPolicy(first_s=0.2, longest_s=5.0)
"""Another exporter's commit is under way for seconds; nobody waits for this one."""

FORMAT_VERSION_MAX = 2


class RecreatedError(StateError):
    """The topic of this name is not the one that the table was made from."""


class Pause(NamedTuple):
    """Waits between attempts; chance and clock are the caller's."""

    sleep: Callable[[float], None]
    rng: random.Random

    def before(self, attempt: int) -> None:
        """Waits longer each time, never in step with another exporter."""
        self.sleep(RETRY.delay_s(attempt, chance=self.rng.random()))

    def attempts(self, count: int = ATTEMPTS_MAX) -> Iterator[None]:
        """Yields so many times, after a pause from the second time on."""
        for attempt in range(count):
            if attempt > 0:
                self.before(attempt)
            yield


class FileChange(NamedTuple):
    """The data files that a commit adds and removes."""

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    base_id: int | None = None
    """Snapshot of `main` that the rows of `removed` were read at."""
    fence: bool = False
    """Makes the commit no append: a replacement of files that began before is refused then."""


class _NotMadeError(CatalogError):
    """PyIceberg cannot make a commit for the table as it is, and none was sent."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"PyIceberg cannot make a commit for the table as it is ({what}); look at its properties, and what "
            "other engines have changed"
        )


class _StateKeys(NamedTuple):
    """The export's state as table properties and as snapshot summary."""

    properties: Mapping[str, str]
    summary: Mapping[str, str]


def _send(
    table: Table, change: FileChange, keys: _StateKeys, hook: Hook, steps: tuple[Step, Step]
) -> None:
    """Sends a commit once. Returns when it is in; CommitFailedException: it is not and never will be.

    Raises CatalogError when PyIceberg cannot make one for the table as it is; then nothing was sent."""
    head = table.metadata.snapshot_by_name("main")
    transaction = table.transaction()
    if keys.properties:
        transaction.set_properties(dict(keys.properties))
    producer: Any
    if change.removed or change.fence:
        producer = transaction.update_snapshot(dict(keys.summary)).overwrite()
    else:
        producer = append_producer(transaction, keys.summary)
    try:
        with producer:
            for file in change.added:
                producer.append_data_file(file)
            for file in change.removed:
                producer.delete_data_file(file)
    except UNFORESEEN_ERRORS as error:
        raise _NotMadeError(first_line(error)) from error
    hook(steps[0])
    try:
        table.catalog.commit_table(
            table,
            (
                AssertTableUUID(uuid=table.metadata.table_uuid),
                AssertRefSnapshotId.model_validate(
                    {"ref": "main", "snapshot-id": head.snapshot_id if head else None}
                ),
            ),
            updates_of(transaction),
        )
    except ValueError as error:
        # What the updates do to newer metadata than they were made for, PyIceberg's catalogs find
        # out before they write, and others by their answer's form: the table is loaded again.
        raise CommitStateUnknownException(first_line(error)) from error
    hook(steps[1])


class _PendingCommit(NamedTuple):
    """A commit that is to be made: how to see that it is in, and whether it still may be."""

    change: FileChange
    is_committed: Callable[[state.TableView], bool]
    check: Callable[[state.TableView, bool], None]
    """(view, whether an attempt's outcome is unknown); raises ExportError when it may not."""
    keys: Callable[[Table], _StateKeys]
    check_is_final: bool = False
    """An error of `check` proves that an attempt without an answer is not in."""


def _commit_until_known(
    catalog: Catalog, identifier: Identifier, pending: _PendingCommit, pause: Pause, hook: Hook
) -> None:
    """Loads the table, checks, sends, until the commit is in or never can be."""
    name = ".".join(identifier)
    unknown = False
    reason: Exception | None = None
    for _ in pause.attempts():
        try:
            table = _load_table(catalog, identifier)
            view = view_of(table)
            if pending.is_committed(view):
                return
            pending.check(view, unknown)
            _check_writable(table, pending.change, unknown=unknown)
            _check_base_snapshot(table, pending.change)
            hook(Step.COMMIT_LOADED)
            steps = (Step.COMMIT_WRITTEN, Step.COMMIT_ANSWERED)
            _send(table, pending.change, pending.keys(table), hook, steps)
        except CommitFailedException as error:
            reason = error
        except NoSuchTableError as error:
            raise CatalogError(f"table {name} was dropped while it was exported to") from error
        except CATALOG_ERRORS as error:
            unknown, reason = True, error
        except _NotMadeError as error:
            if not unknown:
                raise
            reason = error
            break
        except OvertakenError as error:
            # It may be in, under what others did since: Nessie shows the newest snapshot alone.
            if not unknown or pending.check_is_final:
                raise
            reason = error
            break
        else:
            return
    what = first_line(reason) if reason else "no reason given"
    if unknown:
        raise CommitUnknownError(
            f"the catalog did not say whether the commit to {name} took place ({what}); "
            "run again, nothing is lost or doubled"
        ) from reason
    raise CatalogError(
        f"table {name} changed {ATTEMPTS_MAX} times under the commit ({what}); run again"
    ) from reason


def _load_table(catalog: Catalog, identifier: Identifier) -> Table:
    try:
        return catalog.load_table(identifier)
    except ValueError as error:
        # An answer of another form, as of a gateway: the outcome is unknown.
        raise CommitStateUnknownException(first_line(error)) from error


def _check_writable(table: Table, change: FileChange, *, unknown: bool) -> None:
    """Raises StateError unless the table has a format that PyIceberg writes, OvertakenError unless the new
    files are of its newest partition spec.

    Neither change moves the head, so an attempt without an answer may still land: then
    CommitUnknownError, since the files must stay.
    """
    try:
        check_format(table)
        _check_partition_spec(table, change)
    except (StateError, OvertakenError) as error:
        if not unknown:
            raise
        raise CommitUnknownError(
            f"the catalog did not say whether the commit to {'.'.join(table.name())} took place, and others "
            f"changed the table meanwhile ({error}); nothing is lost or doubled"
        ) from error


def check_format(table: Table) -> None:
    """Raises StateError for a format that PyIceberg reads and does not write: others have upgraded the table."""
    version = table.metadata.format_version
    if version > FORMAT_VERSION_MAX:
        raise StateError(
            f"table {'.'.join(table.name())} was upgraded to format version {version}, and the exporter writes "
            f"{FORMAT_VERSION_MAX}; give the topic another table (frazil.iceberg.table)"
        )


def _check_partition_spec(table: Table, change: FileChange) -> None:
    spec_id = table.metadata.default_spec_id
    if any(file.spec_id != spec_id for file in change.added):
        raise OvertakenError(
            f"table {'.'.join(table.name())} was partitioned anew by others while files were written for it; "
            "nothing of them is in, run again"
        )


def _check_base_snapshot(table: Table, change: FileChange) -> None:
    """Raises OvertakenError unless the rows of the files that go count as they were read."""
    if not change.removed:
        return
    at = table.metadata.snapshot_by_name("main")
    while at is not None and at.snapshot_id != change.base_id:
        if at.summary is None or at.summary.operation != Operation.APPEND:
            break
        parent = at.parent_snapshot_id
        at = table.metadata.snapshot_by_id(parent) if parent is not None else None
    if at is None or at.snapshot_id != change.base_id:
        raise OvertakenError(
            f"table {'.'.join(table.name())} was changed by others while its files were rewritten; "
            "nothing was replaced, run again"
        )


def commit(
    catalog: Catalog,
    identifier: Identifier,
    files: Sequence[DataFile],
    *,
    expected: State,
    new: State,
    pause: Pause,
    removed: Sequence[DataFile] = (),
    base_id: int | None = None,
    notes: Mapping[str, str] | None = None,
    hook: Hook = no_hook,
) -> None:
    """Commits `files`, and the state `new` in the place of `expected`; on return it is in.

    `removed` are files of snapshot `base_id` that go in the same commit, `notes` more entries of
    its summary. Raises FencedError (another exporter was faster), OvertakenError (`removed`, or the
    partition spec of `files`, is out of date: read and work out again), CommitUnknownError (the catalog never said),
    CatalogError, StateError. Repeating it with the same `new` is harmless.
    """
    assert new.seq == expected.seq + 1
    assert new.topic_id == expected.topic_id

    def keys(table: Table) -> _StateKeys:
        number = table.metadata.next_sequence_number()
        properties, summary = state.encode_keys(
            new, sequence_number=number, previous=expected.offsets
        )
        return _StateKeys(properties, {**(notes or {}), **summary})

    pending = _PendingCommit(
        FileChange(files, removed, base_id),
        is_committed=lambda view: state.has_run(view, new.run_id),
        check=lambda view, unknown: _check_state(view, expected, unknown=unknown),
        keys=keys,
        check_is_final=True,
    )
    _commit_until_known(catalog, identifier, pending, pause, hook)


def replace_files(
    catalog: Catalog,
    identifier: Identifier,
    change: FileChange,
    *,
    rewrite_id: str,
    pause: Pause,
    notes: Mapping[str, str] | None = None,
    hook: Hook = no_hook,
) -> None:
    """Replaces files by others with the same rows, or without some; the export's state stays as the head
    has it. `notes` are more entries of the summary.

    The summary repeats that state, so that catalogs that show the newest snapshot alone still
    tell it. Raises as `commit` does, but for FencedError: exports that append may go on.
    """

    def keys(table: Table) -> _StateKeys:
        carried = state.keys_at_head(view_of(table))
        return _StateKeys({}, {**(notes or {}), **carried, state.REWRITE_ID: rewrite_id})

    pending = _PendingCommit(
        change,
        is_committed=lambda view: state.has_rewrite(view, rewrite_id),
        check=lambda _view, _unknown: None,
        keys=keys,
    )
    _commit_until_known(catalog, identifier, pending, pause, hook)


def set_state(
    catalog: Catalog,
    identifier: Identifier,
    change: FileChange,
    *,
    seen: state.TableView,
    new: State,
    pause: Pause,
    hook: Hook = no_hook,
) -> None:
    """Sets the state to `new`, whatever it was in `seen`, which may be unreadable: for an operator's
    reset. The head must be that of `seen`. Raises OvertakenError when it is not."""

    def check(view: state.TableView, _unknown: object) -> None:
        if view.head_id != seen.head_id:
            raise OvertakenError(
                f"table {view.name} was changed by others meanwhile; nothing was moved, run again"
            )

    def keys(table: Table) -> _StateKeys:
        number = table.metadata.next_sequence_number()
        return _StateKeys(*state.encode_keys(new, sequence_number=number, previous={}))

    pending = _PendingCommit(change, lambda view: state.has_run(view, new.run_id), check, keys)
    _commit_until_known(catalog, identifier, pending, pause, hook)


def fence(
    catalog: Catalog, identifier: Identifier, *, run_id: str, pause: Pause, hook: Hook = no_hook
) -> State:
    """Increments the state's number and nothing else: a commit that began before is refused then.

    Raises as `set_state` does, and StateError when the state cannot be read.
    """
    name = ".".join(identifier)
    view = view_of(guarded(f"load table {name}", lambda: catalog.load_table(identifier)))
    found = state.read_state(view)
    if found is None:
        raise StateError(f"table {view.name} has no export state yet")
    new = found._replace(seq=found.seq + 1, run_id=run_id)
    set_state(
        catalog, identifier, FileChange(fence=True), seen=view, new=new, pause=pause, hook=hook
    )
    return new


def _check_state(view: state.TableView, expected: State, *, unknown: bool) -> None:
    found = state.read_state(view)
    if found is None or found.topic_id != expected.topic_id:
        raise StateError(f"table {view.name} was replaced while it was exported to")
    if found._replace(last_records={}) == expected._replace(last_records={}):
        return
    # The next number was taken by another run on the state that we began from. When every attempt
    # was refused, ours never was in, and cannot come any more. One without an answer might still
    # be under way, and land when a rollback brings back the head that it demands.
    raise FencedError(
        f"another exporter moved table {view.name} on while this one was at work, or a rollback "
        "moved it back; this run's records are not in, what is missing comes with the next run",
        files_unused=found.seq == expected.seq + 1 and not unknown,
    )


def initialise(
    catalog: Catalog,
    identifier: Identifier,
    *,
    topic: str,
    topic_id: str,
    cluster_id: str,
    partition_spec: PartitionSpec,
    run_id: str,
    pause: Pause,
    table_schema: Schema = schema.TABLE_SCHEMA,
    more: Mapping[str, str] = MappingProxyType({}),
    follows: Follows = FOLLOWS_NOTHING,
    hook: Hook = no_hook,
) -> State:
    """Makes the table and its first, empty snapshot where either is missing; returns its state.

    `more`: properties of a table that is made now. Idempotent, also after a crash in the middle and against another exporter at the same time.
    """
    empty = State(topic_id=topic_id, offsets={}, seq=0, run_id=run_id, follows=follows)
    name = ".".join(identifier)
    reason: Exception | None = None
    properties = {
        **schema.table_properties(table_schema),
        state.TOPIC: topic,
        state.TOPIC_ID: topic_id,
        state.CLUSTER_ID: cluster_id,
        **more,
    }
    for _ in pause.attempts():
        table = find_table(catalog, identifier)
        if table is not None:
            check_owner(table, topic=topic, topic_id=topic_id, cluster_id=cluster_id)
            check_format(table)
            found = state.read_state(view_of(table))
            if found is not None:
                return found
        hook(Step.INIT_LOADED)
        number = table.metadata.next_sequence_number() if table is not None else 1
        keys = _StateKeys(*state.encode_keys(empty, sequence_number=number, previous={}))
        try:
            if table is None:
                new = _NewTable(table_schema, partition_spec, properties)
                _create(catalog, identifier, new, keys, hook)
            else:
                _send(table, FileChange(), keys, hook, _INIT_STEPS)
        except _RETRIABLE_ERRORS as error:
            reason = error
    raise CatalogError(
        f"cannot write the first snapshot of table {name}: "
        f"{first_line(reason) if reason else 'no reason given'}"
    ) from reason


_INIT_STEPS = (Step.INIT_WRITTEN, Step.INIT_ANSWERED)
_RETRIABLE_ERRORS: tuple[type[Exception], ...] = (
    CommitFailedException,
    TableAlreadyExistsError,
    *CATALOG_ERRORS,
)


class _NewTable(NamedTuple):
    schema: Schema
    partition_spec: PartitionSpec
    properties: Mapping[str, str]


def _create(
    catalog: Catalog, identifier: Identifier, new: _NewTable, keys: _StateKeys, hook: Hook
) -> None:
    """Creates the table with its first snapshot in one commit, which demands that there is no such
    table: that even Nessie enforces. Raises as `_send`, and TableAlreadyExistsError."""
    # Nessie takes properties once in a commit.
    properties = {**new.properties, **keys.properties}
    made = stage_table(
        catalog,
        identifier,
        schema=new.schema,
        partition_spec=new.partition_spec,
        properties=properties,
    )
    with append_producer(made, keys.summary):
        pass
    hook(Step.INIT_WRITTEN)
    try:
        table = staged_table(made)
        table.catalog.commit_table(table, (AssertCreate(),), updates_of(made))
    except ValueError as error:
        raise CommitStateUnknownException(first_line(error)) from error
    hook(Step.INIT_ANSWERED)


def check_owner(table: Table, *, topic: str, topic_id: str, cluster_id: str) -> None:
    """Raises StateError unless this is the table of that topic (RecreatedError for another id).

    The cluster counts as well: topic ids are unique within a cluster only.
    """
    properties: dict[str, Any] = table.metadata.properties
    name = ".".join(table.name())
    if state.TOPIC_ID not in properties:
        raise StateError(
            f"table {name} exists and was not made by the exporter; "
            f"set table.name.{topic} to another name"
        )
    owner = properties.get(state.TOPIC, "")
    made_from = properties.get(state.CLUSTER_ID, "")
    if made_from != cluster_id:
        raise StateError(
            f"table {name} was made from cluster {made_from}, the agent belongs to {cluster_id}; "
            f"set table.name.{topic} or table.namespace to another name"
        )
    if properties[state.TOPIC_ID] == topic_id:
        return
    if owner != topic:
        raise StateError(
            f"table {name} belongs to topic {owner}; set table.name.{topic} to another name"
        )
    raise RecreatedError(
        f"topic {topic} was deleted and created again since table {name} was made; set "
        "topic.recreated=new-table to export it into a table of its own, or drop the old one"
    )
