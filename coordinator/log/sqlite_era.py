"""Another era in the file of a log (`MetadataLog.begin_era`), within one transaction.

What is left of the era that ends is deleted: an older copy of the file may have been put back, and its entries
say less than what was archived of them.
"""

import sqlite3

from coordinator.log.metadata_log import other_identity

_STATEMENTS = (
    "DELETE FROM entry",
    "DELETE FROM newest",
    "DELETE FROM void",
    "DELETE FROM sqlite_sequence WHERE name = 'entry'",
)


def read_identity(connection: sqlite3.Connection) -> bytes:
    """Empty when nobody has written one."""
    found = connection.execute("SELECT value FROM identity").fetchone()
    return b"" if found is None else bytes(found[0])


def write_era(
    connection: sqlite3.Connection,
    identity: bytes,
    *,
    snapshots: bytes,
    instead_of: bytes,
    first: int,
) -> None:
    """The era begins at revision `first`. Raises as the port says."""
    written = read_identity(connection)
    if written == identity:
        return
    if written != instead_of:
        raise other_identity()
    for statement in _STATEMENTS:
        connection.execute(statement)
    # The next entry comes behind it.
    connection.execute("INSERT INTO sqlite_sequence VALUES ('entry', ?)", (first,))
    connection.execute("UPDATE bound SET snapshots = ?, older = 0, cut = ?", (snapshots, first))
    connection.execute("INSERT OR REPLACE INTO identity VALUES (1, ?)", (identity,))
