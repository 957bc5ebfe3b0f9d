"""Descriptions of transactions for clients: names of states, rows, filters. Pure.

KIP-664 (tools for transactions), KIP-994 (filters by duration), KIP-1152 (by pattern). Of Kafka's
states four occur here: no transaction is ever half ended (`txn.transactions`). Who asks for the
others finds none, but is not told that there are no such states.

Left out: who coordinates which id, barriers.
"""

import struct
from collections.abc import Collection, Iterable
from operator import mul
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from broker import patterns
from protocol.messages import DescribedTransaction, ListedTransaction, TransactionTopic
from protocol.slices import Sliced
from txn.transactions import State

if TYPE_CHECKING:  # The tools need the names here, and no machine.
    from coordinator.tables.topics import Topics
    from coordinator.tables.transactions import TransactionRow

STATE_NAMES: Final = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}
STATES_ELSEWHERE: Final = ("PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence")

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50
"""Kafka's default (`offsets.topic.num.partitions`)."""
_UNIT: Final = struct.Struct(">H")
_POWERS: Final = tuple([31**power & 0xFFFF_FFFF for power in reversed(range(256))])
CHARACTERS_A_SLICE: Final = 10_000
"""Of group ids that are hashed: a millisecond."""


def described(
    row: "TransactionRow", topics: "Topics", offsets: Collection[int]
) -> DescribedTransaction:
    """What takes part is told of an open transaction only; topics that are gone drop out.

    `offsets`: partitions of its groups (`offsets_partitions`).
    """
    txn_metadata = row.txn_metadata
    found: dict[str, list[int]] = {}
    if txn_metadata.state is State.ONGOING:
        for topic_id, partition in row.partitions:
            topic = topics.by_id(topic_id)
            if topic is not None:
                found.setdefault(topic.name, []).append(partition)
        if offsets:
            found[OFFSETS_TOPIC] = sorted(offsets)
    return DescribedTransaction(
        transactional_id=row.transactional_id,
        transaction_state=STATE_NAMES[txn_metadata.state],
        transaction_timeout_ms=row.timeout_ms,
        transaction_start_time_ms=row.started_ms,
        producer_id=txn_metadata.producer_id,
        producer_epoch=txn_metadata.epoch,
        topics=[
            TransactionTopic(topic=name, partitions=sorted(partitions))
            for name, partitions in found.items()
        ],
    )


def listed(row: "TransactionRow") -> ListedTransaction:
    return ListedTransaction(
        transactional_id=row.transactional_id,
        producer_id=row.txn_metadata.producer_id,
        transaction_state=STATE_NAMES[row.txn_metadata.state],
    )


class Filter(NamedTuple):
    """Which rows a ListTransactions request asks for."""

    states: frozenset[str] | None
    """None: all."""
    producer_ids: frozenset[int] | None
    longer_than_ms: int
    """Since the start of the newest transaction; negative: however long. Kafka looks at the start
    alone, so an id without a transaction counts as one that has run for ever."""
    pattern: Any
    """Compiled, or None."""

    @classmethod
    def of(
        cls, *, states: Iterable[str], producer_ids: Iterable[int], longer_than_ms: int, regex: str
    ) -> Self:
        """Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
        return cls(
            states=frozenset(states) or None,
            producer_ids=frozenset(producer_ids) or None,
            longer_than_ms=longer_than_ms,
            pattern=patterns.compiled(regex, field="TransactionalIdPattern") if regex else None,
        )

    def elements(self, row: "TransactionRow") -> int:
        """What it costs at worst to match the row's id, in elements that are looked at."""
        return 0 if self.pattern is None else patterns.elements(self.pattern, row.transactional_id)

    def fits(self, row: "TransactionRow", *, now_ms: int) -> bool:
        txn_metadata = row.txn_metadata
        if self.producer_ids is not None and txn_metadata.producer_id not in self.producer_ids:
            return False
        if self.states is not None and STATE_NAMES[txn_metadata.state] not in self.states:
            return False
        if self.longer_than_ms >= 0 and now_ms - row.started_ms <= self.longer_than_ms:
            return False
        return self.pattern is None or self.pattern.fullmatch(row.transactional_id) is not None


def unknown_states(names: Iterable[str]) -> list[str]:
    """Those that Kafka does not have either, each once."""
    known = {*STATE_NAMES.values(), *STATES_ELSEWHERE}
    return [name for name in dict.fromkeys(names) if name not in known]


def offsets_partitions(group_ids: Iterable[str]) -> Sliced[frozenset[int]]:
    """`offsets_partition` of all of them, which may be many, and of 32 KB each."""
    found: set[int] = set()
    left = CHARACTERS_A_SLICE
    for group_id in list(group_ids):
        found.add(offsets_partition(group_id))
        left -= len(group_id)
        if left <= 0:
            yield
            left = CHARACTERS_A_SLICE
    return frozenset(found)


def offsets_partition(group_id: str) -> int:
    """Where Kafka would keep a group's offsets: its hash of the id, over as many partitions.

    The hash is Java's, of UTF-16 units, without its sign bit (`GroupCoordinator.partitionFor`).
    """
    data = group_id.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(data), 2 * len(_POWERS)):
        units = [unit for (unit,) in _UNIT.iter_unpack(data[at : at + 2 * len(_POWERS)])]
        # Of so many units at once: one by one, ids of 32 KB would take three times as long.
        powers = _POWERS[-len(units) :]
        hashed = (31 * powers[0] * hashed + sum(map(mul, units, powers))) & 0xFFFF_FFFF
    # `Utils.abs`: the least int becomes 0.
    signed = hashed - (1 << 32) if hashed & 1 << 31 else hashed
    return (0 if signed == -(1 << 31) else abs(signed)) % OFFSETS_PARTITIONS
