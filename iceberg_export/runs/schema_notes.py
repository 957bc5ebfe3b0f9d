"""Properties of a table that say which topic's own schemas decoded its rows (`typed.inline`).

They are set in a commit of their own before there is a row by the schema. A table without a row forgets
the others, so that after a reset to the log's start rows of one text are known as such.
"""

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_export.errors import CatalogError
from iceberg_export.table.catalog import Identifier, send_change
from iceberg_export.table.commit import Pause
from iceberg_export.typed.inline import missing_notes, stale_notes

ATTEMPTS_MAX = 5
_ROWS = "total-records"


def keep_notes(
    catalog: Catalog, identifier: Identifier, table: Table, notes: Mapping[str, str], pause: Pause
) -> None:
    """Sees to it that the table has these notes (by source). Raises CatalogError."""
    for _ in pause.attempts(ATTEMPTS_MAX):
        properties = table.metadata.properties
        has_rows = _has_rows(table)
        missing = missing_notes(notes, properties, has_rows=has_rows)
        stale = set() if has_rows else stale_notes(notes, properties)
        if not missing and not stale:
            return
        transaction = table.transaction()
        if missing:
            transaction.set_properties(missing)
        if stale:
            transaction.remove_properties(*sorted(stale))
        table = send_change(catalog, identifier, table, transaction)
    raise CatalogError(
        f"table {'.'.join(identifier)} cannot be told which schemas decode its rows; run again"
    )


def _has_rows(table: Table) -> bool:
    snapshot = table.current_snapshot()
    if snapshot is None:
        return False
    return snapshot.summary is None or snapshot.summary.additional_properties.get(_ROWS) != "0"
