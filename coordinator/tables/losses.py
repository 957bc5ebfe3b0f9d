"""The table of losses: which offsets of a partition were declared lost, and when.

The rows say only that nothing lies there, as where compaction has left nothing. Who copies a log elsewhere
(the exporter) has to tell people the difference.

Invariants: of a partition, losses are in order, apart from each other, and at most LOSSES_MAX: those that touch
become one, with the newer time, and beyond the bound those at the lowest offsets are forgotten. A deleted topic has none.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.types import TopicId

LOSSES_MAX: Final = 100
"""Of a partition."""


class Loss(NamedTuple):
    """Offsets [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    declared_ms: int
    """The machine's time."""


class Losses:
    """Losses by topic and partition."""

    def __init__(self) -> None:
        self.rows: dict[tuple[TopicId, int], tuple[Loss, ...]] = {}

    def add(self, place: tuple[TopicId, int], loss: Loss, *, log_start: int) -> None:
        """It was declared; what ends at or before `log_start` is of no interest any more."""
        base_offset, next_offset, declared_ms = loss
        apart = []
        for each in self.rows.get(place, ()):
            if each.next_offset <= log_start:
                continue
            if each.next_offset < base_offset or next_offset < each.base_offset:
                apart.append(each)
                continue
            base_offset = min(base_offset, each.base_offset)
            next_offset = max(next_offset, each.next_offset)
            declared_ms = max(declared_ms, each.declared_ms)
        found = sorted([*apart, Loss(base_offset, next_offset, declared_ms)])
        self.rows[place] = tuple(found[-LOSSES_MAX:])

    def between(self, place: tuple[TopicId, int], start: int, end: int) -> Iterable[Loss]:
        """Those that have offsets in [start, end), whole, in order."""
        return [
            each
            for each in self.rows.get(place, ())
            if each.base_offset < end and start < each.next_offset
        ]

    def forget(self, topic_id: TopicId) -> None:
        """The topic was deleted."""
        for place in [place for place in self.rows if place[0] == topic_id]:
            del self.rows[place]
