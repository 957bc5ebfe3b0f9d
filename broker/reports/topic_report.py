"""The report of a topic and where its records lie: JSON by an agent, a table for people. Pure.

Bytes are those of the records in chunks and segments, also of rows that lie in pages; what waits
for collection is in none of them. Left out: asking for it (`broker.cli.topics.storage_tool`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.reports.group_report import count
from broker.reports.tables import Cell, table
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from coordinator.tables.topics import Topic

PARTITIONS_MAX: Final = 5_000
"""In one answer; whoever wants more asks again."""

_COLUMNS: Final[Mapping[str, str]] = {
    "PARTITION": "partition",
    "LOG-START": "log_start",
    "LAST-STABLE": "last_stable",
    "END": "end",
    "CHUNK-BYTES": "chunk_bytes",
    "SEGMENT-BYTES": "segment_bytes",
    "ROWS": "rows",
    "PAGES": "pages",
    "ROWS-IN-PAGES": "rows_in_pages",
    "CLEAN-TO": "clean_to",
}
_EXPORTED: Final = "EXPORTED"
"""A column of its own, where an exporter has said something."""
_SUMMED: Final = ("chunk_bytes", "segment_bytes", "rows", "pages", "rows_in_pages")


def topic_view(machine: Machine, topic: Topic, *, first: int) -> dict[str, Any]:
    """A topic and at most PARTITIONS_MAX of its partitions, from `first` on."""
    row = machine.exports.get(topic.topic_id)
    exported = {} if row is None else row.offsets
    last = min(first + PARTITIONS_MAX, topic.partition_count)
    found = [machine.partitions.get(topic.topic_id, index) for index in range(first, last)]
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "configs": dict(topic.configs),
        "partition_count": topic.partition_count,
        "export_age_ms": None if row is None else machine.time_ms - row.reported_ms,
        "partitions": [
            _partition_view(each) | {"exported": exported.get(each.partition)}
            for each in found
            if each is not None
        ],
    }


def _partition_view(partition: Partition) -> dict[str, int | None]:
    return {
        "partition": partition.partition,
        "log_start": partition.log_start,
        "last_stable": partition.last_stable,
        "end": partition.end_offset,
        "chunk_bytes": partition.data_bytes - partition.segment_bytes,
        "segment_bytes": partition.segment_bytes,
        "rows": partition.row_count - partition.page_count,
        "pages": partition.page_count,
        "rows_in_pages": partition.paged_row_count,
        "clean_to": partition.clean_to,
    }


def lines(view: Mapping[str, Any]) -> list[str]:
    """The view of a whole topic, for people."""
    partitions = view["partitions"]
    sums = {name: sum([row[name] for row in partitions]) for name in _SUMMED}
    where = f"{_size(sums['chunk_bytes'])} in chunks, {_size(sums['segment_bytes'])} in segments"
    rows = f"{sums['rows']} in memory, {sums['rows_in_pages']} in {count(sums['pages'], 'page')}"
    said = [
        f"{view['name']}: id {view['topic_id']}, {count(view['partition_count'], 'partition')}",
        f"records: {where}; rows: {rows}",
    ]
    said += [f"{name}={value}" for name, value in sorted(view["configs"].items())]
    age_ms = view.get("export_age_ms")  # An agent of an older release does not tell.
    columns = _COLUMNS
    if age_ms is not None:
        said.append(_export(partitions, age_ms))
        columns = {**_COLUMNS, _EXPORTED: "exported"}
    if source := view.get("exported_from"):
        said.append(f"export: said of table {source['table']}, snapshot {source['snapshot_id']}")
    said.append("")
    return said + table(tuple(columns), _rows(partitions, columns.values()))


def _rows(partitions: Iterable[Mapping[str, int | None]], names: Iterable[str]) -> list[list[Cell]]:
    names = tuple(names)
    return [[row[name] for name in names] for row in partitions]


def _export(partitions: Iterable[Mapping[str, int]], age_ms: int) -> str:
    """How many offsets are not in the table, at most so many records. The age of the last report
    says nothing while there is nothing to export: exporters report what is new."""
    left = sum(
        max(row["last_stable"] - max(row["exported"] or 0, row["log_start"]), 0)
        for row in partitions
    )
    if not left:
        return "export: nothing to go"
    return f"export: {count(left, 'offset')} to go, last report {age_ms // 1000} s ago"


def _size(size: int) -> str:
    """With three digits or so: 1.23 GiB."""
    amount, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{size} bytes" if units[0] == "bytes" else f"{amount:.3g} {units[0]}"
