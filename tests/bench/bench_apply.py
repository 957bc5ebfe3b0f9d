"""What an entry costs a replica: `python -m tests.bench.bench_apply`.

Prints microseconds of CPU per entry and per span or committed offset, to encode, to decode and to
apply, for shapes from one to an entry full of them; best of several rounds, with the collector of
garbage as an agent has it. No test: it measures, it does not judge. The budget is 5 µs a span, decoding
included (docs/design/bounded.md §9).
"""

import gc
import time
from collections.abc import Callable

from broker.cli.main import COLLECTED_AFTER
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import ChunkSpan, CommitChunk, CreateTopic, Entry, Open
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_SHARDS,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
)
from coordinator.machine.machine import Machine
from coordinator.tables.topics import topic_id_at
from protocol.types import INCARNATION_NONE, Incarnation, Position, position
from storage.formats.spans import Item

ENTRIES = 200
ROUNDS = 5
START = position(1, 1)
TOPIC = topic_id_at(Position(START + 1), 0)
BATCH_BYTES = 16_000


def opened(partitions: int) -> Machine:
    machine = Machine()
    command = Open(1, "agent-0", -1, "zone-a", (), "0.1.0", 1)
    machine.apply(START, Entry(INCARNATION_NONE, 0, 0, (command,)))
    create = CreateTopic("events", partitions, ())
    claim = ClaimShards(tuple(range(GROUP_SHARDS)))
    machine.apply(Position(START + 1), Entry(Incarnation(START), 1, 0, (create, claim)))
    return machine


def entries(*, spans: int, items: int, partitions: int, idempotent: bool) -> list[Entry]:
    """`ENTRIES` entries of one chunk each; producers go on with their sequences."""
    sequences = [0] * partitions
    made = []
    for number in range(ENTRIES):
        clock_ms = 1_700_000_000_000 + 100 * number
        chunk, at = [], 0
        for index in range(spans):
            partition = (number * spans + index) % partitions
            batches = []
            for batch in range(items):
                stamp = clock_ms - 7 * batch
                if idempotent:
                    sequence = sequences[partition]
                    sequences[partition] = sequence + 20
                    batches.append(Item(0, BATCH_BYTES, 20, stamp, 5000 + partition, 0, sequence))
                else:
                    batches.append(Item(0, BATCH_BYTES, 20, stamp))
            chunk.append(ChunkSpan(TOPIC, partition, at, tuple(batches)))
            at += items * BATCH_BYTES
        command = CommitChunk(number, at, tuple(chunk))
        made.append(Entry(Incarnation(START), 2 + number, clock_ms, (command,)))
    return made


def best_us(run: Callable[[], None]) -> float:
    """Microseconds of CPU for one of ENTRIES, in the best of ROUNDS rounds."""
    best = min(_seconds(run) for _ in range(ROUNDS))
    return best / ENTRIES * 1e6


def _seconds(run: Callable[[], None]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def commits(*, offsets: int, groups: int, metadata: bool) -> list[Entry]:
    """`ENTRIES` entries of one commit each, of the same partitions over and over.

    Offsets are some 10^10 and apart; metadata, if any, are 12 characters, other ones each.
    """
    made = []
    for number in range(ENTRIES):
        rows = tuple(
            CommittedOffset(
                topic_id=TOPIC,
                partition=index,
                offset=(10**10 + 7919**3 * index) % 10**11 + number,
                leader_epoch=0,
                metadata=f"{index:06}{number:06}" * metadata,
            )
            for index in range(offsets)
        )
        command = CommitOffsets(f"group-{number % groups}", "", EPOCH_NONE, rows)
        clock_ms = 1_700_000_000_000 + 100 * number
        made.append(Entry(Incarnation(START), 2 + number, clock_ms, (command,)))
    return made


def measure(what: str, made: list[Entry], *, partitions: int, rows: int, row: str) -> None:
    """Print what one of the entries costs, and what one of its `rows` does."""
    data = [encode_entry(entry) for entry in made]
    machines = iter([opened(partitions) for _ in range(ROUNDS)])

    def encode_all() -> None:
        for entry in made:
            encode_entry(entry)

    def decode_all() -> None:
        for each in data:
            decode_entry(each)

    def apply_all() -> None:
        machine = next(machines)
        for index, entry in enumerate(made):
            machine.apply(Position(START + 2 + index), entry)

    encode_us, decode_us = best_us(encode_all), best_us(decode_all)
    apply_us = best_us(apply_all)
    print(
        f"{what}, {len(data[-1]):6} bytes | per entry: encode {encode_us:7.1f}"
        f" decode {decode_us:7.1f} apply {apply_us:7.1f} µs"
        f" | decode + apply per {row} {(decode_us + apply_us) / rows:5.2f} µs"
    )


def measure_spans(*, spans: int, items: int, partitions: int, idempotent: bool) -> None:
    made = entries(spans=spans, items=items, partitions=partitions, idempotent=idempotent)
    kind = "idempotent" if idempotent else "plain"
    what = f"{spans:4} spans of {items} {kind:10} over {partitions:5} partitions"
    measure(what, made, partitions=partitions, rows=spans, row="span")


def measure_commits(*, offsets: int, metadata: bool = False) -> None:
    made = commits(offsets=offsets, groups=10, metadata=metadata)
    what = f"{offsets:4} committed offsets {'with' if metadata else 'without'} metadata"
    measure(what, made, partitions=1000, rows=offsets, row="offset")


def main() -> None:
    gc.set_threshold(*COLLECTED_AFTER)
    for idempotent in (True, False):
        measure_spans(spans=1, items=1, partitions=16, idempotent=idempotent)
        measure_spans(spans=4, items=1, partitions=64, idempotent=idempotent)
        measure_spans(spans=64, items=1, partitions=64, idempotent=idempotent)
        measure_spans(spans=64, items=5, partitions=64, idempotent=idempotent)
        measure_spans(spans=250, items=1, partitions=4096, idempotent=idempotent)
    for offsets in (1, 10, 100, 1000):
        measure_commits(offsets=offsets)
    measure_commits(offsets=100, metadata=True)


if __name__ == "__main__":
    main()
