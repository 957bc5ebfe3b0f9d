"""What planning hands to reading: plain values that travel to executors. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_export.plan.splits import Split, StoreAddress
from iceberg_export.routes import Route

CORRUPT = "_corrupt_record"
"""The column of records that cannot be decoded, which Spark's sources name so."""
CORRUPT_TYPE = pa.struct(
    [
        ("error_code", pa.string()),
        ("error_message", pa.string()),
        ("schema_id", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""As in the table of dead letters; key and value as they are."""


class Decoding(NamedTuple):
    """How a task decodes keys, values and timestamps. What cannot be read as a batch of records is as
    a record that cannot be decoded, also where keys and values stay as they are."""

    typing: Any = None
    """`typed_rows.RowTyping`; None: keys and values as they are."""
    fails: bool = False
    """A record that cannot be decoded ends the query; else it is left out."""
    timestamps: tuple[int, int] | None = None
    """Milliseconds: what lies before or behind is in the raw column alone, as in the table."""
    keeps: bool = False
    """It has a row all the same, with `CORRUPT` instead of fields."""
    topic: str = ""
    """Of a topic alone, for errors."""
    route: Route | None = None
    """Which records are the table's; None: all."""
    left_out: Mapping[int, Any] = {}
    """Offsets by partition that are dead letters, as arrays: a table will not have them."""


class ChunkTask(NamedTuple):
    """Records from chunks."""

    store: StoreAddress
    store_options: dict[str, str]
    split: Split
    decoding: Decoding


class TableTask(NamedTuple):
    """Rows from data files of one snapshot, deletes applied."""

    metadata_json: str
    io_properties: dict[str, str]
    files: tuple[Any, ...]
    """PyIceberg's FileScanTask."""


Task = ChunkTask | TableTask
