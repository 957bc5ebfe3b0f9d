"""`python -m tests.bench.bench_hot`: what the hot functions cost, by themselves.

Prints microseconds per call, best of five; never a test, since machines differ. What runs once per
request, per batch or per byte of a produce or a fetch, in the order in which bytes meet it.
"""

import time
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from broker.transactions.batch_transactions import Producer, is_seen, producer_of
from coordinator.tables.objects import Objects
from coordinator.tables.partition import Partition
from coordinator.tables.transactions import Transactions
from protocol import fetch, produce
from protocol.framing import FrameSplitter, parse_header, request_frame
from protocol.produce import PartitionResult
from protocol.records import TRANSACTIONAL, Record, build_batch, check_batch
from protocol.types import POSITION_ZERO, Incarnation, TopicId
from storage.accumulator import Accumulator, Limits
from storage.cache import Cache
from storage.formats.batches import Batches
from storage.formats.spans import ObjectId, Span
from tests.bench.load import batch_of, produce_body
from txn.transactions import State, TransactionMetadata

KiB: Final = 1 << 10
MiB: Final = 1 << 20
TOPIC: Final = TopicId(b"0123456789abcdef")
CHUNK: Final = ObjectId(Incarnation(1), 0)
PRODUCE, PRODUCE_VERSION, FETCH_VERSION = 0, 8, 11


def measure(title: str, call: Callable[[], object], *, byte_count: int = 0) -> None:
    """Print the time of a call, and s per GB where bytes are touched."""
    count, best = 1, 1e9
    while (took := _time(call, count)) < 0.02:
        count *= 4
    for _ in range(5):
        took = _time(call, count)
        best = min(best, took / count)
    per_gb = f"{best / (byte_count / 1e9):8.3f} s/GB" if byte_count else ""
    print(f"{title:52} {best * 1e6:10.2f} us {per_gb}", flush=True)


def _time(call: Callable[[], object], count: int) -> float:
    begun = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - begun


def receive(partitions: int, size: int) -> None:
    """Frames, headers and requests."""
    batch = batch_of(size)
    body = b"".join(produce_body("bench", [(index, batch) for index in range(partitions)]))
    frame = request_frame(PRODUCE, PRODUCE_VERSION, 1, "bench", body)
    pieces = [frame[at : at + 128 * KiB] for at in range(0, len(frame), 128 * KiB)]

    def split() -> None:
        splitter = FrameSplitter()
        for piece in pieces:
            splitter.receive(piece)

    title = f"{partitions} x {size // KiB} KiB"
    measure(f"split a frame, {title}", split, byte_count=len(frame))
    measure(f"parse a header, {title}", lambda: parse_header(frame[4:300]))
    parsed = parse_header(memoryview(frame)[4:]).body
    measure(f"parse a Produce request, {title}", lambda: produce.parse_request(8, parsed))


def validate_batches(size: int) -> None:
    """One batch: its checks, and its place in a chunk."""
    batch = memoryview(batch_of(size))
    title = f"{size // KiB} KiB"
    measure(f"check a batch, {title}", lambda: check_batch(batch), byte_count=len(batch))
    measure(f"CRC-32C alone, {title}", lambda: crc32c(batch), byte_count=len(batch))


def name_transaction(partitions: int) -> None:
    """A request of a transaction: whose it is, and whether it is known here."""
    plain, sent = memoryview(bytes(1000)), memoryview(_transactional())
    for title, view in (("plain", plain), ("transactional", sent)):
        topics: list[produce.ProduceTopic] = [("t", None, [(0, view)] * partitions)]
        measure(f"find the producer, {partitions} {title}", lambda t=topics: producer_of("x", t))
    table = Transactions()
    row = table.create("x", TransactionMetadata(7, 3))
    table.transition_to(
        row, TransactionMetadata(7, 3, state=State.ONGOING, instance=1), clock_ms=0, time_ms=0
    )
    places = [(TOPIC, index) for index in range(partitions)]
    table.join(row, [Partition(*place, Objects()) for place in places], ())
    producer = Producer(7, 3)
    measure(
        f"see the transaction, {partitions} partitions",
        lambda: is_seen(table, "x", producer, places, version=11),
    )


def _transactional() -> bytes:
    return build_batch(
        [Record(value=bytes(900))],
        attributes=TRANSACTIONAL,
        producer_id=7,
        producer_epoch=3,
        base_sequence=0,
    )


def gather(partitions: int, size: int) -> None:
    """A chunk of 4 MiB: filled and closed, and its object described."""
    batch = memoryview(batch_of(size))
    count = 4 * MiB // len(batch)

    def close() -> None:
        accumulator = Accumulator(Limits())
        for index in range(count):
            accumulator.add(
                TOPIC,
                index % partitions,
                batch,
                records=1,
                timestamp_max=0,
                producer_id=-1,
                producer_epoch=-1,
                first_sequence=-1,
                token=None,
                now_ms=0,
            )
        accumulator.close(0).object_parts(CHUNK, cluster_id="bench", reached=POSITION_ZERO)

    title = f"{count} x {size // KiB} KiB, {partitions} partitions"
    measure(f"fill and close a chunk, {title}", close, byte_count=count * len(batch))


def publish(batches: int, size: int) -> None:
    """A span, copied and patched (own) or patched in place and checked (read)."""
    batch = batch_of(size)
    records = check_batch(batch)
    assert not isinstance(records, int)
    data = bytearray(batch * batches)
    span = Span(CHUNK, 16, len(data), 0, records.record_count * batches, 0)
    title = f"{batches} x {size // KiB} KiB"
    parts = [batch] * batches
    measure(f"patch a copy, {title}", lambda: Batches.of(span, parts), byte_count=len(data))
    view = memoryview(data)
    measure(
        f"patch in place and check, {title}",
        lambda: Batches.checked(span, view),
        byte_count=len(data),
    )
    whole = Batches.of(span, parts)
    measure(f"slice, {title}", lambda: whole.slice(0, bytes_max=MiB, at_least_one=True))


def answer(partitions: int) -> None:
    """Answers of Produce and Fetch."""
    results = [PartitionResult(index, 0, 1) for index in range(partitions)]
    measure(
        f"encode a Produce answer, {partitions} partitions",
        lambda: produce.encode_response(PRODUCE_VERSION, [("bench", None, results)]),
    )
    view = memoryview(bytes(16 * KiB))
    answers = []
    for index in range(partitions):
        row = fetch.PartitionAnswer(index)
        row.records, row.records_bytes = [view], len(view)
        answers.append(row)
    response = fetch.FetchResponse([("bench", None, answers)])
    measure(
        f"encode a Fetch answer, {partitions} partitions",
        lambda: fetch.encode_response(FETCH_VERSION, response),
    )


def evict() -> None:
    """A full cache: one in, the oldest out."""
    cache: Cache[int, bytes] = Cache(10_000, size_of=len)
    numbers = iter(range(1 << 60))
    for _ in range(30_000):
        cache.put(next(numbers), b"x")
    measure("put into a full cache", lambda: cache.put(next(numbers), b"x"))


def main() -> None:
    """Print every figure."""
    for partitions, size in ((1, MiB), (63, 16 * KiB)):
        receive(partitions, size)
    for size in (16 * KiB, MiB):
        validate_batches(size)
    for partitions in (1, 64):
        name_transaction(partitions)
    for partitions, size in ((1, MiB), (64, 16 * KiB)):
        gather(partitions, size)
    for count, size in ((4, MiB), (5, 16 * KiB), (64, 16 * KiB)):
        publish(count, size)
    for partitions in (1, 64):
        answer(partitions)
    evict()


if __name__ == "__main__":
    main()
