"""The same input compacted by Apache Kafka and here: the same records stay, in the same order.

With `FRAZIL_COMPACTED_RECORDS` and `FRAZIL_COMPACTED_KEYS` in the environment as long as one likes.
"""

import os
import time
from collections.abc import Iterable, Iterator

import pytest

from tests.clients import logs
from tests.clients.bounded import Bounded, until
from tests.clients.logs import Row, read_librdkafka
from tests.parts.servers import KafkaServer

pytestmark = pytest.mark.integration

RECORDS = int(os.environ.get("FRAZIL_COMPACTED_RECORDS", "6000"))
KEYS = int(os.environ.get("FRAZIL_COMPACTED_KEYS", "300"))
SIZES = (1, 20, 100, max(400, RECORDS // 250))
"""Records of transactions. With many records there are long ones, since each end takes a while."""
COMPACTED_S = 60 + RECORDS / 5_000
PARTS = 2
TOPIC = "compacted-twice"
MINUTE_MS = 60_000


def create(bootstrap: str) -> None:
    """Tombstones are to go with the second compaction after them. Kafka compacts nothing that is in
    the segment that is written to, and begins another one when some time has passed."""
    logs.create(
        bootstrap,
        TOPIC,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        delete_retention_ms="1",
        segment_ms=str(15 * MINUTE_MS),
    )


def write(bootstrap: str, part: int) -> Iterator[Row]:
    """A part of the log, and a record that comes much later, by its timestamp: in Kafka, first in
    a new segment. (Timestamps are of now, since those of ends of transactions are.)"""
    now_ms = int(time.time() * 1000)
    first = part * RECORDS
    yield from logs.write(
        bootstrap,
        TOPIC,
        records=RECORDS,
        keys=KEYS,
        seed=part,
        first=first,
        sizes=SIZES,
        since_ms=now_ms,
    )
    later_ms = now_ms + (20 + 25 * part) * MINUTE_MS
    yield from logs.write_plainly(bootstrap, TOPIC, b"last %d" % part, at_ms=later_ms)


def clean_to(kafka: KafkaServer) -> int:
    """How far Kafka's cleaner has come."""
    checkpoint = kafka.folder / "data" / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return 0
    words = [line.split() for line in checkpoint.read_text().splitlines()]
    return max((int(line[2]) for line in words if line[:2] == [TOPIC, "0"]), default=0)


def left(before: list[Row], part: Iterable[Row]) -> list[Row]:
    """The newest record of each key, but no tombstone that has seen a compaction before."""
    return logs.compacted([row for row in before if row.value is not None] + logs.compacted(part))


def records(rows: list[Row]) -> list[tuple[bytes, bytes | None]]:
    return [(row.key, row.value) for row in rows]


def test_what_is_left_is_what_kafka_leaves(kafka: KafkaServer, eager_embedded: Bounded) -> None:
    create(kafka.bootstrap)
    create(eager_embedded.bootstrap)
    theirs: list[Row] = []
    ours: list[Row] = []
    for part in range(PARTS):
        theirs = left(theirs, write(kafka.bootstrap, part))
        last = theirs[-1]
        assert last.value == b"last %d" % part
        until(lambda: clean_to(kafka), lambda offset: offset >= last.offset, seconds=COMPACTED_S)  # noqa: B023
        assert read_librdkafka(kafka.bootstrap, TOPIC) == theirs

        ours = left(ours, write(eager_embedded.bootstrap, part))
        eager_embedded.run_until(
            "compact", TOPIC, lambda row: row["clean_to"] == row["end"], seconds=COMPACTED_S
        )
        assert read_librdkafka(eager_embedded.bootstrap, TOPIC) == ours
        assert records(ours) == records(theirs)
    assert any(row.value is None for row in ours)
