"""What planning hands to reading: plain values that travel to executors. Pure."""

from typing import Any, NamedTuple

from iceberg_export.plan import Split, StoreAddress


class ChunkTask(NamedTuple):
    """Records from chunks."""

    store: StoreAddress
    store_options: dict[str, str]
    split: Split


class TableTask(NamedTuple):
    """Rows from data files of one snapshot, deletes applied."""

    metadata_json: str
    io_properties: dict[str, str]
    files: tuple[Any, ...]
    """PyIceberg's FileScanTask."""


Task = ChunkTask | TableTask
