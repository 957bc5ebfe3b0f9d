"""Which open transactions have timed out, by one agent's own clock. Pure.

Each agent notes when it first saw a transaction open. The clock is boot time without the agent's
stalls and without the times in which it had no proven session: neither a wall clock that jumps,
nor a frozen agent, nor an outage of the log ends anything early (P6). An agent that has just
started gives every transaction its whole time again.

The coordinator of the id acts first; if the transaction stays open, the next agent does, and so
on. More than one may act: the command names the transaction, so the second changes nothing.

Invariants: a transaction is looked at again before its time is up only when there are as many
entries of ended ones as of open ones; memory follows the number of open transactions (P15).
"""

import heapq
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

from coordinator.tables.transactions import TransactionRow

TAKEOVER_MS: Final = 30_000
"""For so long each agent leaves a timed out transaction to those whose turn it is before."""
STALE_MIN: Final = 1_000


class _Name(NamedTuple):
    """One transaction of a transactional id. An id that was forgotten begins at number 1 again,
    with another producer."""

    producer_id: int
    instance: int


class _Entry(NamedTuple):
    due_ms: int
    transactional_id: str
    name: _Name


class OpenTransactions:
    """What one agent has seen of open transactions, and since when."""

    def __init__(self, *, takeover_ms: int = TAKEOVER_MS) -> None:
        self._takeover_ms = takeover_ms
        self._seen: dict[str, tuple[_Name, int]] = {}
        """Which one, and when it was first seen open; of ended ones too for a while."""
        self._heap: list[_Entry] = []

    def observe(self, ongoing: Mapping[str, TransactionRow], now_ms: int) -> None:
        """Note those that are open; `ongoing` is in order of start."""
        new = []
        for row in reversed(cast("dict[str, TransactionRow]", ongoing).values()):
            known = self._seen.get(row.transactional_id)
            if known is not None and known[0] == _name(row):
                break  # Whatever began before was seen before.
            new.append(row)
        for row in reversed(new):
            name = _name(row)
            self._seen[row.transactional_id] = (name, now_ms)
            due_ms = now_ms + row.timeout_ms
            heapq.heappush(self._heap, _Entry(due_ms, row.transactional_id, name))
        if len(self._heap) > STALE_MIN + 2 * len(ongoing):
            self._sweep(ongoing)

    def overdue(
        self,
        ongoing: Mapping[str, TransactionRow],
        now_ms: int,
        turn: Callable[[str], int],
    ) -> list[TransactionRow]:
        """Open transactions that this agent should end now; again each time while they are open.

        `turn`: how many agents come before this one, of a transactional id.
        """
        due: list[TransactionRow] = []
        later: list[_Entry] = []
        while self._heap and self._heap[0].due_ms <= now_ms:
            entry = heapq.heappop(self._heap)
            row = ongoing.get(entry.transactional_id)
            if row is None or _name(row) != entry.name:
                self._forget(entry)
                continue
            later.append(entry)
            # An open transaction keeps the timeout that it began with.
            if now_ms - entry.due_ms >= turn(entry.transactional_id) * self._takeover_ms:
                due.append(row)
        for entry in later:
            heapq.heappush(self._heap, entry)
        return due

    def oldest_ms(self, ongoing: Mapping[str, TransactionRow], now_ms: int) -> int:
        """For how long the oldest open transaction has been seen open; 0 when there is none."""
        for row in ongoing.values():
            known = self._seen.get(row.transactional_id)
            return 0 if known is None else max(0, now_ms - known[1])
        return 0

    def _sweep(self, ongoing: Mapping[str, TransactionRow]) -> None:
        """Forget those that have ended."""
        self._heap = [
            entry
            for entry in self._heap
            if (row := ongoing.get(entry.transactional_id)) is not None and _name(row) == entry.name
        ]
        heapq.heapify(self._heap)
        ids = [entry.transactional_id for entry in self._heap]
        self._seen = {transactional_id: self._seen[transactional_id] for transactional_id in ids}

    def _forget(self, entry: _Entry) -> None:
        """It has ended; another one of the id may have begun since, and ended as well."""
        name, _ = self._seen.get(entry.transactional_id, (None, 0))
        if name == entry.name:
            del self._seen[entry.transactional_id]


def _name(row: TransactionRow) -> _Name:
    return _Name(row.txn_metadata.producer_id, row.txn_metadata.instance)
