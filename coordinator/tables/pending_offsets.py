"""The offsets of one group that wait for the ends of transactions.

A place (topic and partition) may have one of each producer. When a transaction is committed its
offsets take the place of what is committed, unless that is newer: only a newer offset overwrites
an older one, and newer means written later in the log (Kafka's `OffsetMetadataManager`).
Therefore whatever is committed in a place takes away what waited there from before.

Invariants: a place is in the map of its producer if and only if the producer is in the map of the
place; neither has empty maps; `len` and `metadata_size` count all of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.commands.group_commands import CommittedOffset
from coordinator.commands.layout import UInt63
from protocol.types import TopicId

Place = tuple[TopicId, int]


class Pending(NamedTuple):
    """An offset, and its number in the order of writing; one entry of the log may hold several."""

    order: UInt63
    committed: CommittedOffset


class PendingOffsets:
    """Offsets that wait, by place and by producer. All but the queries are for `apply`."""

    __slots__ = ("_count", "_order", "_places", "_producers", "metadata_size")

    def __init__(self) -> None:
        self._places: dict[Place, dict[int, Pending]] = {}
        self._producers: dict[int, dict[Place, None]] = {}
        """Places in order of the first offset that waited there."""
        self._count = 0
        self._order = 0
        self.metadata_size = 0
        """Characters of all metadata."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, Pending]]:
        """Producer ids in order of their first offset, and what waits of each."""
        for producer_id, places in self._producers.items():
            for place in places:
                yield producer_id, self._places[place][producer_id]

    def has(self, place: Place) -> bool:
        return place in self._places

    def put(self, producer_id: int, committed: CommittedOffset) -> None:
        """One more waits, in the place of the producer's own of before."""
        place = (committed.topic_id, committed.partition)
        of_place = self._places.setdefault(place, {})
        if (before := of_place.get(producer_id)) is not None:
            self.metadata_size -= len(before.committed.metadata)
            self._count -= 1
        self._order += 1
        of_place[producer_id] = Pending(self._order, committed)
        self._producers.setdefault(producer_id, {})[place] = None
        self.metadata_size += len(committed.metadata)
        self._count += 1

    def take(self, producer_id: int) -> list[Pending]:
        """All of a producer's; they wait no more."""
        places = [*self._producers.get(producer_id, ())]
        taken = [self._places[place][producer_id] for place in places]
        for place in places:
            self._drop(place, producer_id)
        return taken

    def drop(self, place: Place, *, before: int | None = None) -> None:
        """What waits in the place waits no more, or only what was written before a number."""
        of_place = self._places.get(place)
        if of_place is None:
            return
        for producer_id, pending in [*of_place.items()]:
            if before is None or pending.order < before:
                self._drop(place, producer_id)

    def _drop(self, place: Place, producer_id: int) -> None:
        of_place = self._places[place]
        pending = of_place.pop(producer_id)
        if not of_place:
            del self._places[place]
        of_producer = self._producers[producer_id]
        del of_producer[place]
        if not of_producer:
            del self._producers[producer_id]
        self.metadata_size -= len(pending.committed.metadata)
        self._count -= 1
