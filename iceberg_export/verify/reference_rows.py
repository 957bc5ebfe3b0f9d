"""The records of a span as the agents' own decoder reads them, record by record, for `verify.decoder=reference`.

Written apart from the exporter's (`records.decode`), and ten times slower. Pure.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from iceberg_export import names
from iceberg_export.plan.splits import PlannedSpan
from iceberg_export.records.decode import HEADERS_MAX, Tally, Unreadable, split_batches
from iceberg_export.records.rows import ROW_SCHEMA, SpanRows, unreadable_rows
from protocol import records
from protocol.errors import ProtocolError


def reference_rows(span: PlannedSpan, data: memoryview) -> Iterator[SpanRows]:
    """Yields the wanted, committed records of a span by `protocol.records.iterate`, batch by batch."""
    # For its checks alone (it raises for a wrong CRC or count): the records come from the other
    # decoder.
    deque(split_batches(span, data), maxlen=0)
    at, offset = 0, span.base_offset
    while at < len(data):
        header = records.read_header(data, at)
        if span.is_absolute:
            offset = header.base_offset
        if not header.is_control and not _is_in_aborted(span, header, offset):
            batch = bytearray(data[at : at + header.size])
            records.patch(batch, 0, offset)
            try:
                found = _reference_records(batch)
            except ProtocolError as error:
                yield unreadable_rows(span, [Unreadable(memoryview(batch), offset, str(error))])
            else:
                kind = int(header.is_log_append_time)
                wanted = [one for one in found if span.offset_from <= one.offset < span.offset_to]
                yield SpanRows(_records_table(wanted, span.partition, kind), Tally(len(wanted)))
        offset += header.last_offset_delta + 1
        at += header.size


def _reference_records(batch: bytearray) -> list[records.Record]:
    """The records of a batch. Raises ProtocolError where the format would be broken."""
    header = records.read_header(batch)
    found = list(records.iterate(batch))
    offsets = [one.offset - header.base_offset for one in found]
    if any(after <= before for before, after in zip([-1, *offsets], offsets, strict=False)) or (
        offsets and offsets[-1] > header.last_offset_delta
    ):
        raise ProtocolError("its offsets do not rise, or go beyond its last")
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise ProtocolError(f"{header.record_count} records")
    if any(len(one.headers) > HEADERS_MAX for one in found):
        raise ProtocolError(f"a record has more than {HEADERS_MAX} headers")
    # Java's numbers of 64 bits wrap around.
    return [one._replace(timestamp=_wrapped(one.timestamp)) for one in found]


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _is_in_aborted(span: PlannedSpan, header: records.BatchHeader, offset: int) -> bool:
    """Tells whether a batch is of an aborted transaction, as clients do that read committed (KIP-98)."""
    aborted = {
        one.producer_id
        for one in span.aborted
        if one.first_offset <= offset and one.last_offset >= offset
    }
    return header.is_transactional and header.producer_id in aborted


def _records_table(found: list[records.Record], partition: int, kind: int) -> pa.Table:
    def in_range(timestamp: int) -> bool:
        return 0 <= timestamp <= names.TIMESTAMP_MS_MAX

    def text(key: str) -> str:
        return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    columns: dict[str, list[Any]] = {
        names.PARTITION: [partition] * len(found),
        names.OFFSET: [one.offset for one in found],
        names.TIMESTAMP: [
            one.timestamp * 1000 if in_range(one.timestamp) else None for one in found
        ],
        names.TIMESTAMP_TYPE: [kind] * len(found),
        names.KEY: [one.key for one in found],
        names.HEADERS: [
            [{"key": text(key), "value": value} for key, value in one.headers] for one in found
        ],
        names.TIMESTAMP_RAW: [
            None if in_range(one.timestamp) or one.timestamp == -1 else one.timestamp
            for one in found
        ],
        names.VALUE: [one.value for one in found],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in ROW_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=ROW_SCHEMA)
