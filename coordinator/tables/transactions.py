"""The table of transactional ids: where each one stands, and what takes part in its transaction.

What a request does to an id's metadata is decided in `txn.transactions`; here it is kept, with the
partitions and groups of the open transaction, and counted against the bounds.

Invariants: a row is found by its transactional id, by the producer id of its metadata, and by the
one before that if its epochs were exhausted; `ongoing` has the rows whose transaction is open, in
the order of start, and only those have anything that takes part.

Left out: carrying out commands (`transacting`); offsets that wait for the end (`group_offsets`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator.commands.entries import Rejected
from coordinator.tables.partition import Partition
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position, TopicId
from txn.transactions import State, TransactionMetadata

TRANSACTIONAL_IDS_MAX: Final = 100_000
PARTICIPANTS_MAX: Final = 100_000
"""Partitions and groups of one transaction."""
ALL_PARTICIPANTS_MAX: Final = 1_000_000
"""Of all open transactions."""
ID_SIZE_MAX: Final = 64 * 1024 * 1024
"""Characters of all transactional ids, and of the ids of all groups that take part."""

_NO_PARTITIONS: Final[dict[tuple[TopicId, int], Partition]] = {}
_NO_GROUPS: Final[dict[str, None]] = {}
"""Shared by all rows without an open transaction, and never written."""


@dataclass(slots=True, eq=False)
class TransactionRow:
    """A transactional id. To be read only, but by `apply`."""

    transactional_id: str
    txn_metadata: TransactionMetadata
    timeout_ms: int = 0
    started_ms: int = -1
    """Wall clock of the writer when the newest transaction began; -1: none did since
    InitProducerId."""
    changed_ms: int = 0
    """The machine's time at the newest change."""
    ended_at: Position = POSITION_ZERO
    """Where the newest transaction that is over ended."""
    partitions: dict[tuple[TopicId, int], Partition] = field(default_factory=lambda: _NO_PARTITIONS)
    """Those that take part in the open transaction, in order of adds, also without records."""
    group_ids: dict[str, None] = field(default_factory=lambda: _NO_GROUPS)

    @property
    def is_ongoing(self) -> bool:
        return self.txn_metadata.state is State.ONGOING


class Transactions:
    """Transactional ids, in order of creation. What is not a query is for `apply` alone."""

    def __init__(self) -> None:
        self._rows: dict[str, TransactionRow] = {}
        self._by_producer: dict[int, TransactionRow] = {}
        self._ongoing: dict[str, TransactionRow] = {}
        self.participants = 0
        """What ALL_PARTICIPANTS_MAX bounds."""
        self.size = 0
        """What ID_SIZE_MAX bounds."""

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TransactionRow]:
        return iter(self._rows.values())

    @property
    def ongoing(self) -> Mapping[str, TransactionRow]:
        """Open transactions by transactional id, in order of start."""
        return self._ongoing

    def get(self, transactional_id: str) -> TransactionRow | None:
        return self._rows.get(transactional_id)

    def by_producer(self, producer_id: int) -> TransactionRow | None:
        """The row that has the producer id, or had it until its epochs were exhausted."""
        return self._by_producer.get(producer_id)

    def validate_new(self, transactional_id: str) -> Rejected | None:
        """Why there cannot be one more transactional id."""
        if not transactional_id:
            return Rejected(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        if len(self._rows) >= TRANSACTIONAL_IDS_MAX:
            reason = f"there are {TRANSACTIONAL_IDS_MAX} transactional ids already"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        return self._validate_size(len(transactional_id))

    def validate_room(
        self,
        row: TransactionRow,
        partitions: tuple[tuple[TopicId, int], ...],
        group_ids: tuple[str, ...],
    ) -> Rejected | None:
        """Why these cannot take part as well. Looked at closely only near a bound."""
        count = len(partitions) + len(group_ids)
        before = len(row.partitions) + len(row.group_ids)
        if (
            before + count <= PARTICIPANTS_MAX
            and self.participants + count <= ALL_PARTICIPANTS_MAX
            and not group_ids
        ):
            return None
        new_groups = {*group_ids}.difference(row.group_ids)
        new = len({*partitions}.difference(row.partitions)) + len(new_groups)
        if new and before + new > PARTICIPANTS_MAX:
            reason = f"a transaction has at most {PARTICIPANTS_MAX} partitions and groups"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        if new and self.participants + new > ALL_PARTICIPANTS_MAX:
            reason = f"open transactions have at most {ALL_PARTICIPANTS_MAX} partitions and groups"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        return self._validate_size(sum([len(group_id) for group_id in new_groups]))

    def _validate_size(self, growth: int) -> Rejected | None:
        if growth == 0 or self.size + growth <= ID_SIZE_MAX:
            return None
        reason = f"ids in transactions have at most {ID_SIZE_MAX} characters"
        return Rejected(ErrorCode.POLICY_VIOLATION, reason)

    def create(self, transactional_id: str, txn_metadata: TransactionMetadata) -> TransactionRow:
        """`validate_new` had no objection; `transition_to` comes next."""
        row = self._rows[transactional_id] = TransactionRow(transactional_id, txn_metadata)
        self._by_producer[txn_metadata.producer_id] = row
        self.size += len(transactional_id)
        return row

    def transition_to(
        self, row: TransactionRow, after: TransactionMetadata, *, clock_ms: int, time_ms: int
    ) -> None:
        """The row stands there from now on; a transaction that begins by it has nobody yet.

        Of one that ends by it, `partitions` and `group_ids` are forgotten.
        """
        before, row.txn_metadata = row.txn_metadata, after
        row.changed_ms = time_ms
        if before.producer_id != after.producer_id:
            self._by_producer.pop(before.previous_id, None)
            self._by_producer[after.producer_id] = row
            assert after.previous_id == before.producer_id
        if before.state is after.state:
            return
        if after.state is State.ONGOING:
            self._ongoing[row.transactional_id] = row
            row.started_ms = clock_ms
            row.partitions, row.group_ids = {}, {}
        elif before.state is State.ONGOING:
            self._clear(row)

    def join(
        self, row: TransactionRow, partitions: list[Partition], group_ids: tuple[str, ...]
    ) -> None:
        """These take part, also if they did already. `validate_room` had no objection."""
        assert row.is_ongoing
        before = len(row.partitions) + len(row.group_ids)
        for partition in partitions:
            row.partitions[partition.topic_id, partition.partition] = partition
        for group_id in group_ids:
            if group_id not in row.group_ids:
                row.group_ids[group_id] = None
                self.size += len(group_id)
        self.participants += len(row.partitions) + len(row.group_ids) - before

    def remove(self, row: TransactionRow) -> None:
        """Forget a transactional id without an open transaction."""
        assert not row.is_ongoing
        del self._rows[row.transactional_id]
        self.size -= len(row.transactional_id)
        for producer_id in (row.txn_metadata.producer_id, row.txn_metadata.previous_id):
            self._by_producer.pop(producer_id, None)

    def _clear(self, row: TransactionRow) -> None:
        del self._ongoing[row.transactional_id]
        self.participants -= len(row.partitions) + len(row.group_ids)
        self.size -= sum([len(group_id) for group_id in row.group_ids])
        row.partitions, row.group_ids = _NO_PARTITIONS, _NO_GROUPS
