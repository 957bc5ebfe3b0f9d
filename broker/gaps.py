"""Producers whose first batches in a partition failed: what must not be taken before they come again.

A partition that knows a producer refuses a batch after a gap. One that does not know it takes
any sequence, as Kafka does (its state may have expired), so when the very first batch of a producer
is given up or refused here, batches that were on their way behind it would be appended, and its
repetition refused for ever. Until the failed batch comes again they are refused, too (P11), with an
error that makes clients send all of them again, in order.

Invariants: bounded in number and in time; a producer with a new epoch begins anew; of several
batches that failed the one with the least sequence counts, in whatever order they did. Pure.
"""

from collections.abc import Iterable
from typing import Final

from protocol.records import BatchHeader
from protocol.types import TopicId
from storage.accumulator import PendingBatch
from txn.producers import SEQUENCE_MASK

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
            if batch.producer_id >= 0:
                key = (batch.producer_id, batch.topic_id, batch.partition)
                self._note(key, batch.producer_epoch, batch.first_sequence, now_ms)

    def note_refused(
        self, topic_id: TopicId, partition: int, header: BatchHeader, now_ms: int
    ) -> None:
        """The batch was refused before it was taken, for a reason that will pass."""
        if header.producer_id >= 0:
            key = (header.producer_id, topic_id, partition)
            self._note(key, header.producer_epoch, header.base_sequence, now_ms)

    def _note(self, key: _Key, epoch: int, first_sequence: int, now_ms: int) -> None:
        known = self._failed.get(key)
        if known is not None and now_ms - known[2] < GAP_MS_MAX:
            if known[0] > epoch:
                return
            if known[0] == epoch and not _is_before(first_sequence, known[1]):
                return
        self._failed[key] = (epoch, first_sequence, now_ms)
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
        if header.producer_epoch != epoch or now_ms - failed_ms >= GAP_MS_MAX:
            del self._failed[key]
            return False
        if header.base_sequence == first_sequence:
            del self._failed[key]
            return False
        return _is_before(first_sequence, header.base_sequence)

    def forget(self, topic_id: TopicId, partition: int, producer_id: int) -> None:
        """The partition knows the producer by now, and judges gaps itself."""
        self._failed.pop((producer_id, topic_id, partition), None)


def _is_before(one: int, other: int) -> bool:
    """Sequence numbers are modulo 2**31: which is the earlier of two that are not far apart."""
    return 0 < (other - one) & SEQUENCE_MASK <= SEQUENCE_MASK >> 1
