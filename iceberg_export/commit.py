"""The commit: a compare-and-set on the table itself, which makes an export exactly-once.

Files, snapshot summary and table properties go into one Iceberg commit whose own requirement is
that `main` still is the snapshot this exporter looked at. What may happen, and what then:

* refused (someone committed first): look again. State moved on: `FencedError`. Only foreign
  changes (compaction, deletes): the same files on the new head.
* no answer: look again, by run id. Found in any snapshot: done. Never twice, never lost.
* a table without any snapshot: `initialise` first commits an empty one, since not every catalog
  enforces "there is no snapshot yet" (Nessie 0.99 does not).

The library's own retry would apply the files blindly to any new head, so `commit_transaction` is
not used: updates and requirements go to the catalog directly, once per look.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

from iceberg_export import schema, state
from iceberg_export.catalog import (
    CATALOG_ERRORS,
    Identifier,
    create_table,
    find_table,
    first_line,
    view_of,
)
from iceberg_export.errors import CatalogError, CommitUnknownError, FencedError, StateError
from iceberg_export.state import State

ATTEMPTS_MAX = 10
BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 5.0


class RecreatedError(StateError):
    """The topic of this name is not the one that the table was made from."""


class Pause(NamedTuple):
    """How to wait between attempts; chance and clock are the caller's."""

    sleep: Callable[[float], None]
    rng: random.Random

    def before(self, attempt: int) -> None:
        """Wait longer each time, never in step with another exporter."""
        longest = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2.0**attempt)
        self.sleep(longest * (0.5 + self.rng.random() / 2))


def _send(table: Table, files: Sequence[DataFile], new: State, previous: dict[int, int]) -> None:
    """One attempt. Returns when it is in; CommitFailedException: it is not and never will be."""
    head = table.metadata.snapshot_by_name("main")
    properties, summary = state.encode_keys(
        new, sequence_number=table.metadata.next_sequence_number(), previous=previous
    )
    transaction = table.transaction()
    transaction.set_properties(properties)
    with transaction._append_snapshot_producer(summary) as append:  # noqa: SLF001
        for file in files:
            append.append_data_file(file)
    table.catalog.commit_table(
        table,
        (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertRefSnapshotId.model_validate(
                {"ref": "main", "snapshot-id": head.snapshot_id if head else None}
            ),
        ),
        transaction._updates,  # noqa: SLF001
    )


def commit(
    catalog: Catalog,
    identifier: Identifier,
    files: Sequence[DataFile],
    *,
    expected: State,
    new: State,
    pause: Pause,
) -> None:
    """Bring the table from state `expected` to `new`, adding `files`; on return it is in.

    Raises FencedError (another exporter was faster), CommitUnknownError (the catalog never said),
    CatalogError, StateError. Repeating it with the same `new` is harmless.
    """
    assert new.seq == expected.seq + 1
    assert new.topic_id == expected.topic_id
    name = ".".join(identifier)
    unknown = False
    reason: Exception | None = None
    for attempt in range(ATTEMPTS_MAX):
        if attempt > 0:
            pause.before(attempt)
        try:
            table = catalog.load_table(identifier)
            view = view_of(table)
            if state.has_run(view, new.run_id):
                return
            _check_unmoved(view, expected)
            _send(table, files, new, expected.offsets)
        except CommitFailedException as error:
            reason = error
        except NoSuchTableError as error:
            raise CatalogError(f"table {name} was dropped while it was exported to") from error
        except CATALOG_ERRORS as error:
            unknown, reason = True, error
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


def _check_unmoved(view: state.TableView, expected: State) -> None:
    found = state.read_state(view)
    if found is None or found.topic_id != expected.topic_id:
        raise StateError(f"table {view.name} was replaced while it was exported to")
    if found[1:] == expected[1:]:
        return
    # The next number was taken by another run on the state that we began from: ours never was
    # in, and cannot come any more, because the head that it demands is gone.
    raise FencedError(
        f"another exporter moved table {view.name} on while this one was at work; "
        "its records are in, this run's are not needed",
        files_unused=found.seq == expected.seq + 1,
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
) -> State:
    """Make the table and its first, empty snapshot where either is missing; its state then.

    Idempotent, also after a crash in the middle and against another exporter at the same time.
    """
    empty = State(topic_id=topic_id, offsets={}, seq=0, run_id=run_id)
    name = ".".join(identifier)
    reason: Exception | None = None
    for attempt in range(ATTEMPTS_MAX):
        if attempt > 0:
            pause.before(attempt)
        table = find_table(catalog, identifier)
        if table is None:
            table = create_table(
                catalog,
                identifier,
                schema=schema.TABLE_SCHEMA,
                partition_spec=partition_spec,
                properties={
                    **schema.TABLE_PROPERTIES,
                    state.TOPIC: topic,
                    state.TOPIC_ID: topic_id,
                    state.CLUSTER_ID: cluster_id,
                },
            )
        check_owner(table, topic=topic, topic_id=topic_id, cluster_id=cluster_id)
        found = state.read_state(view_of(table))
        if found is not None:
            return found
        try:
            _send(table, (), empty, {})
        except CommitFailedException as error:
            reason = error
        except CATALOG_ERRORS as error:
            reason = error
    raise CatalogError(
        f"cannot write the first snapshot of table {name}: "
        f"{first_line(reason) if reason else 'no reason given'}"
    ) from reason


def check_owner(table: Table, *, topic: str, topic_id: str, cluster_id: str) -> None:
    """Is this the table of that topic? Raises StateError (RecreatedError for another id).

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
