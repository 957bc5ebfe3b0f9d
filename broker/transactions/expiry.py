"""Finds the transactional ids and producers that have expired, and the agent that proposes so. Pure.

Kafka's rules: an id without an open transaction is forgotten `transactional.id.expiration.ms`
after its newest change; what a partition knows of a producer, `producer.id.expiration.ms` after
that one's newest batch there, unless its transaction is open there. When nearly as many are known
as may be, a client may have made them to no purpose: then those that were idle longest go sooner
(`pressed_expiration_ms`), since at the bound no producer, or no id, could be new.

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
from coordinator.tables.transactions import (
    ID_SIZE_MAX,
    TRANSACTIONAL_IDS_MAX,
    TransactionRow,
    Transactions,
)
from protocol.types import TopicId
from txn.producers import updated_ms

IDS_PER_COMMAND_MAX: Final = 500
ID_BYTES_PER_COMMAND_MAX: Final = 32 * 1024
PRODUCERS_PER_COMMAND_MAX: Final = 1_000

PRESSED_SHARE: Final = 0.2
"""Of all producers known to partitions, so many go at once when there are nearly too many; so it is
of all transactional ids."""
PRESSED_MS_MIN: Final = 600_000
"""But none that wrote since: no client sends a batch again for so long (`delivery.timeout.ms`)."""

IDS_CROWDED_SHARE: Final = 0.75
"""Of all transactional ids that there may be: from here on the oldest go sooner. One address is refused at
nine tenths (`broker.calls.shares`), and notices nothing as long as there are ids to let go of."""
IDS_PRESSED_MS_MIN: Final = 3_600_000
"""No id goes sooner that was used since, whatever `transaction.max.timeout.ms` is (`ids_floor_ms`)."""
IDS_SAMPLED: Final = 1_000
"""About so many ids are looked at to find which ones are the oldest."""

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


def has_many_ids(transactions: Transactions) -> bool:
    """Whether there are nearly as many transactional ids, or characters in them, as there may be."""
    return (
        len(transactions) >= IDS_CROWDED_SHARE * TRANSACTIONAL_IDS_MAX
        or transactions.size >= IDS_CROWDED_SHARE * ID_SIZE_MAX
    )


def ids_floor_ms(*, timeout_ms_max: int) -> int:
    """For how long an id is idle at least before it goes sooner.

    Whoever is away for longer than a transaction may be open has lost the open one anyway. What else
    it had of the id is that a commit may be repeated, and Flink repeats those of its newest
    checkpoint when a job comes back, for which its own default gives it an hour.
    """
    return max(IDS_PRESSED_MS_MIN, timeout_ms_max)


def sampled_idle_ms(rows: Sequence[TransactionRow], *, time_ms: int) -> list[int]:
    """For how long ids without an open transaction are idle, of a sample; all when they are few.

    `rows`: in order of creation, so that the sample has old ones and young ones.
    """
    every = max(len(rows) // IDS_SAMPLED, 1)
    return [time_ms - row.changed_ms for row in rows[::every] if not row.is_ongoing]


def pressed_expiration_ms(
    idle_ms: Sequence[int], *, expiration_ms: int, floor_ms: int = PRESSED_MS_MIN
) -> int:
    """The expiration by which `PRESSED_SHARE` of them go that have been idle longest.

    `idle_ms`: of a sample; `floor_ms`: none goes that is idle for less.
    """
    longest_first = sorted(idle_ms, reverse=True)
    if not longest_first:
        return expiration_ms
    at = max(int(len(longest_first) * PRESSED_SHARE) - 1, 0)
    return min(max(longest_first[at], floor_ms), expiration_ms)


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
