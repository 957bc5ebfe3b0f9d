"""The table as tasks need it: plain values that travel to executors, and the table out of them."""

from typing import NamedTuple

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from iceberg_export.table.catalog import io_properties
from iceberg_export.table.file_size import file_bytes_max

UNBOUNDED = 1 << 62


class Target(NamedTuple):
    """What a task reads or writes the table's files by."""

    metadata_json: str
    io_properties: dict[str, str]
    file_bytes_max: int = UNBOUNDED

    def open(self) -> tuple[TableMetadata, FileIO]:
        """Returns the table's metadata, and what reads and writes its files."""
        metadata = TableMetadataUtil.parse_raw(self.metadata_json)
        return metadata, load_file_io(self.io_properties, metadata.location)


def target_of(table: Table, bytes_max_default: int = UNBOUNDED) -> Target:
    """Returns the table for tasks; its files have the size that its topic chose, else the default.

    Raises StateError for a table whose size cannot be read.
    """
    bytes_max = file_bytes_max(".".join(table.name()), table.metadata.properties, bytes_max_default)
    return Target(table.metadata.model_dump_json(), io_properties(table), bytes_max)
