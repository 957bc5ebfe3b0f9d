"""What must hold in every agent of the batches that it takes: none overtakes another (P11).

Batches of one sender and partition are appended in the order in which they were taken. When one is
given up, those that were taken after it and before that are not appended either: its client sends
it again. It looks on where the produce path takes and settles batches, and schedules nothing.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.node import Node
from broker.produce.commit_queue import BatchResult, Ticket, ticket_of
from protocol.errors import ErrorCode
from protocol.types import TopicId
from storage.accumulator import PendingBatch
from storage.formats.spans import ObjectId


@dataclass
class _Order:
    """Of the batches of a sender in a partition, at one agent; they are numbered from 1."""

    taken: int = 0
    """How many."""
    appended: int = 0
    """The newest of them."""
    given_up: list[tuple[int, int]] = field(default_factory=list)
    """Each, and the newest that had been taken by then."""


class BatchAccount:
    """Of all agents of one run."""

    def __init__(self, violations: list[str]) -> None:
        self._violations = violations
        self._orders: dict[tuple[str, int, TopicId, int], _Order] = defaultdict(_Order)
        self._numbers: dict[Ticket, int] = {}
        """Of those that are not settled."""

    def begins(self, owner: str, node: Node) -> None:
        producing = node.producing
        publication = producing._publication
        producing.__dict__["add"] = functools.partial(self._add, owner, producing.add)
        producing.__dict__["_refuse"] = functools.partial(self._refuse, owner, producing._refuse)
        publication.__dict__["publish"] = functools.partial(
            self._publish, owner, publication.publish
        )

    def _add(
        self,
        owner: str,
        add: Callable[..., None],
        ticket: Ticket,
        topic_id: TopicId,
        partition: int,
        *arguments: object,
        **named: object,
    ) -> None:
        order = self._orders[owner, ticket.sender, topic_id, partition]
        order.taken += 1
        self._numbers[ticket] = order.taken
        add(ticket, topic_id, partition, *arguments, **named)

    def _refuse(
        self,
        owner: str,
        refuse: Callable[..., None],
        batches: list[PendingBatch],
        *arguments: object,
    ) -> None:
        """They are not in the log and never will be."""
        for batch in batches:
            order = self._order_of(owner, batch)
            order.given_up.append((self._numbers.pop(ticket_of(batch)), order.taken))
        refuse(batches, *arguments)

    def _publish(
        self,
        owner: str,
        publish: Callable[..., None],
        chunk_id: ObjectId,
        rows: Sequence[BatchResult],
    ) -> None:
        for batch, item, _ in rows:
            number = self._numbers.pop(ticket_of(batch))
            if item.error == ErrorCode.NONE and not item.duplicate:
                self._appended(owner, batch, number)
        publish(chunk_id, rows)

    def _appended(self, owner: str, batch: PendingBatch, number: int) -> None:
        order = self._order_of(owner, batch)
        sender = ticket_of(batch).sender
        which = f"batch {number} of sender {sender} in partition {batch.partition} of {owner}"
        if number < order.appended:
            self._violations.append(f"{which} is in the log behind {order.appended} (P11)")
        order.appended = max(order.appended, number)
        overtaken = [first for first, newest in order.given_up if first < number <= newest]
        if overtaken:
            text = f"{which} is in the log, and {overtaken[0]} before it was given up (P11)"
            self._violations.append(text)

    def _order_of(self, owner: str, batch: PendingBatch) -> _Order:
        return self._orders[owner, ticket_of(batch).sender, batch.topic_id, batch.partition]
