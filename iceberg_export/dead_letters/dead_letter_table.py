"""The dead-letter table of a topic's table: it takes the records that could not be decoded.

Every record is in exactly one of the two, whatever crashes and whatever the registry says later:

* The main table's commit comes first and names the files of dead letters in its state; then they
  are committed to their own table (`add`).
* Each state names the other: that of the dead letters the state of the main table that they belong
  to, that of the main table the dead letters that its export left out. An export that finds them
  inconsistent, after a crash or a rollback of either table, reconciles them first (`reconcile`).
  The commit of that refuses any exporter that is about to add to what was found.
* After a rollback of the main table its records are decoded again. Those that lie among the dead
  letters already stay there alone (`already_dead`), whatever the topic's settings are now.
* A replay adds dead letters to the main table as rows. Both states name the replays that they have
  behind them; where they differ, `reconcile` takes letters out, or brings them back.

The dead-letter table has Kafka's columns as they are, the reason, and a state of its own; it is
not partitioned. People may delete what they have dealt with.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, NestedField, StringType

from iceberg_export import names
from iceberg_export.errors import StateError
from iceberg_export.records.decode import Ints
from iceberg_export.steps import Hook, Step, no_hook
from iceberg_export.table import commit, schema
from iceberg_export.table.catalog import Identifier, find_table, guarded
from iceberg_export.table.commit import Pause
from iceberg_export.table.redactions import places_of
from iceberg_export.table.state import TOPIC_ID, Follows, State
from iceberg_export.typed.typed_rows import (
    ERROR_CODE,
    ERROR_MESSAGE,
    RUN_ID,
    SCHEMA_ID,
    WITHHELD,
)

SUFFIX = "__dlq"
LINES_MAX = 100
"""Lines of the main table that a dead-letter table remembers: each rollback or reset begins one."""
REPLAYS_MAX = 100
"""Replays that both tables remember."""
STEPS = {
    Step.COMMIT_LOADED: Step.DEAD_LETTERS_LOADED,
    Step.COMMIT_WRITTEN: Step.DEAD_LETTERS_WRITTEN,
    Step.COMMIT_ANSWERED: Step.DEAD_LETTERS_ANSWERED,
}
DEAD_TABLE_SCHEMA = Schema(
    *schema.TABLE_SCHEMA.fields,
    NestedField(20, ERROR_CODE, StringType(), required=False),
    NestedField(21, ERROR_MESSAGE, StringType(), required=False),
    NestedField(22, SCHEMA_ID, IntegerType(), required=False),
    NestedField(23, RUN_ID, StringType(), required=False),
)


def dead_letter_identifier(identifier: Identifier) -> Identifier:
    """Returns the name of a table's dead-letter table."""
    return identifier[0], identifier[1] + SUFFIX


class LostDeadLettersError(StateError):
    """Dead letters that belong to the head are gone. A reset to earliest needs none."""


class PendingDeadLetters(NamedTuple):
    """Dead letters that belong to a commit of the main table."""

    run_id: str
    line: str
    seq: int
    paths: tuple[str, ...]


def encode_pending(pending: PendingDeadLetters) -> str:
    """Returns the text that the main table's state keeps; "" for none."""
    if not pending.paths:
        return ""
    text = json.dumps([pending.run_id, pending.line, pending.seq, *pending.paths])
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def decode_pending(text: str) -> PendingDeadLetters | None:
    """The inverse of `encode_pending`. Raises StateError."""
    if not text:
        return None
    try:
        run_id, line, seq, *paths = json.loads(zlib.decompress(base64.b64decode(text)))
        return PendingDeadLetters(str(run_id), str(line), int(seq), tuple(map(str, paths)))
    except (ValueError, zlib.error) as error:
        raise StateError(f"the list of dead letters cannot be read: {error}") from error


def initialise(
    catalog: Catalog,
    identifier: Identifier,
    *,
    topic: str,
    topic_id: str,
    cluster_id: str,
    main: State,
    run_id: str,
    pause: Pause,
) -> State:
    """Makes the dead-letter table of the main table `identifier`, whose state is `main`.

    Returns the state of the dead-letter table. One that was missing was never needed, or was dropped
    by people together with its dead letters.
    """
    return commit.initialise(
        catalog,
        dead_letter_identifier(identifier),
        topic=topic,
        topic_id=topic_id,
        cluster_id=cluster_id,
        partition_spec=PartitionSpec(),
        table_schema=DEAD_TABLE_SCHEMA,
        follows=Follows(main.mark, {main.line: main.seq}, replays=dict.fromkeys(main.replays, "")),
        run_id=run_id,
        pause=pause,
    )


def exists(catalog: Catalog, identifier: Identifier, topic_id: str) -> bool:
    """Tells whether the main table `identifier` of that topic has a dead-letter table."""
    table = find_table(catalog, dead_letter_identifier(identifier))
    if table is None or table.metadata.properties.get(TOPIC_ID) != topic_id:
        return False
    return any(field.name == ERROR_CODE for field in table.schema().fields)


def load(catalog: Catalog, identifier: Identifier) -> Table:
    """Returns the dead-letter table of the main table `identifier`. Raises StateError."""
    table = find_table(catalog, dead_letter_identifier(identifier))
    if table is None:
        name = ".".join(dead_letter_identifier(identifier))
        raise StateError(f"table {name} was dropped while it was needed; run again")
    return table


def add(
    catalog: Catalog,
    identifier: Identifier,
    files: Sequence[DataFile],
    *,
    expected: State,
    main: State,
    pause: Pause,
    hook: Hook = no_hook,
) -> State:
    """Commits the dead letters of the main table's commit `main`; returns their table's new state."""
    new = next_state(expected, main, f"{main.run_id}-dead", {main.line: main.seq})
    commit.commit(
        catalog,
        dead_letter_identifier(identifier),
        files,
        expected=expected,
        new=new,
        pause=pause,
        hook=lambda step: hook(STEPS[step]),
    )
    return new


def next_state(dead: State, main: State, run_id: str, seq_by_line: Mapping[str, int]) -> State:
    """Returns the state after `dead` that is consistent with `main`, once commit `run_id` is made.

    Offsets never go back: `already_dead` asks by them whether any dead letters may lie ahead.
    """
    ahead = {p: max(o, dead.offsets.get(p, 0)) for p, o in main.offsets.items()}
    lines = {**dead.follows.seq_by_line, **seq_by_line}
    kept = dict(list(lines.items())[-LINES_MAX:])
    return dead._replace(
        offsets={**dead.offsets, **ahead},
        seq=dead.seq + 1,
        run_id=run_id,
        follows=Follows(
            main.mark,
            kept,
            dead.follows.was_reset,
            {one: dead.follows.replays.get(one, run_id) for one in main.replays},
        ),
    )


def is_consistent(main: State, dead: State) -> bool:
    """Tells whether the dead-letter table has all that belong to `main`, and no record that is in it."""
    if tuple(dead.follows.replays) != main.replays:
        return False
    if dead.follows.mark == main.mark:
        return True
    return main.dead_letters_mark == dead.mark and not main.dead_letters


def already_dead(
    catalog: Catalog, identifier: Identifier, dead: State, starts: Mapping[int, int]
) -> dict[int, Ints]:
    """Returns offsets of dead letters at or above `starts`, ascending, by partition.

    There are none unless the main table was rolled back, or reset.
    """
    if all(dead.offsets.get(partition, 0) <= start for partition, start in starts.items()):
        return {}
    return dead_offsets(load(catalog, identifier), min(starts.values()))


def dead_offsets(table: Table, first: int, snapshot_id: int | None = None) -> dict[int, Ints]:
    """Returns the offsets from `first` on in a dead-letter table, ascending, by partition; of its
    newest snapshot, if no other is named."""
    scan = table.scan(
        row_filter=f"{names.OFFSET} >= {first}",
        selected_fields=(names.PARTITION, names.OFFSET),
        snapshot_id=snapshot_id,
    )
    return places_of(guarded("read the dead letters", scan.to_arrow))


def withheld_places(table: Table) -> dict[int, Ints]:
    """Returns the offsets of dead letters without content, ascending, by partition."""
    is_withheld: Any = EqualTo  # Takes terms by name, which its declared type does not know.
    scan = table.scan(
        row_filter=is_withheld(ERROR_MESSAGE, WITHHELD),
        selected_fields=(names.PARTITION, names.OFFSET),
    )
    return places_of(guarded("read the dead letters", scan.to_arrow))
