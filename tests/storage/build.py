"""What the tests of storage/ are built from: batches, pending batches, closed chunks."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from crc32c import crc32c

from protocol.records import Record, batch_positions, build_batch, read_header
from protocol.types import POSITION_ZERO, Incarnation, TopicId, position
from storage.accumulator import Accumulator, ClosedChunk, Limits, PendingBatch
from storage.formats.spans import ObjectId, Span
from tests.kit.loop import SimLoop

TOPIC_A = TopicId(b"a" * 16)
TOPIC_B = TopicId(b"b" * 16)
CHUNK = ObjectId(Incarnation(position(1, 77)), 3)
CLUSTER = "cluster-of-tests"


def batch(records: int = 1, *, value: bytes = b"value", timestamp: int = 1000) -> bytes:
    """A plain record batch as a producer sends it."""
    return build_batch([Record(-1, timestamp, None, value, ()) for _ in range(records)])


def all_sound(view: memoryview) -> bool:
    """Whether the CRC of every batch is right."""
    starts, _ = batch_positions(view)
    ends = [*starts[1:], len(view)]
    return all(
        read_header(view, start).crc == crc32c(view[start + 21 : end])
        for start, end in zip(starts, ends, strict=True)
    )


def add(
    accumulator: Accumulator,
    data: bytes,
    *,
    topic_id: TopicId = TOPIC_A,
    partition: int = 0,
    records: int = 1,
    timestamp_max: int = 1000,
    producer_id: int = -1,
    first_sequence: int = -1,
    instance: int = -1,
    token: object = None,
    now_ms: int = 0,
) -> PendingBatch:
    return accumulator.add(
        topic_id,
        partition,
        data,
        records=records,
        timestamp_max=timestamp_max,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        first_sequence=first_sequence,
        instance=instance,
        token=token,
        now_ms=now_ms,
    )


def closed(batches: Sequence[tuple[int, int, bytes]]) -> ClosedChunk:
    """A chunk of (partition of topic A, records, bytes)."""
    accumulator = Accumulator(Limits())
    for partition, records, data in batches:
        add(accumulator, data, partition=partition, records=records)
    return accumulator.close(0)


def object_of(chunk: ClosedChunk, chunk_id: ObjectId = CHUNK) -> bytes:
    return b"".join(chunk.object_parts(chunk_id, cluster_id=CLUSTER, reached=POSITION_ZERO))


def spans_of(chunk: ClosedChunk, *, base_offset: int, chunk_id: ObjectId = CHUNK) -> list[Span]:
    """The chunk's spans as if each partition's end offset were `base_offset`."""
    return [
        Span(
            chunk_id,
            span.start,
            span.length,
            base_offset,
            sum(one.records for one in span.batches),
            max(one.timestamp_max for one in span.batches),
        )
        for span in chunk.spans
    ]


def run_virtual(test: Callable[[], Coroutine[Any, Any, None]], *, seed: int = 1) -> None:
    """Run a test on virtual time: waiting costs nothing, and the order of callbacks is drawn."""
    with asyncio.Runner(loop_factory=lambda: SimLoop(random.Random(seed))) as runner:
        runner.run(test())
