"""Objects between closing and their place in the log, as a state machine without a clock.

    closed ──durable──▶ durable ──all before it gone from here──▶ proposed ──outcome──▶ settled
       └──────────────── given up (PUT failed, session lost) ─────────────────────────▶ settled

Invariants: chunks are proposed in the order of closing, each at most once, and never before they
are durable (P1), but one that is put on its way into the log (`send`): nothing behind that one is
proposed until it is settled, and if it could not be put it is taken back, as if it had never been
proposed. A chunk that was given up is never proposed. When one is given up, every later
batch of the same producer and partition (without a producer id: connection and partition) that is
not proposed yet fails with it (P11), else it would overtake an earlier one that the client sends
again. Such a batch stays in the bytes of its chunk, and the command leaves it out.

Offsets come from the outcome alone; a batch that failed is told -1 (P2).

Left out: time, PUTs, the log, sockets (`broker.produce.produce_path`), the open chunk
(`storage.accumulator`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from coordinator.commands.entries import ChunkCommitted, ChunkSpan, CommitChunk, ItemResult
from protocol.errors import ErrorCode
from protocol.produce import PartitionResult
from protocol.types import Incarnation, TopicId
from storage.accumulator import BatchPlace, ClosedChunk, ClosedSpan, PendingBatch, group_items
from storage.formats.spans import Item, ObjectId

# Kafka names the log's start with an error, too, but for these (ReplicaManager.appendToLocalLog).
WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


BatchResult = tuple[PendingBatch, ItemResult, PartitionResult]


class ProduceCallback(Protocol):
    """The request that a batch came with."""

    def settle(self, index: int, result: PartitionResult) -> None:
        """Called exactly once for each of its batches."""
        ...


class Ticket:
    """Whom to answer about a batch: the token that the accumulator carries."""

    __slots__ = ("callback", "index", "live", "log_append_time", "sender")

    def __init__(
        self, callback: ProduceCallback, index: int, *, sender: int, log_append_time: int = -1
    ) -> None:
        self.callback = callback
        self.index = index
        """Which of the request's batches it is."""
        self.sender = sender
        """Producer id, or -1 - the connection's id: whose later batches fail with this one."""
        self.log_append_time = log_append_time
        """ms; -1 unless the topic's timestamps are those of appending."""
        self.live = True
        """Not answered yet."""

    def settle(self, result: PartitionResult) -> None:
        assert self.live
        self.live = False
        self.callback.settle(self.index, result)


def ticket_of(batch: PendingBatch) -> Ticket:
    ticket = batch.token
    assert isinstance(ticket, Ticket)
    return ticket


def order_key(batch: PendingBatch) -> tuple[int, TopicId, int]:
    """Batches of the same key must not overtake each other (P11)."""
    return ticket_of(batch).sender, batch.topic_id, batch.partition


class PendingChunk:
    """A closed chunk, until its outcome is known."""

    __slots__ = ("chunk_id", "closed", "closed_ms", "durable", "proposed_spans")

    def __init__(self, chunk_id: ObjectId, closed: ClosedChunk, *, closed_ms: int = 0) -> None:
        self.chunk_id = chunk_id
        self.closed = closed
        self.closed_ms = closed_ms
        """When, by the clock of the accumulator."""
        self.durable = False
        self.proposed_spans: list[tuple[Sequence[PendingBatch], Sequence[BatchPlace]]] = []
        """What the command describes: per span the batches, and the item of each."""

    def live_batches(self) -> list[PendingBatch]:
        return [batch for batch in self.closed.batches() if ticket_of(batch).live]

    def command(self) -> CommitChunk | None:
        """What to propose: every batch that lives. None when there is none left."""
        assert not self.proposed_spans
        spans = tuple(self._spans())
        return CommitChunk(self.chunk_id.number, self.closed.length, spans) if spans else None

    def _spans(self) -> Iterator[ChunkSpan]:
        for span in self.closed.spans:
            live = [batch for batch in span.batches if ticket_of(batch).live]
            if not live:
                continue
            items, places = _items_of(span, live)
            self.proposed_spans.append((live, places))
            yield ChunkSpan(span.topic_id, span.partition, span.start, items)

    def results(self, outcome: ChunkCommitted) -> Iterator[BatchResult]:
        """Of every proposed batch: what became of its item, and what to tell its sender."""
        first = 0
        for batches, places in self.proposed_spans:
            for batch, place in zip(batches, places, strict=True):
                item = outcome.results[first + place.item]
                yield batch, item, result_of(batch, item, records_before=place.records_before)
            first += places[-1].item + 1
        assert first == len(outcome.results)


def _items_of(
    span: ClosedSpan, live: Sequence[PendingBatch]
) -> tuple[tuple[Item, ...], Sequence[BatchPlace]]:
    if len(live) == len(span.batches):
        return span.items, span.places
    items, places = group_items(span.start, live)
    return tuple(items), places


def result_of(batch: PendingBatch, result: ItemResult, *, records_before: int) -> PartitionResult:
    """The answer about one batch, from what became of the item that it is a part of."""
    if result.error != ErrorCode.NONE:
        return refusal(batch, result.error, log_start=result.log_start)
    assert result.base_offset >= 0
    return PartitionResult(
        batch.partition,
        ErrorCode.NONE,
        result.base_offset + records_before,
        # Kafka tells of a duplicate the newest timestamp of the batch that it remembers.
        result.timestamp_max if result.duplicate else ticket_of(batch).log_append_time,
        result.log_start,
    )


def refusal(
    batch: PendingBatch, error: ErrorCode, message: str | None = None, *, log_start: int = -1
) -> PartitionResult:
    """The answer about a batch that is not in the log and will not be."""
    return PartitionResult(
        batch.partition,
        error,
        log_start_offset=-1 if error in WITHOUT_LOG_START else log_start,
        error_message=message,
    )


class CommitQueue:
    """All chunks of one agent that are closed and not settled."""

    def __init__(self) -> None:
        self._unproposed: list[PendingChunk] = []
        self._proposed: dict[ObjectId, PendingChunk] = {}
        self._sent: PendingChunk | None = None
        """Proposed, and maybe not durable."""
        self._in_doubt: set[ObjectId] = set()
        """Proposed, and the log has not said what became of them."""

    def is_sent(self, chunk_id: ObjectId) -> bool:
        """It is on its way into the log, and put on the way."""
        return self._sent is not None and self._sent.chunk_id == chunk_id

    def __len__(self) -> int:
        return len(self._unproposed) + len(self._proposed)

    def close(self, chunk: PendingChunk) -> None:
        """`chunk` was closed now and is about to be put."""
        assert not chunk.durable
        self._unproposed.append(chunk)

    def send(self, chunk: PendingChunk) -> None:
        """The only chunk is proposed; the log's thread will put it first."""
        assert self._unproposed == [chunk]
        assert not self._proposed
        self._unproposed = []
        self._proposed[chunk.chunk_id] = self._sent = chunk

    def take_back(self, chunk: PendingChunk) -> None:
        """The chunk that was sent could not be put and is not in the log; it is closed, no more."""
        assert chunk is self._sent
        self._sent = None
        del self._proposed[chunk.chunk_id]
        chunk.proposed_spans = []
        self._unproposed.insert(0, chunk)

    def doubt(self, chunk_id: ObjectId) -> None:
        """The log does not say what has become of the chunk; those behind it need not wait."""
        self._let_pass(chunk_id)
        if chunk_id in self._proposed:
            self._in_doubt.add(chunk_id)

    def doubted(self, incarnation: Incarnation) -> list[PendingChunk]:
        """The log's end was reached under `incarnation`: those in doubt before that are not in the log."""
        doubted = [self._proposed[chunk_id] for chunk_id in sorted(self._in_doubt)]
        return [each for each in doubted if each.chunk_id.incarnation != incarnation]

    def _let_pass(self, chunk_id: ObjectId) -> None:
        self._in_doubt.discard(chunk_id)
        if self.is_sent(chunk_id):
            self._sent = None

    def advance(self) -> list[PendingChunk]:
        """The chunks to propose now, in this order: those durable before the first that is not."""
        if self._sent is not None:
            return []
        ready = 0
        while ready < len(self._unproposed) and self._unproposed[ready].durable:
            ready += 1
        chunks = self._unproposed[:ready]
        del self._unproposed[:ready]
        for chunk in chunks:
            assert chunk.chunk_id not in self._proposed
            self._proposed[chunk.chunk_id] = chunk
        return chunks

    def holds(self, chunk: PendingChunk) -> bool:
        """Neither settled nor given up."""
        return chunk in self._unproposed or chunk.chunk_id in self._proposed

    def proposed(self, chunk_id: ObjectId) -> PendingChunk | None:
        """The chunk of that id if it is proposed and not settled."""
        return self._proposed.get(chunk_id)

    def settle(self, chunk_id: ObjectId) -> PendingChunk | None:
        """The outcome of a proposed chunk is known; None when it was before."""
        self._let_pass(chunk_id)
        return self._proposed.pop(chunk_id, None)

    def give_up(self, chunk: PendingChunk) -> list[PendingBatch]:
        """`chunk` will never be appended. Returns the batches that fail by that, in order.

        Those are its own, and later ones of the same senders in chunks that are closed and not
        proposed. The caller settles them and takes them out of the open chunk (`order_key`); then
        `advance` may have something.
        """
        assert self.holds(chunk)
        self._let_pass(chunk.chunk_id)
        if self._proposed.pop(chunk.chunk_id, None) is not None:
            # Those that `advance` gave out with it and whose turn has not come, too.
            later = [other for other in self._proposed.values() if not other.proposed_spans]
            later += self._unproposed
        else:
            at = self._unproposed.index(chunk)
            later = self._unproposed[at + 1 :]
            del self._unproposed[at]
        failed = chunk.live_batches()
        keys = {order_key(batch) for batch in failed}
        for other in later:
            failed.extend(batch for batch in other.live_batches() if order_key(batch) in keys)
        return failed

    def give_up_unproposed(self) -> list[PendingChunk]:
        """The session is lost: what is not proposed yet never will be (P3). In order."""
        lost = self._unproposed
        self._unproposed = []
        return lost


def keys_of(batches: Iterable[PendingBatch]) -> frozenset[tuple[int, TopicId, int]]:
    return frozenset(order_key(batch) for batch in batches)
