"""One partition under transactions: a machine, the bytes of its chunks, and what readers should see.

`steps` draws what happens to it: chunks of plain and transactional batches, and every way in which
a transaction ends; `do` plays one of them. A `Consumer` reads as Kafka's clients do.
"""

from collections import deque
from itertools import count

from hypothesis import strategies as st

from coordinator.commands.transaction_commands import (
    EndTransaction,
    GiveUpTransaction,
    InitProducer,
    ProducerInitialized,
    TransactionEnded,
)
from protocol.records import TRANSACTIONAL, batch_positions, iterate, read_header
from storage.formats.spans import Item, ObjectId
from tests.coordinator.machine.story import Story, span
from tests.kit.batches import batch
from txn.transactions import OF_EPOCH

PRODUCERS = 3


class Log:
    """One partition, its bytes, and what a reader of it should see."""

    def __init__(self) -> None:
        self.story = Story()
        self.agent = self.story.open()
        self.topic_id = self.story.topic(self.agent, "t")
        self.row = self.story.partition(self.topic_id)
        self.objects: dict[ObjectId, bytes] = {}
        self.numbers = count()
        self.producers = [self.init(index) for index in range(PRODUCERS)]
        self.open: dict[int, list[tuple[int, bytes]]] = {}
        """By producer: offsets and values of its transaction."""
        self.committed: list[tuple[int, bytes]] = []
        self.everything: list[tuple[int, bytes]] = []
        self.writers: dict[int, int] = {}
        """By offset: the producer whose transaction the record is in."""
        self.aborted: list[tuple[int, int, int]] = []
        """Producer id, first offset, offset of the marker."""
        self.markers: list[tuple[int, int, bool]] = []
        """Offset, producer id, whether it commits."""

    def init(self, index: int) -> list[int]:
        """Producer id, epoch and next sequence; aborts what was open."""
        outcome = self.story.do(self.agent, InitProducer(f"x{index}", 60_000, -1, -1))
        assert isinstance(outcome, ProducerInitialized)
        return [outcome.producer_id, outcome.producer_epoch, 0]

    def write(self, parts: list[tuple[int | None, int]]) -> None:
        """One chunk: (producer, or none for a plain batch; records)."""
        items, data = [], bytearray()
        offset = self.row.end_offset
        for index, records in parts:
            values = [b"%d" % next(self.numbers) for _ in range(records)]
            rows = [(offset + delta, value) for delta, value in enumerate(values)]
            offset += records
            self.everything += rows
            if index is None:
                self.committed += rows
                built = batch(*values, timestamp=1)
                items.append(Item(0, len(built), records, 1))
            else:
                producer_id, epoch, sequence = self.producers[index]
                self.open.setdefault(index, []).extend(rows)
                self.writers |= dict.fromkeys([row[0] for row in rows], producer_id)
                built = batch(
                    *values,
                    timestamp=1,
                    attributes=TRANSACTIONAL,
                    producer_id=producer_id,
                    epoch=epoch,
                    sequence=sequence,
                )
                self.producers[index][2] += records
                items.append(
                    Item(0, len(built), records, 1, producer_id, epoch, sequence, OF_EPOCH)
                )
            data += built
        chunk = ObjectId(self.agent, self.story.chunks)
        self.objects[chunk] = bytes(data)
        results = self.story.commit(self.agent, span(self.topic_id, *items))
        assert not any(result.error for result in results)

    def end(self, index: int, how: str) -> None:
        rows = self.open.pop(index, None)
        if rows is None:
            return
        producer_id, epoch, _ = self.producers[index]
        marker = self.row.end_offset
        if how == "take over":
            self.producers[index] = self.init(index)
        else:
            outcome = self.story.do(
                self.agent,
                self.giving_up(index)
                if how == "give up"
                else EndTransaction(f"x{index}", producer_id, epoch, how == "commit", None),
            )
            assert isinstance(outcome, TransactionEnded)
            self.producers[index] = (
                self.init(index)
                if how == "give up"
                else [outcome.producer_id, outcome.producer_epoch, 0]
            )
        assert self.row.end_offset == marker + 1
        self.markers.append((marker, producer_id, how == "commit"))
        if how == "commit":
            self.committed += rows
        else:
            self.aborted.append((producer_id, rows[0][0], marker))

    def giving_up(self, index: int) -> GiveUpTransaction:
        row = self.story.machine.transactions.get(f"x{index}")
        assert row is not None
        producer_id, epoch, _ = self.producers[index]
        return GiveUpTransaction(
            f"x{index}", producer_id, epoch, row.txn_metadata.instance, timed_out=True
        )

    def seen(self, *, committed: bool) -> list[tuple[int, bytes]]:
        """What a reader has seen who has come as far as there is."""
        if not committed:
            return self.everything
        return sorted(row for row in self.committed if row[0] < self.row.last_stable)


class Consumer:
    """A consumer of one isolation level, as Kafka's are written."""

    def __init__(self, log: Log, *, committed: bool, offset: int) -> None:
        self.log = log
        self.committed = committed
        self.offset = offset
        self.records: list[tuple[int, bytes]] = []
        self.markers: list[tuple[int, int, bool]] = []

    @property
    def end(self) -> int:
        return self.log.row.last_stable if self.committed else self.log.row.end_offset

    def read(self, data: bytes, aborted) -> None:
        """Take batches; those of an aborted transaction are dropped until its marker."""
        waiting = deque(aborted or ())
        dropping: set[int] = set()
        begun = self.offset
        for at in batch_positions(data)[0]:
            header = read_header(data, at)
            assert self.offset <= header.last_offset < self.end
            while waiting and waiting[0][1] <= header.last_offset:
                dropping.add(waiting.popleft()[0])
            if header.is_control:
                (record,) = iterate(data, at)
                commits = record.key == b"\0\0\0\1"
                self.markers.append((record.offset, header.producer_id, commits))
                if not commits:
                    dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                rows = [(record.offset, record.value) for record in iterate(data, at)]
                self.records += [row for row in rows if row[0] >= begun]
            self.offset = header.last_offset + 1


parts = st.lists(
    st.tuples(st.none() | st.integers(0, PRODUCERS - 1), st.integers(1, 3)), min_size=1, max_size=5
)
ends = st.tuples(
    st.integers(0, PRODUCERS - 1), st.sampled_from(["commit", "abort", "give up", "take over"])
)
steps = st.lists(st.one_of(parts, ends, st.just("fetch")), max_size=40)


def do(log: Log, step) -> None:
    if isinstance(step, list):
        log.write(step)
    elif isinstance(step, tuple):
        log.end(*step)
