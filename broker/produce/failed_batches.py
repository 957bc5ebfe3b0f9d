"""First batches of producers that failed in a partition: no later batch is taken until they are sent again.

A partition that knows a producer refuses a batch after a gap. One that does not know it takes
any sequence, as Kafka does (its state may have expired), so when the very first batch of a producer
is given up or refused here, batches that were on their way behind it would be appended, and its
repetition refused for ever. Until the failed batch comes again they are refused, too (P11), with an
error that makes clients send all of them again, in order.

Invariants: bounded in number and in time; a producer with a new epoch, or in a later transaction
than the batch that failed, begins anew (the earlier one is over, so nothing of it comes again);
of several batches that failed the one with the least sequence counts, in whatever order they did.
Pure.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.records import BatchHeader
from protocol.types import TopicId
from storage.accumulator import PendingBatch
from txn.producers import SEQUENCE_MASK

FAILED_BATCHES_MAX: Final = 10_000
FAILED_MS_MAX: Final = 120_000
"""Clients give up a record after two minutes (delivery.timeout.ms)."""

_Key = tuple[int, TopicId, int]
"""Producer id, topic, partition."""


class _Failed(NamedTuple):
    epoch: int
    instance: int
    first_sequence: int
    when_ms: int


class FailedBatches:
    """The oldest batch that failed, by producer and partition."""

    def __init__(self) -> None:
        self._failed: dict[_Key, _Failed] = {}  # Oldest first.

    def __len__(self) -> int:
        return len(self._failed)

    def note(self, failed: Iterable[PendingBatch], now_ms: int) -> None:
        """These batches were given up, in this order."""
        for batch in failed:
            self.note_one(batch, batch.instance, now_ms)

    def note_one(self, batch: PendingBatch, instance: int, now_ms: int) -> None:
        """The batch failed, and will come again as one of the transaction `instance`."""
        if batch.producer_id >= 0:
            key = (batch.producer_id, batch.topic_id, batch.partition)
            failed = _Failed(batch.producer_epoch, instance, batch.first_sequence, now_ms)
            self._note(key, failed)

    def note_refused(
        self,
        topic_id: TopicId,
        partition: int,
        header: BatchHeader,
        now_ms: int,
        *,
        instance: int = -1,
    ) -> None:
        """The batch was refused before it was taken, for a reason that will pass."""
        if header.producer_id >= 0:
            key = (header.producer_id, topic_id, partition)
            failed = _Failed(header.producer_epoch, instance, header.base_sequence, now_ms)
            self._note(key, failed)

    def _note(self, key: _Key, failed: "_Failed") -> None:
        known = self._failed.get(key)
        if known is not None and failed.when_ms - known.when_ms < FAILED_MS_MAX:
            if (known.epoch, known.instance) > (failed.epoch, failed.instance):
                return
            if (known.epoch, known.instance) == (failed.epoch, failed.instance) and not _is_before(
                failed.first_sequence, known.first_sequence
            ):
                return
        self._failed[key] = failed
        if len(self._failed) > FAILED_BATCHES_MAX:
            del self._failed[next(iter(self._failed))]

    def overtakes(
        self,
        topic_id: TopicId,
        partition: int,
        header: BatchHeader,
        now_ms: int,
        *,
        instance: int = -1,
    ) -> bool:
        """The batch would overtake one that failed, if the partition does not know its producer."""
        key = (header.producer_id, topic_id, partition)
        failed = self._failed.get(key)
        if failed is None:
            return False
        if (
            header.producer_epoch != failed.epoch
            or instance > failed.instance
            or now_ms - failed.when_ms >= FAILED_MS_MAX
            or header.base_sequence == failed.first_sequence
        ):
            del self._failed[key]
            return False
        return _is_before(failed.first_sequence, header.base_sequence)

    def forget(self, topic_id: TopicId, partition: int, producer_id: int) -> None:
        """The partition knows the producer by now, and judges gaps itself."""
        self._failed.pop((producer_id, topic_id, partition), None)


def _is_before(one: int, other: int) -> bool:
    """Sequence numbers are modulo 2**31: which is the earlier of two that are not far apart."""
    return 0 < (other - one) & SEQUENCE_MASK <= SEQUENCE_MASK >> 1
