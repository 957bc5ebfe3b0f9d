"""One partition under transactions: a machine, the bytes of its chunks, and what readers should see.

`steps` draws what happens to it: chunks of plain and transactional batches, and every way in which
a transaction ends; `do` plays one of them.
"""

from itertools import count

from hypothesis import strategies as st

from coordinator.commands.transaction_commands import (
    EndTransaction,
    GiveUpTransaction,
    InitProducer,
    ProducerInitialized,
    TransactionEnded,
)
from protocol.records import TRANSACTIONAL, Record, build_batch
from storage.formats.spans import Item, ObjectId
from tests.coordinator.machine.story import Story, span
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
            built = [Record(timestamp=1, value=value) for value in values]
            if index is None:
                self.committed += rows
                batch = build_batch(built)
                items.append(Item(0, len(batch), records, 1))
            else:
                producer_id, epoch, sequence = self.producers[index]
                self.open.setdefault(index, []).extend(rows)
                self.writers |= dict.fromkeys([row[0] for row in rows], producer_id)
                batch = build_batch(
                    built,
                    attributes=TRANSACTIONAL,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                )
                self.producers[index][2] += records
                items.append(
                    Item(0, len(batch), records, 1, producer_id, epoch, sequence, OF_EPOCH)
                )
            data += batch
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
