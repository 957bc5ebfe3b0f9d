"""Clients read a log whose records lie in pages, segments and chunks, and with holes in it.

Kafka's own Java client, librdkafka, kafka-python and aiokafka get to the end and see exactly the
committed records, whatever the jobs have made of the log.
"""

import time
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.clients import logs
from tests.clients.bounded import Bounded
from tests.clients.logs import READERS, Row
from tests.clients.records import FIRST_TIMESTAMP_MS
from tests.parts.topics import NotNowError, patiently, told

pytestmark = pytest.mark.integration

SMALL = (1, 2)
"""Sizes of transactions, so that a log gets many rows."""


class Log(NamedTuple):
    bootstrap: str
    topic: str
    rows: list[Row]
    """What readers must see."""


@pytest.fixture(scope="module")
def layered(eager_embedded: Bounded) -> Log:
    """The oldest records are in segments; rows are in pages, but for those of the newest."""
    cluster, topic = eager_embedded, "layered"
    logs.create(cluster.bootstrap, topic)

    def write(first: int, records: int, sizes: tuple[int, ...]) -> list[Row]:
        return list(
            logs.write(
                cluster.bootstrap,
                topic,
                records=records,
                keys=50,
                seed=first,
                first=first,
                sizes=sizes,
            )
        )

    # Merging first: it takes rows out of pages again when that is worth it.
    rows = write(0, 2000, (50, 100))
    cluster.run_until("merge", topic, lambda row: row["segment_bytes"] > 0)
    rows += write(2000, 900, SMALL)
    assert cluster.partition(topic)["rows"] > 1000
    cluster.run_until("spill", topic, lambda row: row["pages"] > 0)
    rows += write(2900, 500, (50, 100))
    found = cluster.partition(topic)
    assert found["rows_in_pages"] >= 64
    assert found["segment_bytes"] > 0
    assert found["chunk_bytes"] > 0
    return Log(cluster.bootstrap, topic, rows)


@pytest.mark.parametrize("client", READERS)
def test_a_log_in_layers_is_read_without_a_seam(layered: Log, client: str) -> None:
    check(layered, client, layered.rows[len(layered.rows) // 3].offset + 1)


def check(log: Log, client: str, middle: int) -> None:
    """What the client reads from the beginning, and from an offset."""
    from_start, from_middle = READERS[client](log.bootstrap, log.topic, 0, middle)
    assert from_start == log.rows
    assert from_middle == [row for row in log.rows if row.offset >= middle]


@pytest.fixture(scope="module", params=["eager_embedded", "three_agents"])
def cleaned(request: pytest.FixtureRequest) -> Log:
    """A compacted log: of each key the newest record, holes between, an open end."""
    server = request.getfixturevalue(request.param)
    cluster = server if isinstance(server, Bounded) else Bounded.of(server)
    topic = "cleaned"
    logs.create(
        cluster.bootstrap, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01"
    )
    rows: list[Row] = []
    for part in range(2):
        rows += logs.write(
            cluster.bootstrap, topic, records=4000, keys=150, seed=part, first=4000 * part
        )
        cluster.run_until("compact", topic, lambda row: row["clean_to"] == row["end"])
    return Log(cluster.bootstrap, topic, logs.compacted(rows))


@pytest.mark.parametrize("client", READERS)
def test_a_compacted_log_is_read_over_its_holes_to_its_end(cleaned: Log, client: str) -> None:
    hole = next(
        before.offset + 1
        for before, after in zip(cleaned.rows, cleaned.rows[1:], strict=False)
        if after.offset > before.offset + 1
    )
    check(cleaned, client, hole)


def test_retention_that_is_set_while_a_consumer_runs_moves_the_start_and_not_the_consumer(
    eager_embedded: Bounded,
) -> None:
    cluster, topic = eager_embedded, "retained"
    logs.create(cluster.bootstrap, topic)
    values = [b"%d" % number for number in range(100)]
    written = logs.write_plainly(cluster.bootstrap, topic, *values, at_ms=FIRST_TIMESTAMP_MS)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "retained",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[Row] = []
    while len(read) < len(written):
        read += polled(consumer)
    assert read == written

    hour = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[hour])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    patiently(lambda: told(admin.incremental_alter_configs([resource])[resource]), NotNowError)
    row = cluster.run_until("retention", topic, lambda row: row["log_start"] == row["end"])
    assert row["chunk_bytes"] + row["segment_bytes"] == 0
    bounds = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    assert bounds == (row["end"], row["end"])

    now_ms = int(time.time() * 1000)
    new = logs.write_plainly(cluster.bootstrap, topic, b"new", at_ms=now_ms)
    assert new[0].offset == row["end"]
    cluster.run("retention")
    assert polled(consumer) == new
    assert logs.read_librdkafka(cluster.bootstrap, topic, row["end"]) == new
    consumer.close()


def polled(consumer: Consumer) -> list[Row]:
    """The next record."""
    message = consumer.poll(30)
    assert message is not None, "nothing came"
    assert message.error() is None, message.error()
    return [Row(message.offset(), message.key(), message.value())]
