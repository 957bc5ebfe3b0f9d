"""The table beside a topic's table that takes the records which could not be decoded.

Every record is in exactly one of the two, whatever crashes and whatever the registry says later:

* The main table's commit comes first and names the files of dead letters in its state; then they
  are committed to their own table, as the same run. Whoever exports next and finds that this
  second commit is missing makes it (`roll_forward`), before anything else.
* After a rollback of the main table its records are judged anew. Those that lie among the dead
  letters already stay there alone (`already_dead`).

The dead letters' table has Kafka's columns as they are, the reason, and a state of its own; it is
not partitioned. People may delete what they have dealt with.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, NestedField, StringType

from iceberg_export import commit, names, schema
from iceberg_export.catalog import Identifier, find_table, guarded, view_of
from iceberg_export.commit import Pause
from iceberg_export.decode import Ints
from iceberg_export.errors import StateError
from iceberg_export.state import State, has_run
from iceberg_export.typed_rows import ERROR_CODE, ERROR_MESSAGE, RUN_ID, SCHEMA_ID
from iceberg_export.write_files import describe_file

SUFFIX = "__dlq"
DEAD_TABLE_SCHEMA = Schema(
    *schema.TABLE_SCHEMA.fields,
    NestedField(20, ERROR_CODE, StringType(), required=False),
    NestedField(21, ERROR_MESSAGE, StringType(), required=False),
    NestedField(22, SCHEMA_ID, IntegerType(), required=False),
    NestedField(23, RUN_ID, StringType(), required=False),
)


def dead_identifier(identifier: Identifier) -> Identifier:
    """The dead letters of a table."""
    return identifier[0], identifier[1] + SUFFIX


class Pending(NamedTuple):
    """Dead letters that belong to a commit of the main table."""

    run_id: str
    paths: tuple[str, ...]


def encode_pending(pending: Pending) -> str:
    """For the main table's state, which may outlive the commit that it came with; "" for none."""
    if not pending.paths:
        return ""
    text = json.dumps([pending.run_id, *pending.paths])
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def decode_pending(text: str) -> Pending | None:
    """The inverse of `encode_pending`. Raises StateError."""
    if not text:
        return None
    try:
        run_id, *paths = json.loads(zlib.decompress(base64.b64decode(text)))
    except (ValueError, zlib.error) as error:
        raise StateError(f"the list of dead letters cannot be read: {error}") from error
    return Pending(str(run_id), tuple(map(str, paths)))


def initialise(
    catalog: Catalog,
    identifier: Identifier,
    *,
    topic: str,
    topic_id: str,
    cluster_id: str,
    run_id: str,
    pause: Pause,
) -> State:
    """Make the dead letters' table of the main table `identifier`; its state."""
    return commit.initialise(
        catalog,
        dead_identifier(identifier),
        topic=topic,
        topic_id=topic_id,
        cluster_id=cluster_id,
        partition_spec=PartitionSpec(),
        table_schema=DEAD_TABLE_SCHEMA,
        run_id=run_id,
        pause=pause,
    )


def load(catalog: Catalog, identifier: Identifier) -> Table:
    """The dead letters' table of the main table `identifier`."""
    table = find_table(catalog, dead_identifier(identifier))
    if table is None:
        name = ".".join(dead_identifier(identifier))
        raise StateError(f"table {name} was dropped while it was needed; run again")
    return table


def roll_forward(
    catalog: Catalog, identifier: Identifier, main: State, dead: State, pause: Pause
) -> State:
    """Commit the dead letters that the main table's newest commit names, if nobody has.

    `dead` is the state of their table; that after it.
    """
    pending = decode_pending(main.dead_letters)
    if pending is None or dead.run_id == pending.run_id:
        return dead
    table = load(catalog, identifier)
    if has_run(view_of(table), pending.run_id):
        return dead
    # The snapshot of that commit may have expired: then its rows tell.
    mine = table.scan(
        row_filter=f"{RUN_ID} == '{pending.run_id}'", selected_fields=(RUN_ID,), limit=1
    )
    if guarded("read the dead letters", lambda: mine.to_arrow().num_rows):
        return dead
    files = guarded(
        "read files of dead letters",
        lambda: [describe_file(table, path) for path in pending.paths],
    )
    new = main._replace(run_id=pending.run_id)
    return add(catalog, identifier, files, expected=dead, main=new, pause=pause)


def add(
    catalog: Catalog,
    identifier: Identifier,
    files: Sequence[DataFile],
    *,
    expected: State,
    main: State,
    pause: Pause,
) -> State:
    """Commit dead letters of the main table's commit `main`; the state of their table then."""
    new = State(expected.topic_id, main.offsets, expected.seq + 1, main.run_id)
    commit.commit(
        catalog, dead_identifier(identifier), files, expected=expected, new=new, pause=pause
    )
    return new


def already_dead(
    catalog: Catalog, identifier: Identifier, dead: State, starts: Mapping[int, int]
) -> dict[int, Ints]:
    """Offsets of dead letters at or above `starts`, ascending, by partition.

    There are none unless the main table was rolled back.
    """
    if all(dead.offsets.get(partition, 0) <= start for partition, start in starts.items()):
        return {}
    return dead_offsets(load(catalog, identifier), min(starts.values()))


def dead_offsets(table: Table, first: int) -> dict[int, Ints]:
    """Offsets from `first` on in a table of dead letters, ascending, by partition."""
    scan = table.scan(
        row_filter=f"{names.OFFSET} >= {first}",
        selected_fields=(names.PARTITION, names.OFFSET),
    )
    rows = guarded("read the dead letters", scan.to_arrow)
    partitions, offsets = rows.column(names.PARTITION), rows.column(names.OFFSET)
    return {
        partition: np.unique(np.asarray(offsets.filter(pc.equal(partitions, partition))))
        for partition in pc.unique(partitions).to_pylist()
    }
