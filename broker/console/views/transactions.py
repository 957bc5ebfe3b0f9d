"""Transactional ids in a list: all, or those whose transaction is open. Pure."""

from typing import Final, NamedTuple

from broker.console.views.page_of_rows import Asked, PageOfRows, page_of
from broker.transactions.views import STATE_NAMES
from coordinator.machine.machine import Machine
from coordinator.tables.transactions import TransactionRow

PLACES_SHOWN_MAX: Final = 10


class TransactionView(NamedTuple):
    """A transactional id, and its open transaction if there is one."""

    transactional_id: str
    state: str
    """Kafka's name."""
    producer_id: int
    epoch: int
    open_ms: int | None
    """How long its transaction has been open, by the machine's time; None: none is."""
    timeout_ms: int
    places: tuple[str, ...]
    """What takes part: `topic-partition`, the first PLACES_SHOWN_MAX."""
    participants: int
    """Partitions and groups."""


def transactions_view(
    machine: Machine, asked: Asked, *, only_open: bool
) -> PageOfRows[TransactionView]:
    """A page of the list, by transactional id."""
    rows = machine.transactions.ongoing.values() if only_open else machine.transactions
    page = page_of((row.transactional_id for row in rows), asked)
    found = filter(None, map(machine.transactions.get, page.rows))
    return PageOfRows([_view(machine, row) for row in found], page.asked, page.found, page.total)


def _view(machine: Machine, row: TransactionRow) -> TransactionView:
    known = [
        f"{topic.name}-{partition}"
        for topic_id, partition in list(row.partitions)[:PLACES_SHOWN_MAX]
        if (topic := machine.topics.by_id(topic_id)) is not None
    ]
    return TransactionView(
        transactional_id=row.transactional_id,
        state=STATE_NAMES[row.txn_metadata.state],
        producer_id=row.txn_metadata.producer_id,
        epoch=row.txn_metadata.epoch,
        open_ms=max(0, machine.time_ms - row.started_ms) if row.is_ongoing else None,
        timeout_ms=row.timeout_ms,
        places=tuple(known),
        participants=len(row.partitions) + len(row.group_ids),
    )
