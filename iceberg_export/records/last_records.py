"""The last record that a table has of each partition, by which an export recognises the log.

An older log that is put back assigns offsets again. Once it has grown past the table, neither its
ends nor its positions show that. So a table's state has the object and the digest of its last
record in each partition. Objects never change: where the same object still holds the offset
nothing is read. Where jobs have moved the record since, or the log is another one, the record is
read and compared. A record that retention or log compaction has removed proves nothing.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from iceberg_export import names
from iceberg_export.plan.splits import PlannedSpan, StoreAddress, TopicPlan, ahead_error
from iceberg_export.records.read_chunks import open_reader, span_bytes
from iceberg_export.records.rows import span_rows
from iceberg_export.table.state import LastRecord


class DigestTask(NamedTuple):
    """Records whose digests are to be read, one of each span."""

    store: StoreAddress
    store_options: dict[str, str]
    spans: Sequence[PlannedSpan]


class LastRowOfEach:
    """Keeps the last row of each partition of a split."""

    def __init__(self) -> None:
        self._found: dict[int, LastRecord] = {}
        self._newest: tuple[PlannedSpan, pa.Table] | None = None

    def take(self, span: PlannedSpan, rows: pa.Table) -> None:
        """Takes rows of a partition in order of their offsets. Copies one row and keeps it until
        there is another: a record may be large, and partitions are many."""
        if rows.num_rows:
            if self._newest is not None and self._newest[0].partition != span.partition:
                self.last_records()
            self._newest = (span, rows.take([rows.num_rows - 1]))

    def last_records(self) -> dict[int, LastRecord]:
        """Returns the last records by partition."""
        if self._newest is not None:
            span, row = self._newest
            self._found[span.partition] = LastRecord(
                row.column(names.OFFSET)[0].as_py(), digest_of(row), object_hash(span.key)
            )
            self._newest = None
        return self._found


def object_hash(key: str) -> str:
    """Returns a short hash of an object's key."""
    return f"{zlib.crc32(key.encode()):08x}"


def digest_of(row: pa.Table) -> str:
    """Returns the digest of a record with all its parts. Tables keep it, so it never changes."""
    found = hashlib.blake2b(digest_size=8)

    def add(value: bytes | None) -> None:
        found.update(b"-" if value is None else b"%d:%b" % (len(value), value))

    for name in (names.OFFSET, names.TIMESTAMP, names.TIMESTAMP_TYPE, names.TIMESTAMP_RAW):
        number = row.column(name).cast(pa.int64())[0].as_py()
        add(None if number is None else b"%d" % number)
    add(row.column(names.KEY)[0].as_py())
    add(row.column(names.VALUE)[0].as_py())
    for header in row.column(names.HEADERS)[0].as_py():
        add(header["key"].encode())
        add(header["value"])
    return found.hexdigest()


def newest_of_each_partition(results: Iterable[Mapping[int, LastRecord]]) -> dict[int, LastRecord]:
    """Returns the last record of each partition over all splits."""
    found: dict[int, LastRecord] = {}
    for last_records in results:
        for partition, record in last_records.items():
            if partition not in found or found[partition].offset < record.offset:
                found[partition] = record
    return found


def moved_records(plan: TopicPlan, last_records: Mapping[int, LastRecord]) -> list[PlannedSpan]:
    """Returns spans of the records that jobs have moved to other objects; the plan begins with them."""
    found = []
    for partition, record in sorted(last_records.items()):
        part = plan.partitions.get(partition)
        for span in part.spans if part is not None and part.log_start <= record.offset else ():
            if span.base_offset <= record.offset < span.next_offset:
                if object_hash(span.key) != record.object_hash:
                    to = record.offset + 1
                    found.append(span._replace(offset_from=record.offset, offset_to=to))
                break
    return found


def read_digests(task: DigestTask, _attempt: int) -> dict[int, str]:
    """Returns, by partition, digests of the records that are there. Raises ExportError."""
    reader = open_reader(task.store, task.store_options)
    found = {}
    for span, data in span_bytes(reader, task.spans):
        for piece in span_rows(span, data):
            if piece.rows.num_rows:
                found[span.partition] = digest_of(piece.rows)
    return found


def check_same_records(
    plan: TopicPlan,
    last_records: Mapping[int, LastRecord],
    spans: Iterable[PlannedSpan],
    found: Mapping[int, str],
) -> None:
    """Raises AheadError when a record of `spans` is not the one that was exported."""
    others = []
    for span in spans:
        may_be_gone = plan.partitions[span.partition].compacted and span.is_absolute
        if span.partition not in found and may_be_gone:
            continue
        if found.get(span.partition) != last_records[span.partition].digest:
            others.append(
                f"partition {span.partition}: at offset {span.offset_from} the log has another "
                "record than the table"
            )
    if others:
        raise ahead_error(plan.topic, others)
