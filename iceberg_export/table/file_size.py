"""Target size of a table's data files: its topic's `frazil.iceberg.target.file.size`, else the exporter's.

The setting is noted in the table, so whoever writes its files, `maintain` too, goes by the same size;
Iceberg's own property says it to other engines. That property is only changed when the setting is: what
people wrote into it by hand stays, and a table of a topic without the setting is left alone.
"""

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_export.errors import CatalogError, StateError
from iceberg_export.table.catalog import Identifier, send_change
from iceberg_export.table.commit import Pause
from iceberg_export.table.schema import TABLE_PROPERTIES

TARGET_FILE_SIZE = "frazil.target-file-size"
"""Property of a table: bytes, the setting that it has by now; without it the exporter's size counts."""
ICEBERG_TARGET = "write.target-file-size-bytes"
ATTEMPTS_MAX = 5


def file_size_properties(size: int) -> dict[str, str]:
    """Returns the properties of a table for a topic's setting, in bytes; none for 0, no setting."""
    return {TARGET_FILE_SIZE: str(size), ICEBERG_TARGET: str(size)} if size else {}


def file_bytes_max(name: str, properties: Mapping[str, str], default: int) -> int:
    """Returns the target size of table `name`, in bytes; `default` is the exporter's. Raises StateError."""
    text = properties.get(TARGET_FILE_SIZE, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text)):
        raise StateError(
            f"the property {TARGET_FILE_SIZE} of table {name} is {text!r}, not a number of bytes; remove"
            " it, and the next export sets it as its topic says"
        )
    return int(text)


def keep_file_size(
    catalog: Catalog, identifier: Identifier, table: Table, size: int, pause: Pause
) -> None:
    """Sees to it that the table has its topic's setting, in bytes; 0: it has none. Raises CatalogError."""
    wanted = str(size) if size else None
    for _ in pause.attempts(ATTEMPTS_MAX):
        if table.metadata.properties.get(TARGET_FILE_SIZE) == wanted:
            return
        transaction = table.transaction()
        if wanted is None:
            transaction.remove_properties(TARGET_FILE_SIZE)
            transaction.set_properties({ICEBERG_TARGET: TABLE_PROPERTIES[ICEBERG_TARGET]})
        else:
            transaction.set_properties(file_size_properties(size))
        table = send_change(catalog, identifier, table, transaction)
    raise CatalogError(
        f"table {'.'.join(identifier)} cannot be told the size of its files; run again"
    )
