"""A table keeps the envelope that its topic's values had when it was made: `frazil.iceberg.envelope`.

Rows of change events beside rows of whole values would be two tables in one, and no reader could tell them
apart. Only a table that has no record yet follows its topic's setting.
"""

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_export.errors import CatalogError, StateError
from iceberg_export.table.catalog import Identifier, send_change
from iceberg_export.table.commit import Pause

ENVELOPE = "frazil.envelope"
"""Property of a table: the setting that it was made with; without it none."""
ATTEMPTS_MAX = 5


def keep_envelope(
    catalog: Catalog,
    identifier: Identifier,
    table: Table,
    envelope: str,
    *,
    has_data: bool,
    pause: Pause,
) -> None:
    """Sees to it that the table is made for this envelope. Raises StateError for one that `has_data` of
    another, and CatalogError."""
    name = ".".join(identifier)
    for _ in pause.attempts(ATTEMPTS_MAX):
        made_for = table.metadata.properties.get(ENVELOPE, "none")
        if made_for == envelope:
            return
        if has_data:
            raise StateError(
                f"frazil.iceberg.envelope is {envelope}, and table {name} has rows of records that were "
                f"exported with {made_for}; set it back, or name another table (frazil.iceberg.table)"
            )
        transaction = table.transaction()
        transaction.set_properties({ENVELOPE: envelope})
        table = send_change(catalog, identifier, table, transaction)
    raise CatalogError(f"the property {ENVELOPE} of table {name} cannot be set to {envelope}")
