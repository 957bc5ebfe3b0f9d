"""What an applied entry brings to delayed fetches: bytes, stable offsets, logs that begin later.

Counts into the purgatory (`broker.fetch.purgatory`); whoever owns it wakes what became ready.
"""

from collections.abc import Sequence
from typing import Any

from broker.fetch.purgatory import FetchPurgatory
from coordinator.commands.entries import ChunkCommitted, Command, CommitChunk
from coordinator.commands.job_commands import ExpireRecords, LogsTrimmed, TrimLogs
from coordinator.commands.table_commands import ExpireHeldRecords
from coordinator.commands.transaction_commands import Marked
from coordinator.machine.machine import Machine
from protocol.types import TopicId
from storage.formats.spans import MARKER_BYTES


class Arrivals:
    """Each method returns whether a fetch may have become ready."""

    def __init__(self, parked: FetchPurgatory[Any], machine: Machine, *, bytes_max: int) -> None:
        self._parked = parked
        self._machine = machine
        self._bytes_max = bytes_max
        """No fetch is given more."""

    def chunk(self, command: CommitChunk, outcome: ChunkCommitted) -> bool:
        woken = False
        first = 0
        for span in command.spans:
            end = first + len(span.items)
            if self._parked.is_watched(span.topic_id, span.partition):
                byte_count = records = 0
                base_offset = -1
                for item, result in zip(span.items, outcome.results[first:end], strict=True):
                    if not result.error and not result.duplicate:
                        byte_count += item.length
                        records += item.records
                        if base_offset < 0:
                            base_offset = result.base_offset
                if byte_count:
                    woken |= self._parked.arrived(span.topic_id, span.partition, byte_count)
                    woken |= self._count_stable(
                        span.topic_id, span.partition, (base_offset, records, byte_count)
                    )
            first = end
        return woken

    def markers(self, marked: Sequence[Marked]) -> bool:
        woken = False
        for topic_id, partition, _ in marked:
            if self._parked.is_watched(topic_id, partition):
                woken |= self._parked.arrived(topic_id, partition, MARKER_BYTES)
                woken |= self._count_stable(topic_id, partition)
        return woken

    def _count_stable(
        self, topic_id: TopicId, partition: int, added: tuple[int, int, int] = (-1, 0, 0)
    ) -> bool:
        """Count what has become stable since the last time, for polls that wait for that.

        `added`: base offset, records and bytes that were appended, all that there is to count
        unless there are transactions.
        """
        counted = self._parked.counted(topic_id, partition)
        if counted is None:
            return False
        row = self._machine.partitions.get(topic_id, partition)
        if row is None or row.last_stable <= counted:
            return False
        base_offset, records, byte_count = added
        last_stable = base_offset + records
        if base_offset != counted or row.last_stable < last_stable:
            last_stable = row.last_stable
            # No fetch waits for more than the agent gives, so no more need be counted.
            byte_count = row.bytes_between(counted, last_stable, self._bytes_max)
        return self._parked.advanced(topic_id, partition, byte_count, last_stable)

    def trimmed(self, command: Command, outcome: LogsTrimmed) -> bool:
        """Whoever waits where a log's start moved may be out of range now, and must look again."""
        woken = False
        places: list[tuple[TopicId, int]] = []
        if isinstance(command, TrimLogs):
            places = [(trim.topic_id, trim.partition) for trim in command.trims]
        elif isinstance(command, ExpireRecords | ExpireHeldRecords):
            places = [(expiry.topic_id, expiry.partition) for expiry in command.expiries]
        for place, trimmed in zip(places, outcome.results, strict=True):
            if not trimmed.error:
                woken |= self._parked.unsettled(*place)
        return woken
