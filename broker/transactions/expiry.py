"""Finds the transactional ids and producers that have expired, and the agent that proposes so. Pure.

Kafka's rules: an id without an open transaction is forgotten `transactional.id.expiration.ms`
after its newest change; what a partition knows of a producer, `producer.id.expiration.ms` after
that one's newest batch there, unless its transaction is open there. When nearly as many are known
as may be, a client may have made them to no purpose: then the oldest ones go sooner
(`pressed_expiration_ms`), since at the bound no producer could be new.

This preselects, by the machine's time, so a wild clock expires nothing; `apply` decides again.
Every agent looks at its share, found by rendezvous hashing over the live ones. While agents differ
about who is live, something is proposed twice, or left to the next look.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from broker.calls.shares import is_nearly_full
from broker.cluster.placement import best_rank
from coordinator.commands.transaction_commands import PartitionProducers
from coordinator.tables.partitions import WINDOWS_MAX
from coordinator.tables.transactions import TransactionRow
from protocol.types import TopicId
from txn.producers import updated_ms

IDS_PER_COMMAND_MAX: Final = 500
ID_BYTES_PER_COMMAND_MAX: Final = 32 * 1024
PRODUCERS_PER_COMMAND_MAX: Final = 1_000

PRESSED_SHARE: Final = 0.2
"""Of all producers known to partitions, so many go at once when there are nearly too many."""
PRESSED_MS_MIN: Final = 600_000
"""But none that wrote since: no client sends a batch again for so long (`delivery.timeout.ms`)."""

_MASK: Final = (1 << 64) - 1


def is_old(row: TransactionRow, *, time_ms: int, expiration_ms: int) -> bool:
    """Whether nobody has used the id for so long."""
    return not row.is_ongoing and row.changed_ms <= time_ms - expiration_ms


def idle(
    windows: Iterable[tuple[int, bytes]],
    *,
    started: Iterable[int],
    time_ms: int,
    expiration_ms: int,
) -> list[int]:
    """Producers of a partition that wrote nothing for so long.

    `windows`: by producer id; `started`: those whose transaction is open there.
    """
    old_ms = time_ms - expiration_ms
    kept = frozenset(started)
    return [
        producer_id
        for producer_id, window in windows
        if producer_id not in kept and updated_ms(window) <= old_ms
    ]


def is_crowded(window_count: int) -> bool:
    """Whether partitions know nearly as many producers as they may."""
    return is_nearly_full(window_count, WINDOWS_MAX)


def pressed_expiration_ms(idle_ms: Sequence[int], *, expiration_ms: int) -> int:
    """The expiration by which `PRESSED_SHARE` of the producers go that have been idle longest.

    `idle_ms`: of a sample.
    """
    longest_first = sorted(idle_ms, reverse=True)
    if not longest_first:
        return expiration_ms
    at = max(int(len(longest_first) * PRESSED_SHARE) - 1, 0)
    return min(max(longest_first[at], PRESSED_MS_MIN), expiration_ms)


def id_slices(transactional_ids: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """What one command may name each."""
    some: list[str] = []
    size = 0
    for each in transactional_ids:
        length = len(each.encode())
        if some and (len(some) == IDS_PER_COMMAND_MAX or size + length > ID_BYTES_PER_COMMAND_MAX):
            yield tuple(some)
            some, size = [], 0
        some.append(each)
        size += length
    if some:
        yield tuple(some)


class Slices:
    """Producers of many partitions, gathered into what one command may name."""

    def __init__(self) -> None:
        self._rows: list[PartitionProducers] = []
        self._count = 0

    def add(self, topic_id: TopicId, partition: int, producer_ids: Sequence[int]) -> None:
        """Whoever adds takes a command's worth at once, if there is one."""
        if producer_ids:
            self._rows.append(PartitionProducers(topic_id, partition, tuple(producer_ids)))
            self._count += len(producer_ids)

    def take(self, *, least: int = PRODUCERS_PER_COMMAND_MAX) -> tuple[PartitionProducers, ...]:
        """A command's worth, when there are at least so many; else nothing."""
        if self._count < max(least, 1):
            return ()
        taken: list[PartitionProducers] = []
        room = PRODUCERS_PER_COMMAND_MAX
        while room > 0 and self._rows:
            row = self._rows.pop()
            ids = row.producer_ids
            taken.append(row._replace(producer_ids=ids[:room]))
            if len(ids) > room:
                self._rows.append(row._replace(producer_ids=ids[room:]))
            self._count -= len(ids[:room])
            room -= len(ids[:room])
        return tuple(taken)


def has_share(
    topic_id: TopicId, partition: int, *, node_id: int | None, node_ids: Sequence[int]
) -> bool:
    """Whether an agent looks after the producers of a partition."""
    if node_id not in node_ids:
        return False
    seed = int.from_bytes(blake2b(topic_id, digest_size=8).digest()) + partition & _MASK
    return best_rank(seed, node_ids) == node_id
