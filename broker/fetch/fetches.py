"""One fetch until it is answered, and what is counted of all."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.calls.call import Call
from broker.calls.shares import Owner, owner_of
from broker.fetch.purgatory import DelayedFetch
from broker.fetch.sessions import CachedPartition, FetchContext
from protocol.fetch import READ_COMMITTED, FetchRequest, PartitionAnswer, TopicAnswer
from storage.formats.spans import ObjectId

ANSWER_BYTES: Final = 8 << 20
"""Of records in one answer, unless the client waits for more: what is larger costs more a byte."""


@dataclass(slots=True)
class FetchStats:
    """Counters of the fetch path, read at each scrape."""

    fetches: int = 0
    partitions: int = 0
    """Of all fetches."""
    answered_bytes: int = 0
    """Of records."""
    own_rack_bytes: int = 0
    """Of them, to clients that tell this agent's zone as their rack."""
    other_rack_bytes: int = 0
    """To those that tell another."""
    sent_on: int = 0
    """Partitions whose client was sent to an agent of its zone."""
    parked: int = 0
    """How often a fetch was parked."""
    barriers: int = 0
    loads: int = 0
    """Fetches that needed the object store."""
    storage_errors: int = 0
    objects_gone: int = 0
    """Objects that were not there after planning anew: data that is lost."""

    def count_by_rack(self, answers: Iterable[PartitionAnswer], *, is_own: bool) -> None:
        """Count what a client that tells a rack is given: this agent's zone, or another."""
        for answer in answers:
            if is_own:
                self.own_rack_bytes += answer.records_bytes
            else:
                self.other_rack_bytes += answer.records_bytes
                self.sent_on += answer.preferred_read_replica >= 0


class Fetch:
    """A fetch until it is answered."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "call",
        "committed",
        "deadline_ms",
        "fetched",
        "given_max",
        "gone",
        "parked",
        "rack",
        "unreachable",
        "verified",
    )

    def __init__(
        self,
        call: Call,
        request: FetchRequest,
        fetched: FetchContext,
        *,
        bytes_max: int,
        now_ms: int,
    ) -> None:
        self.call = call
        self.fetched = fetched
        self.bytes_max = min(request.max_bytes, bytes_max, max(request.min_bytes, ANSWER_BYTES))
        if call.usage is not None:
            self.bytes_max = min(self.bytes_max, call.usage.fetch_bytes_max)
        self.given_max = self.bytes_max
        """As long as there is room for answers (`broker.calls.untaken`)."""
        self.bytes_min = min(request.min_bytes, self.bytes_max)
        self.deadline_ms = now_ms + max(0, request.max_wait_ms)
        self.committed = request.isolation_level == READ_COMMITTED
        self.rack = request.rack_id
        """Its consumer's zone, "" when not told."""
        if self.rack and request.replica_id >= 0:
            self.rack = ""
        self.verified = False
        """A barrier has passed since it came."""
        self.unreachable = False
        """The barrier failed."""
        self.parked: DelayedFetch[Fetch] | None = None
        """Of many partitions: what they are watched by."""
        self.gone: set[ObjectId] = set()
        """Objects that were not there; what is planned now was planned after that."""

    @property
    def owner(self) -> Owner:
        """Whose share it takes from."""
        return owner_of(self.call.connection.peer)


def topics_of(
    answers: Iterable[tuple[CachedPartition, PartitionAnswer]], stats: FetchStats
) -> list[TopicAnswer]:
    """The answers of partitions, by topic; counts their bytes."""
    topics: list[TopicAnswer] = []
    rows: list[PartitionAnswer] = []
    before: tuple[object, object] | None = None
    for place, answer in answers:
        stats.answered_bytes += answer.records_bytes
        if before != (place.name, place.topic_id):
            before = (place.name, place.topic_id)
            rows = []
            topics.append((place.name, place.topic_id, rows))
        rows.append(answer)
    return topics
