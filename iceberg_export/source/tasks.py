"""What planning hands to reading: plain values that travel to executors. Pure."""

from typing import Any, NamedTuple

from iceberg_export.plan import Split, StoreAddress


class ChunkTask(NamedTuple):
    """Records from chunks."""

    store: StoreAddress
    store_options: dict[str, str]
    split: Split
    typing: Any = None
    """`typed_rows.RowTyping`; None: keys and values as they are."""
    fails: bool = False
    """A record that cannot be decoded ends the query; else it is left out."""
    timestamps: tuple[int, int] | None = None
    """Milliseconds: what lies before or behind is in the raw column alone, as in the table."""


class TableTask(NamedTuple):
    """Rows from data files of one snapshot, deletes applied."""

    metadata_json: str
    io_properties: dict[str, str]
    files: tuple[Any, ...]
    """PyIceberg's FileScanTask."""


Task = ChunkTask | TableTask
