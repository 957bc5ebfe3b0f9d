"""The table of exports: how far each topic's table is, as an exporter last said.

Retention of a topic that waits for its export asks here (`bounding`). Nothing of the export's
exactness rests on it: a table carries its own offsets.

Invariant: topics that are here exist, and so do their partitions.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from coordinator.commands.entries import DONE, Done, Rejected
from coordinator.commands.layout import Int64, UInt63
from coordinator.commands.table_commands import EXPORT_ENDS_MAX, ReportExport
from coordinator.tables.objects import Moment
from coordinator.tables.partitions import Partitions
from protocol.errors import ErrorCode
from protocol.types import TopicId


class ExportRow(NamedTuple):
    """What was said of one topic."""

    reported_ms: Int64
    """When it was last said, in the machine's time."""
    offsets: Mapping[UInt63, UInt63]
    """By partition: everything before is in the table, or never will be."""


class Exports:
    """Topics of whose export something was said, in the order in which it first was."""

    def __init__(self) -> None:
        self._rows: dict[TopicId, ExportRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def items(self) -> Iterator[tuple[TopicId, ExportRow]]:
        return iter(self._rows.items())

    def get(self, topic_id: TopicId) -> ExportRow | None:
        return self._rows.get(topic_id)

    def offset(self, topic_id: TopicId, partition: int) -> int:
        """Everything before is exported; 0 when nothing was said."""
        row = self._rows.get(topic_id)
        return 0 if row is None else row.offsets.get(partition, 0)

    # For `apply`.

    def report(
        self, command: ReportExport, partitions: Partitions, moment: Moment
    ) -> Done | Rejected:
        if not 0 < len(command.ends) <= EXPORT_ENDS_MAX:
            reason = f"a report is about 1 to {EXPORT_ENDS_MAX} partitions"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        for number, offset in command.ends:
            partition = partitions.get(command.topic_id, number)
            if partition is None:
                reason = f"there is no such topic, or no partition {number}"
                return Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            if not 0 <= offset <= partition.end_offset:
                reason = f"partition {number} ends at {partition.end_offset}, not at {offset}"
                return Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        before = self._rows.get(command.topic_id)
        offsets = {} if before is None else dict(before.offsets)
        offsets.update(command.ends)
        self._rows[command.topic_id] = ExportRow(moment.time_ms, dict(sorted(offsets.items())))
        return DONE

    def remove(self, topic_id: TopicId) -> None:
        """The topic is deleted."""
        self._rows.pop(topic_id, None)
