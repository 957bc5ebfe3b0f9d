"""The first record at or after a time, in each partition, as tasks find it: ListOffsets over tables' records.

What an agent says of a chunk's newest timestamp is its producers' word, so chunks are read; segments were
written by agents, and one whose newest record is older has none to look for. Unlike ListOffsets, which
also finds records of aborted transactions and their ends: a table has none of these. Reads, decides
nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import names
from iceberg_export.plan.splits import PlannedSpan, StoreAddress
from iceberg_export.records.read_chunks import open_reader, span_bytes
from iceberg_export.records.rows import span_rows


class SeekTask(NamedTuple):
    """Spans to look into, each partition's in the order of offsets."""

    store: StoreAddress
    store_options: dict[str, str]
    spans: Sequence[PlannedSpan]
    timestamp_ms: int


def may_have(span: PlannedSpan, timestamp_ms: int) -> bool:
    """Tells whether a record of the span may be so new."""
    return span.timestamp_max < 0 or not span.is_absolute or span.timestamp_max >= timestamp_ms


def first_offsets(task: SeekTask, _attempt: int) -> dict[int, int]:
    """Returns the first offset of a record at or after the time, of partitions that have one. Raises
    ExportError."""
    reader = open_reader(task.store, task.store_options)
    found: dict[int, int] = {}
    for span, data in span_bytes(reader, task.spans):
        if span.partition in found:
            continue
        for piece in span_rows(span, data):
            offsets = _at_or_after(piece.rows, task.timestamp_ms)
            if len(offsets):
                found[span.partition] = offsets[0].as_py()
                break
    return found


def lowest(results: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Returns the first offset of each partition over all tasks."""
    found: dict[int, int] = {}
    for offsets in results:
        for partition, offset in offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def _at_or_after(rows: pa.Table, timestamp_ms: int) -> pa.ChunkedArray:
    millis = pc.coalesce(
        pc.divide(rows.column(names.TIMESTAMP).cast(pa.int64()), 1000),
        rows.column(names.TIMESTAMP_RAW),
    )
    return rows.column(names.OFFSET).filter(pc.greater_equal(millis, timestamp_ms))
