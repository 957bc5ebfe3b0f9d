"""Producers whose first batches in a partition failed: what must not be taken before they come again.

A partition that knows a producer refuses a batch after a gap. One that does not know it takes
any sequence, as Kafka does (its state may have expired), so when the very first batch of a producer
is given up here, batches that were on their way behind it would be appended, and its repetition
refused for ever. Until the failed batch comes again they are refused like any gap (P11): clients
know OUT_OF_ORDER_SEQUENCE_NUMBER behind a failed batch and send all of them again.

Invariants: bounded in number and in time; a producer with a new epoch begins anew. Pure.
"""

from collections.abc import Iterable
from typing import Final

from broker.commit_queue import ticket_of
from protocol.records import BatchHeader
from protocol.types import TopicId
from storage.accumulator import PendingBatch

GAPS_MAX: Final = 10_000
GAP_MS_MAX: Final = 120_000
"""Clients give up a record after two minutes (delivery.timeout.ms)."""

_Key = tuple[int, TopicId, int]
"""Producer id, topic, partition."""


class Gaps:
    """The oldest batch that failed, by producer and partition."""

    def __init__(self) -> None:
        # Epoch, first sequence, when; oldest first.
        self._failed: dict[_Key, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def note(self, failed: Iterable[PendingBatch], now_ms: int) -> None:
        """These batches were given up, in this order."""
        for batch in failed:
            if batch.producer_id < 0:
                continue
            assert ticket_of(batch).sender == batch.producer_id
            key = (batch.producer_id, batch.topic_id, batch.partition)
            known = self._failed.get(key)
            if known is not None and known[0] >= batch.producer_epoch:
                continue
            self._failed[key] = (batch.producer_epoch, batch.first_sequence, now_ms)
            if len(self._failed) > GAPS_MAX:
                del self._failed[next(iter(self._failed))]

    def overtakes(
        self, topic_id: TopicId, partition: int, header: BatchHeader, now_ms: int
    ) -> bool:
        """The batch would overtake one that failed, if the partition does not know its producer."""
        key = (header.producer_id, topic_id, partition)
        known = self._failed.get(key)
        if known is None:
            return False
        epoch, first_sequence, failed_ms = known
        if (
            header.producer_epoch == epoch
            and header.base_sequence != first_sequence
            and now_ms - failed_ms < GAP_MS_MAX
        ):
            return True
        del self._failed[key]
        return False

    def forget(self, topic_id: TopicId, partition: int, producer_id: int) -> None:
        """The partition knows the producer by now, and judges gaps itself."""
        self._failed.pop((producer_id, topic_id, partition), None)
