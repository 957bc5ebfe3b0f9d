"""A page of records, and one record, as values for templates. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from broker.console.views.record_batches import FoundRecord
from broker.console.views.record_questions import Places, RecordAsked, RecordsAsked, Start
from broker.console.views.record_search import Range
from broker.console.views.record_text import ShownBytes, shown_bytes
from broker.console.views.record_times import time_text

ROWS_MAX: Final = 50
SHORT_CHARACTERS: Final = 200
"""Of a key or value in a list."""
HEADERS_MAX: Final = 200
HEADER_CHARACTERS: Final = 2_000
RANGES_TOLD_MAX: Final = 4


class RecordRow(NamedTuple):
    """A record in a list."""

    partition: int
    offset: int
    time: str
    key: ShownBytes
    value: ShownBytes
    headers: int
    size: int
    query: Mapping[str, str]
    """Of its own page."""


class RecordsView(NamedTuple):
    """A page of them."""

    asked: RecordsAsked
    partition_count: int
    partitions_read: int
    rows: Sequence[RecordRow]
    looked: str
    """A sentence: how far was looked."""
    notes: Sequence[str]
    newer: Mapping[str, str] | None
    """The query of the page of newer records; None: there are none."""
    older: Mapping[str, str] | None
    is_bounded: bool


def record_row(
    asked: RecordsAsked, found: FoundRecord, key: ShownBytes, value: ShownBytes
) -> RecordRow:
    record = found.record
    one = RecordAsked(asked.topic, found.partition, record.offset, asked.committed)
    return RecordRow(
        found.partition,
        record.offset,
        time_text(record.timestamp),
        key,
        value,
        len(record.headers),
        found.size,
        one.query(),
    )


def looked_text(ranges: Sequence[Range], *, looked: int, byte_count: int) -> str:
    """12 records of 3,456 bytes, of partition 0 offsets 10 to 29, …"""
    said = f"{looked:,} record{'' if looked == 1 else 's'} in {byte_count:,} bytes"
    some = [each for each in ranges if each.stop > each.first]
    if not some:
        return said
    if len(some) > RANGES_TOLD_MAX:
        return f"{said}, of {len(some)} partitions"
    places = [
        f"partition {each.partition} offsets {each.first:,} to {each.stop - 1:,}" for each in some
    ]
    return f"{said}: {', '.join(places)}"


def next_pages(
    asked: RecordsAsked, further: Places, before: Places
) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """Queries of the page of newer records, and of that of older ones."""
    onwards, back = (before, further) if asked.goes_back else (further, before)
    newer = asked.query(onwards) if onwards else None
    older = asked.query(back, is_back=True) if back else None
    return newer, older


class RecordView(NamedTuple):
    """One record."""

    asked: RecordAsked
    key: ShownBytes
    value: ShownBytes
    headers: Sequence[tuple[str, ShownBytes]]
    facts: Sequence[tuple[str, str]]
    beside: Mapping[str, str]
    """The query of the page of records that begins with it."""


def record_view(
    asked: RecordAsked, found: FoundRecord, key: ShownBytes, value: ShownBytes
) -> RecordView:
    record, header = found.record, found.header
    stamped = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    facts = [
        ("Partition", str(found.partition)),
        ("Offset", f"{record.offset:,}"),
        ("Timestamp", f"{time_text(record.timestamp)} UTC ({stamped}, {record.timestamp})"),
        ("Size", f"{found.size:,} bytes of key, value and headers"),
        ("Leader epoch", str(header.leader_epoch)),
        ("Producer", _producer(found)),
        ("Transaction", "part of one" if header.is_transactional else "none"),
        ("Batch", _batch(found)),
    ]
    headers = [
        (name.encode(errors="replace").decode(errors="replace"), _header(said))
        for name, said in record.headers[:HEADERS_MAX]
    ]
    beside = RecordsAsked(
        asked.topic, asked.partition, Start.OFFSET, str(asked.offset), committed=asked.committed
    )
    return RecordView(asked, key, value, headers, facts, beside.query())


def _producer(found: FoundRecord) -> str:
    header = found.header
    if header.producer_id < 0:
        return "without an id"
    sequence = header.base_sequence + found.record.offset - header.base_offset
    return f"{header.producer_id}, epoch {header.producer_epoch}, sequence {sequence}"


def _batch(found: FoundRecord) -> str:
    header = found.header
    return (
        f"offsets {header.base_offset:,} to {header.last_offset:,}, {header.record_count:,} records"
    )


def _header(said: bytes | None) -> ShownBytes:
    return shown_bytes(said, characters_max=HEADER_CHARACTERS)
