"""Makes the dead-letter table consistent with the main table's head, after crashes and rollbacks.

Then each record below the head's offsets is in exactly one of the two, but for those that people
have deleted:

* Dead letters that an ancestor of the head names are committed if they never were. Line and number
  of a commit tell whether they were, so what people deleted does not come again. Dead letters that
  are here already, by a commit that a rollback undid, stay as they are.
* Dead letters of commits that are no ancestors of the head (somebody went from one branch of
  history to another) are removed where the main table has the record. At and above the head's
  offsets they stay: the export leaves these records out.
* Dead letters that a replay has made rows of the main table are removed; those of a replay that a
  rollback undid come back (`undone_replays`), but for those that were redacted since.

All is one commit, also when there is nothing to do: it refuses an exporter that is about to add
dead letters of a commit that a rollback undid. Runs in the driver: dead letters are few, and this
is rare.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from iceberg_export import names
from iceberg_export.dead_letters.dead_letter_table import (
    STEPS,
    LostDeadLettersError,
    PendingDeadLetters,
    dead_letter_identifier,
    dead_offsets,
    decode_pending,
    is_consistent,
    load,
    next_state,
)
from iceberg_export.dead_letters.undone_replays import letters_removed, undone_removals
from iceberg_export.files.read import read_rows, scan_files
from iceberg_export.files.rewrite import deleted_unless_committed
from iceberg_export.files.target import target_of
from iceberg_export.files.write import FileWriter, describe_file, discarded_on_error
from iceberg_export.records.decode import Ints
from iceberg_export.records.rows import is_among
from iceberg_export.steps import Hook
from iceberg_export.table import commit
from iceberg_export.table.catalog import Identifier, guarded, view_of
from iceberg_export.table.commit import Pause
from iceberg_export.table.redactions import (
    Places,
    find_redactions,
    joined_places,
    places_of,
    redacted_places,
    without_places,
)
from iceberg_export.table.run_marks import RunMark
from iceberg_export.table.state import State, TableView, ancestor_states
from iceberg_export.typed.typed_rows import RUN_ID

FILE_BYTES_MAX = 512 * 1024 * 1024
ROWS_AT_ONCE = 10_000


def reconcile(
    catalog: Catalog,
    main_table: Table,
    main: State,
    dead: State,
    *,
    run_id: str,
    pause: Pause,
    hook: Hook,
) -> State:
    """Makes the dead letters, whose state is `dead`, consistent with `main`; returns that state.

    `main` was read from `main_table`, before `dead`. Raises ExportError.
    """
    if is_consistent(main, dead):
        return dead
    namespace, name = main_table.name()[-2:]
    identifier: Identifier = (namespace, name)
    table = load(catalog, identifier)
    view = view_of(main_table)
    pending = uncommitted_dead_letters(view, dead)
    seq_by_line = {one.line: one.seq for one in pending} | {main.line: main.seq}
    new = next_state(dead, main, f"{run_id}-settle", seq_by_line)
    with RunMark(table, run_id):
        rewriter = _DeadLetterRewriter(table, new.run_id, main_table)
        with discarded_on_error(rewriter):
            replayed = any(one not in dead.follows.replays for one in main.replays)
            added = rewriter.add_pending(pending, may_be_rows=replayed)
            removed = rewriter.remove(
                _in_both_tables(main_table, main, table, set() if replayed else _run_ids(view))
            )
            for removal in undone_removals(main, dead):
                rewriter.bring_back(letters_removed(table, removal), main)
            files = rewriter.files()
        head = table.metadata.snapshot_by_name("main")
        with deleted_unless_committed(table, files):
            commit.commit(
                catalog,
                dead_letter_identifier(identifier),
                [*added, *files],
                expected=dead,
                new=new,
                pause=pause,
                removed=removed,
                base_id=head.snapshot_id if head and removed else None,
                hook=lambda step: hook(STEPS[step]),
            )
    return new


def uncommitted_dead_letters(view: TableView, dead: State) -> list[PendingDeadLetters]:
    """Returns the never committed dead letters that the head's ancestors name, oldest first.

    Raises LostDeadLettersError when a reset has removed some, of commits that are unknown.
    """
    seq_by_line = dead.follows.seq_by_line
    found: dict[str, PendingDeadLetters] = {}
    newer: State | None = None
    for one in ancestor_states(view):
        if newer is not None and any(
            one.offsets.get(partition, 0) > end for partition, end in newer.offsets.items()
        ):
            # The newer one is a reset, which has reconciled what was before it.
            return list(found.values())[::-1]
        if seq_by_line.get(one.line, -1) >= one.seq:
            return list(found.values())[::-1]
        pending = decode_pending(one.dead_letters)
        if pending is not None and seq_by_line.get(pending.line, -1) < pending.seq:
            found.setdefault(pending.run_id, pending)
        newer = one
    if (
        newer is not None
        and newer.seq > 0
        and dead.follows.was_reset
        and newer.line not in seq_by_line
    ):
        raise LostDeadLettersError(
            f"table {view.name} was rolled back behind a reset of its offsets, and its history does "
            "not say any more which dead letters belong to it; reset its offsets to earliest"
        )
    return list(found.values())[::-1]


class _DeadLetterRewriter:
    """Writes the new files of a dead-letter table."""

    def __init__(self, table: Table, name: str, main_table: Table) -> None:
        self._table = table
        self._main_table = main_table
        self._writer = FileWriter(target_of(table, FILE_BYTES_MAX), name)
        self._here: Places | None = None
        """Dead letters of the table, and those that were added."""

    def add_pending(
        self, pending: Sequence[PendingDeadLetters], *, may_be_rows: bool
    ) -> list[DataFile]:
        """Returns the files that may be taken as they are; writes the new rows of the others, which have some
        that are here already, or no partition.

        `may_be_rows`: a replay may have put some into the main table since.
        """
        return [
            file
            for one in pending
            for path in one.paths
            for file in guarded(
                "read a file of dead letters",
                lambda path=path: self._add_file(path, may_be_rows=may_be_rows),  # type: ignore[misc]
            )
        ]

    def _add_file(self, path: str, *, may_be_rows: bool) -> list[DataFile]:
        if not self._table.io.new_input(path).exists():
            raise LostDeadLettersError(
                f"{path}, a file of dead letters of table {'.'.join(self._table.name())}, is gone; "
                "reset the topic's offsets to earliest"
            )
        with self._table.io.new_input(path).open() as source:
            place = pq.read_table(source, columns=[names.PARTITION, names.OFFSET])
        gone = self._not_new(places_of(place), may_be_rows=may_be_rows)
        doubled = is_among(place, gone)
        # Where people have partitioned the letters, the file may lie across partitions: it is written anew.
        if not pc.any(doubled).as_py() and not self._table.metadata.spec().fields:
            return [describe_file(self._table, path)]
        with self._table.io.new_input(path).open() as source:
            first = 0
            for batch in pq.ParquetFile(source).iter_batches(ROWS_AT_ONCE):
                some = doubled.slice(first, batch.num_rows)
                first += batch.num_rows
                self._writer.write(pa.Table.from_batches([batch]).filter(pc.invert(some)))
        return []

    def _not_new(self, places: Places, *, may_be_rows: bool) -> Places:
        """Returns those of the places that have a dead letter, or a row; all of them have one then."""
        here = dead_offsets(self._table, 0) if self._here is None else self._here
        self._here = joined_places(here, places)
        if may_be_rows:
            here = joined_places(here, _rows_at(self._main_table, places))
        return here

    def bring_back(self, letters: Iterator[pa.Table], main: State) -> None:
        """Writes those of the letters that the main table has behind it, and neither of both has."""
        redacted = redacted_places(find_redactions(self._main_table, main.topic_id))
        for rows in letters:
            places = _below(places_of(rows), main.offsets)
            unwanted = joined_places(self._not_new(places, may_be_rows=True), redacted)
            self._writer.write(rows.filter(is_among(rows, without_places(places, unwanted))))

    def remove(self, gone: Mapping[int, Ints]) -> list[DataFile]:
        """Returns the files that have such rows, and writes their other rows anew."""
        if not gone:
            return []
        found = []
        for task in scan_files(self._table):
            place = self._rows(task, (names.PARTITION, names.OFFSET))
            if not any(pc.any(is_among(rows, gone)).as_py() for rows in place):
                continue
            found.append(task.file)
            for rows in self._rows(task, self._table.schema().column_names):
                self._writer.write(rows.filter(pc.invert(is_among(rows, gone))))
        return found

    def _rows(self, task: FileScanTask, columns: Sequence[str]) -> Iterator[pa.Table]:
        projected = self._table.schema().select(*columns)
        return read_rows([task], self._table.metadata, self._table.io, projected)

    def files(self) -> list[DataFile]:
        return self._writer.close()

    def discard(self) -> None:
        self._writer.discard()


def _run_ids(view: TableView) -> set[str]:
    """Returns run ids of the head's own ancestors, and of commits whose dead letters they name."""
    states = ancestor_states(view)
    pending = (decode_pending(one.dead_letters) for one in states)
    return {one.run_id for one in states} | {one.run_id for one in pending if one is not None}


def _in_both_tables(
    main_table: Table, main: State, dead_table: Table, judged: set[str]
) -> dict[int, Ints]:
    """Returns dead letters that the main table has as rows, by partition.

    Those of runs that are `judged` are none: their commits have decoded the records.
    """
    rows = guarded(
        "read the dead letters",
        dead_table.scan(selected_fields=(names.PARTITION, names.OFFSET, RUN_ID)).to_arrow,
    )
    ours = pc.is_in(rows.column(RUN_ID), pa.array(sorted(judged), rows.column(RUN_ID).type))
    places = places_of(rows.filter(pc.invert(ours)))
    return _rows_at(main_table, _below(places, main.offsets))


def _below(places: Places, ends: Mapping[int, int]) -> Places:
    return {
        partition: offsets[offsets < ends.get(partition, 0)]
        for partition, offsets in places.items()
    }


def _rows_at(table: Table, places: Places) -> dict[int, Ints]:
    """Returns those of the places that the table has a row of."""
    found = {p: _offsets_in_table(table, p, some) for p, some in places.items() if some.size}
    return {partition: offsets for partition, offsets in found.items() if offsets.size}


def _offsets_in_table(table: Table, partition: int, offsets: Ints) -> Ints:
    """Returns those of the offsets that the table has."""
    # Their constructors take terms by name, which their declared types do not know.
    equal: Any = EqualTo
    at_least: Any = GreaterThanOrEqual
    at_most: Any = LessThanOrEqual
    scan = table.scan(
        row_filter=And(
            equal(names.PARTITION, partition),
            at_least(names.OFFSET, int(offsets[0])),
            at_most(names.OFFSET, int(offsets[-1])),
        ),
        selected_fields=(names.PARTITION, names.OFFSET),
    )

    def read() -> Ints:
        found = [np.asarray(batch.column(names.OFFSET)) for batch in scan.to_arrow_batch_reader()]
        there = [one[np.isin(one, offsets)] for one in found]
        return np.unique(np.concatenate([offsets[:0], *there]))

    return guarded(f"read table {'.'.join(table.name())}", read)
