"""What transactions cost a replica: `python -m tests.bench.bench_transactions`.

Prints how long one entry takes that ends a transaction of 1,000 partitions (budget: 5 ms); what
100,000 idle producers take in memory (budget: 100 MB), without and with transactional ids; and the
cost of chunks in transactions as ratios to idempotent ones. No test: it measures, it does not
judge.
"""

import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import (
    ChunkCommitted,
    ChunkSpan,
    Command,
    CommitChunk,
    CreateTopic,
    Entry,
    Open,
    Outcome,
    TopicCreated,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    ClientProof,
    EndTransaction,
    InitProducer,
    ProducerInitialized,
    TransactionEnded,
)
from coordinator.machine.machine import Machine
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, Incarnation, Position, TopicId, position
from storage.formats.spans import Item
from tests.bench import bench_apply
from tests.bench.bench_machine_memory import resident_bytes
from txn.transactions import NO_TRANSACTION, OF_EPOCH

PARTITIONS = 1_000
ENDS = 60
SPANS_PER_CHUNK = 250
IDLE_PRODUCERS = 100_000
PRODUCERS_PER_CHUNK = 500
ROUNDS = 7


class Filled:
    """A machine with one topic, and its log."""

    def __init__(self, partitions: int) -> None:
        self.machine = Machine()
        self.position = position(1, 1)
        self.agent = Incarnation(self.position)
        self.n = 0
        self.chunks = 0
        command = Open(1, "agent-0", -1, "zone-a", (), "0.1.0", 1)
        self.machine.apply(self.position, Entry(INCARNATION_NONE, 0, 0, (command,)))
        created = self.apply(CreateTopic("events", partitions, ()))
        assert isinstance(created, TopicCreated)
        self.topic_id: TopicId = created.topic_id

    def entry(self, *commands: Command) -> Entry:
        self.n += 1
        return Entry(self.agent, self.n, 1_700_000_000_000 + self.n, commands)

    def apply(self, command: Command) -> Outcome:
        self.position = Position(self.position + 1)
        (outcome,) = self.machine.apply(self.position, self.entry(command))
        return outcome

    def init(self, transactional_id: str) -> tuple[int, int]:
        outcome = self.apply(InitProducer(transactional_id, 60_000, -1, -1))
        assert isinstance(outcome, ProducerInitialized)
        return outcome.producer_id, outcome.producer_epoch

    def commit(self, *spans: ChunkSpan) -> None:
        outcome = self.apply(CommitChunk(self.chunks, 1 << 30, spans))
        self.chunks += 1
        assert isinstance(outcome, ChunkCommitted)
        assert {result.error for result in outcome.results} == {ErrorCode.NONE}


# The end of a transaction of many partitions.


def write_everywhere(filled: Filled, producer: tuple[int, int], sequence: int, of: int) -> None:
    """A batch of the transaction `of` in every partition."""
    item = Item(0, 9000, 20, 1_700_000_000_000, *producer, sequence, of)
    for first in range(0, PARTITIONS, SPANS_PER_CHUNK):
        numbers = range(first, first + SPANS_PER_CHUNK)
        filled.commit(*[ChunkSpan(filled.topic_id, number, 0, (item,)) for number in numbers])


def ends(*, new: bool, commit: bool) -> Iterator[tuple[float, int]]:
    """Milliseconds of CPU to decode and apply each end, and its bytes."""
    filled = Filled(PARTITIONS)
    producer = filled.init("orders")
    places = tuple((filled.topic_id, number) for number in range(PARTITIONS))
    for index in range(ENDS):
        proof = None
        if not new:
            add = AddToTransaction("orders", *producer, 1 + index, 7, places, ())
            filled.apply(add)
            proof = ClientProof(1 + index, 7, filled.position, challenged=False)
        sequence = 0 if new else 20 * index
        write_everywhere(filled, producer, sequence, OF_EPOCH if new else 1 + index)
        end = EndTransaction("orders", *producer, commit=commit, proof=proof)
        data = encode_entry(filled.entry(end))
        filled.position = Position(filled.position + 1)
        began = time.process_time()
        (outcome,) = filled.machine.apply(filled.position, decode_entry(data))
        took_ms = (time.process_time() - began) * 1e3
        assert isinstance(outcome, TransactionEnded)
        assert len(outcome.marked) == PARTITIONS
        producer = (outcome.producer_id, outcome.producer_epoch)
        yield took_ms, len(data)


def measure_ends() -> None:
    for new in (False, True):
        for commit in (True, False):
            found = list(ends(new=new, commit=commit))
            times = [took_ms for took_ms, _ in found]
            what = f"{'TV2' if new else 'TV1'} {'commit' if commit else 'abort'}"
            print(
                f"{what:10} of {PARTITIONS} partitions: one entry of {found[-1][1]} bytes,"
                f" p50 {statistics.median(times):5.2f} ms, best {min(times):5.2f},"
                f" worst {max(times):5.2f} of {ENDS}"
            )


# Idle producers.


def fill_idempotent(filled: Filled) -> None:
    """Each with a window of one batch in one partition."""
    for first in range(0, IDLE_PRODUCERS, PRODUCERS_PER_CHUNK):
        numbers = range(first, first + PRODUCERS_PER_CHUNK)
        items = tuple(Item(0, 900, 2, 1_700_000_000_000, number, 0, 0) for number in numbers)
        partition = first // PRODUCERS_PER_CHUNK % PARTITIONS
        filled.commit(ChunkSpan(filled.topic_id, partition, 0, items))


def fill_transactional(filled: Filled) -> None:
    """Each with a transactional id, whose one transaction was committed."""
    for number in range(IDLE_PRODUCERS):
        name = f"application-{number:06}-task-{number % 7}"
        producer = filled.init(name)
        item = Item(0, 900, 2, 1_700_000_000_000, *producer, 0, OF_EPOCH)
        filled.commit(ChunkSpan(filled.topic_id, number % PARTITIONS, 0, (item,)))
        filled.apply(EndTransaction(name, *producer, commit=True, proof=None))


def measure_idle() -> None:
    kinds = (("idempotent", fill_idempotent), ("with a transactional id", fill_transactional))
    kept = []
    for what, fill in kinds:
        filled = Filled(PARTITIONS)
        kept.append(filled)
        gc.collect()
        before = resident_bytes()
        fill(filled)
        gc.collect()
        grown = resident_bytes() - before
        began = time.process_time()
        gc.collect()
        collected_ms = (time.process_time() - began) * 1e3
        assert filled.machine.partitions.window_count == IDLE_PRODUCERS
        print(
            f"{IDLE_PRODUCERS} idle producers, {what}: {grown / 1e6:5.1f} MB,"
            f" {grown / IDLE_PRODUCERS:5.0f} bytes each, with spans and markers;"
            f" a full garbage collection takes {collected_ms:4.0f} ms"
        )


# Objects in transactions, beside idempotent ones.


def in_transactions(made: list[Entry], instance: int) -> list[Entry]:
    """The same entries, their producers in transactions of the instance."""
    return [
        replace(entry, commands=tuple(_in_transaction(each, instance) for each in entry.commands))
        for entry in made
    ]


def _in_transaction(command: Command, instance: int) -> Command:
    assert isinstance(command, CommitChunk)
    spans = tuple(
        span._replace(items=tuple(item._replace(instance=instance) for item in span.items))
        for span in command.spans
    )
    return replace(command, spans=spans)


def transacting(partitions: int) -> Machine:
    """A machine in which the producers of `bench_apply` have open transactions."""
    machine = bench_apply.opened(partitions)
    # The producer ids of the items begin at 5000, one for each partition.
    machine.producer_ids.next = 5000
    for number in range(partitions):
        place = (bench_apply.TOPIC, number)
        init = InitProducer(f"id-{number}", 60_000, -1, -1)
        add = AddToTransaction(f"id-{number}", 5000 + number, 0, 1, 7, (place,), ())
        entry = Entry(Incarnation(bench_apply.START), 2 + number, 0, (init, add))
        machine.apply(Position(bench_apply.START + 2 + number), entry)
    return machine


def chunk_us(made: list[Entry], *, partitions: int) -> float:
    """Microseconds to decode and apply one of the entries, the best of rounds."""
    data = [encode_entry(replace(entry, n=entry.n + partitions)) for entry in made]
    best = float("inf")
    for _ in range(ROUNDS):
        machine = transacting(partitions)
        began = time.process_time()
        for index, each in enumerate(data):
            place = Position(bench_apply.START + 2 + partitions + index)
            (outcome,) = machine.apply(place, decode_entry(each))
        best = min(best, time.process_time() - began)
        assert isinstance(outcome, ChunkCommitted)
        assert {result.error for result in outcome.results} == {ErrorCode.NONE}
    return best / len(made) * 1e6


def measure_chunks() -> None:
    for spans, items, partitions in ((1, 1, 16), (64, 1, 64), (64, 5, 64), (250, 1, 1000)):
        made = bench_apply.entries(spans=spans, items=items, partitions=partitions, idempotent=True)
        plain_us = chunk_us(in_transactions(made, NO_TRANSACTION), partitions=partitions)
        old_us = chunk_us(in_transactions(made, 1), partitions=partitions)
        new_us = chunk_us(in_transactions(made, OF_EPOCH), partitions=partitions)
        print(
            f"{spans:4} spans of {items}, decode and apply: idempotent {plain_us:7.1f} µs an entry,"
            f" TV1 {old_us / plain_us:4.2f} times, TV2 {new_us / plain_us:4.2f} times"
        )


def main() -> None:
    measure_idle()  # First: later on the process would grow into what it has got already.
    measure_ends()
    measure_chunks()


if __name__ == "__main__":
    main()
