"""Rows with bytes for the tests of merging and compaction: a partition as a strategy.

A `History` is what a partition may hold: batches of plain and transactional producers in chunks,
ends of transactions, and which of them were aborted. No transaction is open at its end.
"""

import random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from protocol import records
from protocol.compression import Codec
from protocol.records import Record, build_batch, iterate, read_header
from protocol.types import Buffer, Incarnation, position
from storage.formats.batches import Batches
from storage.formats.spans import Marker, ObjectId, ObjectKind, Span
from tests.storage.build import all_sound

UNHURRIED = settings(deadline=None, max_examples=50)
"""Machines that run tests are busy."""

BASE = 1000
SEGMENT = ObjectId(Incarnation(position(1, 9)), 1, ObjectKind.SEGMENT)
Row = Span | Marker


class History(NamedTuple):
    rows: list[Row]
    data: list[bytes]
    """Of each span, in order."""
    aborted: list[tuple[int, int, int]]

    @property
    def next_offset(self) -> int:
        return self.rows[-1].next_offset


class Seen(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    control: bool


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"k" * 41, b"l" * 300, b"", None])
VALUES = st.one_of(st.none(), st.binary(max_size=3), st.just(b"v" * 100))
HEADERS = st.lists(
    st.tuples(st.sampled_from(["h", "\udcff"]), st.one_of(st.none(), st.just(b"x" * 70))),
    max_size=2,
).map(tuple)
RECORDS = st.builds(
    Record, st.just(-1), st.sampled_from([-1, 0, 5000, 5001, 5100, 10**6]), KEYS, VALUES, HEADERS
)
BATCHES = st.tuples(
    st.lists(RECORDS, min_size=1, max_size=5),
    st.sampled_from(list(Codec)),
    st.sampled_from([0, 0, records.LOG_APPEND_TIME]),
    st.sampled_from([-1, 1, 2]),  # The producer.
)
STEPS = st.one_of(BATCHES, st.tuples(st.sampled_from([1, 2]), st.booleans()))


def history(steps: list[tuple[object, ...]], seed: int) -> History:
    """Batches, and ends of transactions for (producer, commit); several batches share a span."""
    rng = random.Random(seed)
    rows: list[Row] = []
    data: list[bytes] = []
    aborted: list[tuple[int, int, int]] = []
    begun: dict[int, int] = {}
    offset = BASE
    ends = [(producer_id, rng.random() < 0.5) for producer_id in (1, 2)]
    for number, step in enumerate([*steps, *ends]):
        if len(step) == 2:
            producer_id, commit = step
            first = begun.pop(producer_id, None)
            if first is None:
                continue
            rows.append(Marker(offset, producer_id, 3, commit, 5000 + number))
            if not commit:
                aborted.append((producer_id, first, offset))
            offset += 1
            continue
        contents, codec, attributes, producer_id = step
        if producer_id >= 0:
            attributes |= records.TRANSACTIONAL
            begun.setdefault(producer_id, offset)
        batch = build_batch(
            contents,
            codec=codec,
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 3,
            base_sequence=-1 if producer_id < 0 else number,
        )
        timestamp = max(record.timestamp for record in contents)
        last = rows[-1] if rows else None
        if isinstance(last, Span) and rng.random() < 0.5:
            rows[-1] = last._replace(
                length=last.length + len(batch),
                records=last.records + len(contents),
                timestamp_max=max(last.timestamp_max, timestamp),
            )
            data[-1] += batch
        else:
            chunk = ObjectId(Incarnation(5), number)
            rows.append(Span(chunk, 16, len(batch), offset, len(contents), timestamp))
            data.append(batch)
        offset += len(contents)
    return History(rows, data, aborted)


HISTORIES = st.builds(history, st.lists(STEPS, min_size=1, max_size=12), st.integers(0, 99)).filter(
    lambda made: bool(made.rows)
)


def batches_of(rows: list[Row], data: list[bytes]) -> list[bytes]:
    """Every batch as clients get it."""
    left = iter(data)
    found = []
    for row in rows:
        batches = Batches.of_marker(row) if isinstance(row, Marker) else Batches.of(row, next(left))
        assert all_sound(batches.view())
        found.extend(split(batches.view()))
    return found


def split(view: Buffer) -> list[bytes]:
    starts, _ = records.batch_positions(view)
    return [
        bytes(view[start:end]) for start, end in zip(starts, [*starts[1:], len(view)], strict=True)
    ]


def committed(batches: list[bytes], aborted: list[tuple[int, int, int]]) -> list[bytes]:
    """The batches that read_committed consumers are not to skip, as Kafka's clients find them."""
    kept = []
    for batch in batches:
        header = read_header(batch)
        hidden = header.is_transactional and not header.is_control
        if not hidden or not any(
            producer_id == header.producer_id and first <= header.base_offset <= last
            for producer_id, first, last in aborted
        ):
            kept.append(batch)
    return kept


def seen(batches: list[bytes]) -> list[Seen]:
    found = []
    for batch in batches:
        header = read_header(batch)
        for record in iterate(batch):
            found.append(Seen(*record, header.producer_id, header.is_control))
    return found


def span_of(parts: list[Buffer], *, base_offset: int, next_offset: int, timestamp_max: int) -> Span:
    """As if the parts were the segment's only span."""
    length = sum(map(len, parts))
    return Span(SEGMENT, 16, length, base_offset, next_offset - base_offset, timestamp_max)
