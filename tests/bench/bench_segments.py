"""`python -m tests.bench.bench_segments`: what merging and log compaction cost, by themselves.

Prints MB/s of merging by size of batches, and records/s of both passes of log compaction by codec
and by what stays, on one core, as CPU time. Never a test, since machines differ.
"""

import random
import time
from typing import Final, NamedTuple

from protocol.compression import Codec
from protocol.records import Record, build_batch
from protocol.types import Incarnation
from storage.cleaner import Cleaner, OffsetMap
from storage.formats.batches import Batches
from storage.formats.page import decode_rows, encode_rows
from storage.formats.segment import merge_rows
from storage.formats.spans import ObjectId, ObjectKind, Span
from storage.formats.walk import Aborted

NOW_MS: Final = 1_700_000_000_000
MERGED_BYTES: Final = 8 << 20
RECORDS: Final = 100_000
BATCHES_PER_SPAN: Final = 20


class Rows(NamedTuple):
    rows: list[Span]
    data: list[bytes]
    records: int


def spans_of(batches: list[tuple[bytes, int]]) -> Rows:
    rows: list[Span] = []
    data = []
    offset = 0
    for at in range(0, len(batches), BATCHES_PER_SPAN):
        some = batches[at : at + BATCHES_PER_SPAN]
        joined = b"".join(batch for batch, _ in some)
        count = sum(records for _, records in some)
        chunk = ObjectId(Incarnation(1), len(rows))
        rows.append(Span(chunk, 16, len(joined), offset, count, NOW_MS))
        data.append(joined)
        offset += count
    return Rows(rows, data, offset)


def merging(value_bytes: int, records: int) -> None:
    batch = build_batch([Record(-1, NOW_MS, b"key", b"v" * value_bytes)] * records)
    made = spans_of([(batch, records)] * max(1, MERGED_BYTES // len(batch)))
    begun = time.process_time()
    merged = merge_rows(made.rows, made.data)
    took = time.process_time() - begun
    data = b"".join(merged.parts)
    segment = ObjectId(Incarnation(1), 0, ObjectKind.SEGMENT)
    span = Span(segment, 16, len(data), 0, made.records, NOW_MS)
    begun = time.process_time()
    Batches.checked(span, memoryview(data))
    opened = time.process_time() - begun
    print(
        f"merge, batches of {len(batch):7} bytes {merged.length / took / 1e6:8.0f} MB/s; "
        f"opening {len(data) >> 20} MiB of them to be served {opened * 1e3:6.1f} ms",
        flush=True,
    )


def compacting(codec: Codec, *, keys: int, per_batch: int, rng: random.Random) -> None:
    words = [rng.randbytes(8).hex().encode() for _ in range(1000)]
    batches = []
    for at in range(0, RECORDS, per_batch):
        records = [
            Record(
                -1,
                NOW_MS + at + number,
                b"key-%08d" % rng.randrange(keys),
                b"".join(rng.choices(words, k=6)),
            )
            for number in range(per_batch)
        ]
        batches.append((build_batch(records, codec=codec), per_batch))
    made = spans_of(batches)
    begun = time.process_time()
    offsets = OffsetMap(RECORDS)
    for span, data in zip(made.rows, made.data, strict=True):
        assert offsets.add(span, data, Aborted())
    learned = time.process_time()
    cleaner = Cleaner(offsets, time_ms=NOW_MS, delete_retention_ms=0)
    left = cleaner.clean(made.rows, made.data).records
    cleaned = time.process_time()
    print(
        f"compact {codec.name:6} {per_batch:4} a batch, {left / made.records:4.0%} stay: "
        f"learn {made.records / (learned - begun):9,.0f}/s, "
        f"clean {made.records / (cleaned - learned):9,.0f}/s, "
        f"together {made.records / (cleaned - begun):9,.0f}/s",
        flush=True,
    )


def pages() -> None:
    rows = [
        Span(ObjectId(Incarnation(5), number), number * 997, 5000, number * 40, 40, NOW_MS + number)
        for number in range(1000)
    ]
    begun = time.process_time()
    body = encode_rows(rows)
    encoded = time.process_time()
    decode_rows(body, base_offset=0, next_offset=rows[-1].next_offset)
    decoded = time.process_time()
    print(
        f"page of {len(rows)} rows: {len(body)} bytes, encode {(encoded - begun) * 1e3:.1f} ms, "
        f"decode {(decoded - encoded) * 1e3:.1f} ms",
        flush=True,
    )


def main() -> None:
    rng = random.Random(1)
    pages()
    for value_bytes, records in ((50, 1), (1000, 1), (100, 20), (100, 100), (1000, 1000)):
        merging(value_bytes, records)
    for codec in Codec:
        for keys in (RECORDS // 100, RECORDS // 2, RECORDS * 100):
            compacting(codec, keys=keys, per_batch=100, rng=rng)
    compacting(Codec.NONE, keys=RECORDS // 100, per_batch=1, rng=rng)


if __name__ == "__main__":
    main()
