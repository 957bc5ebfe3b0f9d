"""What goes into the next chunk, and when it is due.

Batches of all partitions are gathered in the open chunk. It is sealed when the next batch would
not fit any more (bytes, or an entry's worth of items), so `add` never has to be refused: what is
sealed queues up until the caller closes it, and `waiting_bytes` tells the caller when to stop
reading from sockets (P15).

Group commit: with no chunk in flight, on its way into store and log, the open one is due after
`linger_ms`, with others in flight after half of what a chunk takes on that way (`round_ms`), at most
`busy_linger_ms`: so nobody waits for more than one and a half of it. In both cases within a budget
of PUTs per second, since PUTs cost money. A chunk of `worthwhile_bytes` is worth its PUT and is not
held back by the budget, only counted in it afterwards: else a producer with a few small batches in
flight would get ten round trips a second. Beyond the budget it waits for `busy_linger_ms`, to be
worth more. A sealed chunk is due at once.

Invariants: batches of a partition keep the order in which they came, within a chunk and from
chunk to chunk; chunks close in the order of opening. Pure: the time comes in as `now_ms`, which
never goes back. What is left out: names, PUTs, the log (the caller's).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from protocol.types import Buffer, Position, TopicId
from storage.formats.chunk import (
    HEADER_BYTES,
    ChunkIndex,
    IndexSpan,
    checksum_of,
    chunk_bytes,
    encode_header,
    encode_tail,
)
from storage.formats.spans import Item, ObjectId

MiB: Final = 1024 * 1024
ITEM_ENTRY_BYTES: Final = 48
"""What a batch may take in the log's entry, an upper bound; plain batches share items."""
SPAN_ENTRY_BYTES: Final = 40
"""What a partition may take in the log's entry, an upper estimate."""
BUSY_LINGER_MS_MIN: Final = 5
"""What is faster is worth waiting for: chunks cost work, too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to seal and when to close; see the module."""

    chunk_bytes_max: int = 8 * MiB
    """Bytes of data; a single batch may be larger and then is a chunk of its own."""
    entry_bytes_max: int = 63 * 1024
    """Of the log's entry that commits the chunk; the rest of 64 KiB is the entry's own."""
    linger_ms: int = 0
    busy_linger_ms: int = 50
    """With chunks in flight, at most; `BUSY_LINGER_MS_MIN` at least."""
    worthwhile_bytes: int = 64 * 1024
    puts_per_second: int = 10
    puts_burst: int = 10
    """PUTs that may follow each other at once after a pause."""

    def __post_init__(self) -> None:
        assert self.chunk_bytes_max > 0
        assert self.entry_bytes_max >= ITEM_ENTRY_BYTES + SPAN_ENTRY_BYTES
        assert self.linger_ms >= 0
        assert self.busy_linger_ms >= 0
        assert self.worthwhile_bytes >= 0
        assert self.puts_per_second > 0
        assert self.puts_burst > 0


class PendingBatch:
    """A record batch on its way: bytes that must not change, and what its header says."""

    __slots__ = (
        "data",
        "first_sequence",
        "instance",
        "length",
        "partition",
        "producer_epoch",
        "producer_id",
        "records",
        "start",
        "timestamp_max",
        "token",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: TopicId,
        partition: int,
        data: Buffer,
        *,
        records: int,
        timestamp_max: int,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        instance: int,
        token: object,
    ) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.data = data
        self.length = len(data)
        self.records = records
        self.timestamp_max = timestamp_max
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.first_sequence = first_sequence
        self.instance = instance
        """As of `Item`."""
        self.token = token
        """The caller's: whom to answer."""
        self.start = -1
        """First byte in the object; -1 until the chunk is closed."""


class BatchPlace(NamedTuple):
    """Where in the items of its span a batch is found again."""

    item: int
    records_before: int
    """Records of the same item that come before the batch; its offset is base + this."""


def group_items(start: int, batches: Iterable[PendingBatch]) -> tuple[list[Item], list[BatchPlace]]:
    """Describe batches of one span as items, from byte `start` on; and where each batch went.

    Batches may be missing in between (given up after the chunk was closed, P11): the hole is
    skipped. Adjacent plain batches share an item.
    """
    items: list[Item] = []
    places: list[BatchPlace] = []
    at = start
    for batch in batches:
        assert batch.start >= at
        skip = batch.start - at
        if items and not skip and batch.producer_id < 0 and items[-1].producer_id < 0:
            last = items[-1]
            places.append(BatchPlace(len(items) - 1, last.records))
            items[-1] = Item(
                last.skip,
                last.length + batch.length,
                last.records + batch.records,
                max(last.timestamp_max, batch.timestamp_max),
            )
        else:
            places.append(BatchPlace(len(items), 0))
            if batch.producer_id < 0:
                # Whatever its header says of epoch and sequence: the log does not tell it either.
                items.append(Item(skip, batch.length, batch.records, batch.timestamp_max))
                at = batch.start + batch.length
                continue
            items.append(
                Item(
                    skip,
                    batch.length,
                    batch.records,
                    batch.timestamp_max,
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.first_sequence,
                    batch.instance,
                )
            )
        at = batch.start + batch.length
    return items, places


class ClosedSpan(NamedTuple):
    """The batches of one partition in a closed chunk, adjacent, in order of arrival."""

    topic_id: TopicId
    partition: int
    start: int
    length: int
    items: tuple[Item, ...]
    batches: tuple[PendingBatch, ...]
    places: tuple[BatchPlace, ...]
    """One for every batch."""


@dataclass(frozen=True, slots=True)
class ClosedChunk:
    """A chunk that will not change any more; it gets its name when it is put."""

    spans: tuple[ClosedSpan, ...]
    """Sorted by topic id and partition."""
    length: int
    """Bytes of the whole object."""
    data_bytes: int
    opened_ms: int

    def batches(self) -> Iterable[PendingBatch]:
        """All batches, in the order of their bytes."""
        return (batch for span in self.spans for batch in span.batches)

    def object_parts(self, chunk: ObjectId, *, cluster_id: str, reached: Position) -> list[Buffer]:
        """The whole object, always the same bytes for the same arguments; nothing is copied.

        `reached`: how far the agent has applied the log.
        """
        spans = tuple(
            IndexSpan(
                span.topic_id,
                span.partition,
                span.start,
                span.length,
                checksum_of(batch.data for batch in span.batches),
                span.items,
            )
            for span in self.spans
        )
        index = ChunkIndex(cluster_id, chunk, spans)
        tail = encode_tail(index, data_end=HEADER_BYTES + self.data_bytes)
        parts: list[Buffer] = [
            encode_header(reached),
            *(batch.data for batch in self.batches()),
            tail,
        ]
        assert sum(map(len, parts)) == self.length
        return parts


class _OpenChunk:
    """Batches by partition, and how much they are."""

    __slots__ = ("batch_count", "data_bytes", "opened_ms", "partitions")

    def __init__(self, opened_ms: int) -> None:
        self.opened_ms = opened_ms
        self.partitions: dict[tuple[TopicId, int], list[PendingBatch]] = {}
        self.data_bytes = 0
        self.batch_count = 0

    def entry_bytes(self) -> int:
        return self.batch_count * ITEM_ENTRY_BYTES + len(self.partitions) * SPAN_ENTRY_BYTES

    def add(self, batch: PendingBatch) -> None:
        self.partitions.setdefault((batch.topic_id, batch.partition), []).append(batch)
        self.data_bytes += batch.length
        self.batch_count += 1

    def withdraw(self, doomed: Callable[[PendingBatch], bool]) -> list[PendingBatch]:
        withdrawn: list[PendingBatch] = []
        for place, batches in list(self.partitions.items()):
            keep: list[PendingBatch] = []
            for batch in batches:
                (withdrawn if doomed(batch) else keep).append(batch)
            if keep:
                self.partitions[place] = keep
            else:
                del self.partitions[place]
        self.data_bytes -= sum(batch.length for batch in withdrawn)
        self.batch_count -= len(withdrawn)
        return withdrawn

    def close(self) -> ClosedChunk:
        at = HEADER_BYTES
        spans: list[ClosedSpan] = []
        for (topic_id, partition), batches in sorted(self.partitions.items(), key=_by_partition):
            start = at
            for batch in batches:
                batch.start = at
                at += batch.length
            items, places = group_items(start, batches)
            spans.append(
                ClosedSpan(
                    topic_id,
                    partition,
                    start,
                    at - start,
                    tuple(items),
                    tuple(batches),
                    tuple(places),
                )
            )
        assert at == HEADER_BYTES + self.data_bytes
        length = chunk_bytes(
            data_bytes=self.data_bytes,
            span_count=len(spans),
            item_count=sum(len(span.items) for span in spans),
        )
        return ClosedChunk(tuple(spans), length, self.data_bytes, self.opened_ms)


def _by_partition(
    row: tuple[tuple[TopicId, int], Sequence[PendingBatch]],
) -> tuple[TopicId, int]:
    return row[0]


class PutBudget:
    """A token bucket for PUTs, kept as the time at which the next one is paid for (GCRA)."""

    def __init__(self, *, puts_per_second: int, puts_burst: int) -> None:
        self._interval_us = max(1, 1_000_000 // puts_per_second)
        self._tolerance_us = self._interval_us * (puts_burst - 1)
        self._paid_us = 0

    def ready_ms(self) -> int:
        """The first millisecond at which a PUT is within the budget."""
        return max(0, -(-(self._paid_us - self._tolerance_us) // 1000))

    def take(self, now_ms: int) -> None:
        """A PUT begins now; also one beyond the budget, which is a debt of one PUT at most."""
        now_us = now_ms * 1000
        debt_us = now_us + self._tolerance_us + self._interval_us
        self._paid_us = min(max(now_us, self._paid_us) + self._interval_us, debt_us)


class Accumulator:
    """The open chunk and the sealed ones before it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting_bytes = 0
        """Bytes of all batches that are not in a closed chunk yet."""
        self.round_ms = 0.0
        """How long chunks take, lately, from being closed into the log, as their caller measures; 0:
        nobody knows yet."""
        self._open: _OpenChunk | None = None
        self._sealed: deque[_OpenChunk] = deque()
        self._budget = PutBudget(
            puts_per_second=limits.puts_per_second, puts_burst=limits.puts_burst
        )

    @property
    def has_sealed(self) -> bool:
        """Whether a whole chunk waits to be closed."""
        return bool(self._sealed)

    def add(
        self,
        topic_id: TopicId,
        partition: int,
        batch: Buffer,
        *,
        records: int,
        timestamp_max: int,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        token: object,
        now_ms: int,
        instance: int = -1,
    ) -> PendingBatch:
        """Take one validated record batch; its bytes must not change until it is settled."""
        assert records > 0
        pending = PendingBatch(
            topic_id,
            partition,
            batch,
            records=records,
            timestamp_max=timestamp_max,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            first_sequence=first_sequence,
            instance=instance,
            token=token,
        )
        if self._open is not None and not self._fits(self._open, pending):
            self._sealed.append(self._open)
            self._open = None
        if self._open is None:
            self._open = _OpenChunk(now_ms)
        self._open.add(pending)
        self.waiting_bytes += pending.length
        if self._open.data_bytes >= self.limits.chunk_bytes_max:
            self._sealed.append(self._open)
            self._open = None
        return pending

    def _fits(self, chunk: _OpenChunk, batch: PendingBatch) -> bool:
        # One more span is assumed although it may exist: 40 bytes are not worth a lookup.
        entry_bytes = chunk.entry_bytes() + ITEM_ENTRY_BYTES + SPAN_ENTRY_BYTES
        return (
            chunk.data_bytes + batch.length <= self.limits.chunk_bytes_max
            and entry_bytes <= self.limits.entry_bytes_max
        )

    def due_ms(self, in_flight: int) -> int | None:
        """When the next chunk is due with so many others in flight; None: nothing waits.

        May lie in the past. It changes with `add`, `close`, `withdraw` and with `in_flight`.
        """
        assert in_flight >= 0
        if self._sealed:
            return self._sealed[0].opened_ms
        if self._open is None:
            return None
        opened_ms = self._open.opened_ms
        soonest_ms = latest_ms = opened_ms + self.limits.linger_ms
        if in_flight:
            busy_ms = self.limits.busy_linger_ms
            latest_ms = max(latest_ms, opened_ms + busy_ms)
            if self.round_ms:
                busy_ms = min(busy_ms, max(int(self.round_ms / 2), BUSY_LINGER_MS_MIN))
            soonest_ms = max(soonest_ms, opened_ms + busy_ms)
        due_ms = max(soonest_ms, self._budget.ready_ms())
        if self._open.data_bytes >= self.limits.worthwhile_bytes:
            return min(due_ms, latest_ms)
        return due_ms

    def due(self, now_ms: int, in_flight: int) -> bool:
        """Whether `close` should be called now."""
        due_ms = self.due_ms(in_flight)
        return due_ms is not None and due_ms <= now_ms

    def close(self, now_ms: int) -> ClosedChunk:
        """Take out the oldest chunk, due or not (a flush before leaving). There must be one."""
        chunk = self._sealed.popleft() if self._sealed else self._open
        assert chunk is not None
        if chunk is self._open:
            self._open = None
        self.waiting_bytes -= chunk.data_bytes
        assert self.waiting_bytes >= 0
        self._budget.take(now_ms)
        return chunk.close()

    def withdraw(self, doomed: Callable[[PendingBatch], bool]) -> list[PendingBatch]:
        """Take out batches that must not be written any more (P11), in order of chunks."""
        withdrawn: list[PendingBatch] = []
        chunks = list(self._sealed)
        if self._open is not None:
            chunks.append(self._open)
        for chunk in chunks:
            withdrawn.extend(chunk.withdraw(doomed))
        self.waiting_bytes -= sum(batch.length for batch in withdrawn)
        self._sealed = deque(chunk for chunk in self._sealed if chunk.batch_count)
        if self._open is not None and not self._open.batch_count:
            self._open = None
        return withdrawn
