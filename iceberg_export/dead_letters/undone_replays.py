"""Dead letters that a replay took, and that are to come back: somebody rolled the main table back behind it.

They are what the commit that removed them had before it and not after it, so its snapshot and the
one before must be left. Reads only; `reconcile` says which of them the main table has all the same.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from iceberg_export.dead_letters.dead_letter_table import LostDeadLettersError, dead_offsets
from iceberg_export.files.read import read_rows
from iceberg_export.records.rows import is_among
from iceberg_export.table.catalog import guarded, view_of
from iceberg_export.table.state import REWRITE_ID, RUN_ID, State


def undone_removals(main: State, dead: State) -> list[str]:
    """Returns run ids of the commits that removed letters for replays which `main` has not behind it.

    Those are newer than all that both know: what is older the table has forgotten (`REPLAYS_MAX`).
    """
    names = list(dead.follows.replays)
    common = [place for place, replay in enumerate(names) if replay in main.replays]
    newer = names[common[-1] + 1 :] if common else names
    return list(dict.fromkeys(dead.follows.replays[replay] for replay in newer))


def letters_removed(table: Table, run_id: str) -> Iterator[pa.Table]:
    """Yields the dead letters that commit `run_id` of their table removed, some at a time.

    Raises LostDeadLettersError when its history does not show them any more.
    """
    snapshots = view_of(table).snapshots
    found = [
        one
        for one in snapshots
        # A replacement of files by others with the same rows repeats the state.
        if one.summary.get(RUN_ID) == run_id and REWRITE_ID not in one.summary
    ]
    removal = min(found, key=lambda one: one.sequence_number, default=None)
    before = removal.parent_id if removal is not None else None
    if removal is None or all(one.snapshot_id != before for one in snapshots):
        raise LostDeadLettersError(
            f"the table of {'.'.join(table.name())} was rolled back behind a replay of its dead letters, "
            "and their history does not have them any more; roll it forward again, or reset the "
            "topic's offsets to earliest"
        )
    stayed = dead_offsets(table, 0, removal.snapshot_id)
    files = guarded("read the dead letters", lambda: table.scan(snapshot_id=before).plan_files())
    for rows in read_rows(files, table.metadata, table.io):
        yield rows.filter(pc.invert(is_among(rows, stayed)))
