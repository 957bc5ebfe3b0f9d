"""Keeps what was just written in memory, as the spans that the machine made of it.

Whoever reads at the head finds it there. Batches that the log refused, and duplicates, are left out.
"""

import logging
from collections.abc import Sequence

from broker.produce.commit_queue import BatchResult
from coordinator.tables.partitions import Partitions
from protocol.errors import ErrorCode
from protocol.types import Buffer
from storage.formats.batches import DamagedSpanError
from storage.formats.spans import ObjectId, Span
from storage.reader import Reader

logger = logging.getLogger(__name__)


class Publication:
    """From outcomes to the reader's memory."""

    def __init__(self, partitions: Partitions, reader: Reader) -> None:
        self._partitions = partitions
        self._reader = reader

    def publish(self, chunk_id: ObjectId, rows: Sequence[BatchResult]) -> None:
        """What became of the batches of a chunk, in the order of its bytes."""
        span: Span | None = None
        parts: list[Buffer] = []
        for batch, item, _ in rows:
            if item.error != ErrorCode.NONE or item.duplicate:
                continue
            if span is None or batch.start >= span.start + span.length:
                row = self._partitions.get(batch.topic_id, batch.partition)
                if row is None:  # The topic was deleted by a later command of the same entry.
                    span = None
                    continue
                index = row.find(item.base_offset)
                # Another command of the same entry may have deleted the records.
                found = row.row(index) if index < row.row_count else None
                parts = []
                if not isinstance(found, Span) or found.object_id != chunk_id:
                    span = None
                    continue
                span = found
            parts.append(batch.data)
            if batch.start + batch.length == span.start + span.length:
                self._keep(span, parts)
                span = None

    def _keep(self, span: Span, parts: list[Buffer]) -> None:
        try:
            self._reader.publish(span, parts)
        except DamagedSpanError as error:
            # The batches are in the log all the same; whoever reads them will be told.
            logger.warning("what was just written is not kept in memory: %s", error)
