"""`frazil topic` beside Apache Kafka: the same commands, line by line the same answers."""

import contextlib
import io
import re
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Producer

from broker.cli import main
from tests.clients.side_by_side import PATIENCE_S, Pair, plain

pytestmark = pytest.mark.integration

_IDS: Final = re.compile(r'(\bid |"topic_id": ")[\w-]{22}\b')
_REASONS: Final = re.compile(r"(?<=Invalid value ).*")
"""Of a value: each says in its own words why it cannot be."""
MIN_ISR: Final = "min.insync.replicas 1 DYNAMIC_TOPIC_CONFIG"
"""Kafka sets it for the whole cluster (KIP-966), which Frazil does not: set on a topic it is the same."""


class Told(NamedTuple):
    """What a command printed, with single spaces, and its exit code."""

    lines: Sequence[str]
    complaints: Sequence[str]
    code: int


def told(bootstrap: str, words: str, tool: str) -> Told:
    out, err = io.StringIO(), io.StringIO()
    command, *others = words.split()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main.main([tool, command, "--bootstrap", bootstrap, *others])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Told(_lines(out, bootstrap), _lines(err, bootstrap), code)


def _lines(printed: io.StringIO, bootstrap: str) -> list[str]:
    text = plain(printed.getvalue(), bootstrap)
    text = _REASONS.sub("REASON", _IDS.sub(r"\1ID", text))
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines()]


def both(pair: Pair, words: str, tool: str = "topic") -> Told:
    """What both tell, which is the same; reads are repeated: Kafka's brokers hear of changes a moment
    after its controller."""
    deadline = time.monotonic() + (PATIENCE_S if words.startswith(("list", "describe")) else 0)
    while True:
        kafka, frazil = (told(bootstrap, words, tool) for bootstrap in pair)
        if kafka == frazil or time.monotonic() > deadline:
            assert kafka == frazil, words
            return frazil
        time.sleep(0.2)


def write(pair: Pair, topic: str, partitions: int, records: int) -> None:
    """Records, one a second from the thousandth on, that go to all partitions by turns."""
    for bootstrap in pair:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for number in range(records):
            time_ms = (1_000 + number) * 1_000
            key = b"%d" % number
            producer.produce(topic, b"", key, partition=number % partitions, timestamp=time_ms)
        assert producer.flush(30) == 0


@pytest.fixture
def orders(beside: Pair) -> Iterator[Pair]:
    """Where there is a topic of three partitions, which is deleted when the test ends."""
    words = "create orders --partitions 3 --config min.insync.replicas=1"
    assert both(beside, words).code == 0
    assert both(beside, "describe orders").lines[-1] == MIN_ISR
    yield beside
    assert both(beside, "delete orders --yes --if-exists").code == 0


def test_topics_are_created_listed_and_deleted(beside: Pair) -> None:
    assert both(beside, "list").lines == ["there are no topics"]
    assert both(beside, "create a b --partitions 2 --config retention.ms=5000").lines == [
        'topic "a" is created with 2 partitions, id ID',
        'topic "b" is created with 2 partitions, id ID',
    ]
    assert both(beside, "create c --dry-run").lines == [
        'topic "c" would be created with 1 partition'
    ]
    assert both(beside, "list").lines == ["NAME PARTITIONS REPLICAS", "a 2 1", "b 2 1"]
    both(beside, "list --json --internal")
    assert both(beside, "create a c --if-not-exists --json").code == 0
    assert both(beside, "delete a b --yes").code == 0
    assert both(beside, "list").lines == ["NAME PARTITIONS REPLICAS", "c 1 1"]
    assert both(beside, "delete a c --yes --if-exists").lines == [
        'there is no topic "a"',
        'topic "c" is deleted',
    ]
    assert both(beside, "list").lines == ["there are no topics"]


def test_a_topic_is_described_as_it_was_altered(orders: Pair) -> None:
    words = "alter orders --set retention.ms=-1 --append cleanup.policy=compact"
    assert both(orders, f"{words} --dry-run").code == 0
    assert both(orders, words).lines == [
        'topic "orders" is altered: set retention.ms=-1, append cleanup.policy=compact'
    ]
    # As after an answer that was lost: nothing is appended twice.
    assert both(orders, words).code == 0
    write(orders, "orders", 3, 5)
    assert both(orders, "describe orders").lines == [
        "orders: id ID, 3 partitions",
        "",
        "PARTITION LEADER REPLICAS ISR FIRST NEXT",
        "0 1 1 1 0 2",
        "1 1 1 1 0 2",
        "2 1 1 1 0 1",
        "",
        "CONFIG VALUE SOURCE",
        "cleanup.policy delete,compact DYNAMIC_TOPIC_CONFIG",
        MIN_ISR,
        "retention.ms -1 DYNAMIC_TOPIC_CONFIG",
    ]
    assert (
        both(orders, "alter orders --unset retention.ms --subtract cleanup.policy=delete").code == 0
    )
    assert "cleanup.policy compact DYNAMIC_TOPIC_CONFIG" in both(orders, "describe orders").lines


def test_topics_get_more_partitions(orders: Pair) -> None:
    assert both(orders, "add-partitions orders --by 2 --dry-run").lines == [
        'topic "orders" would have 5 partitions'
    ]
    assert both(orders, "add-partitions orders --to 4").lines == [
        'topic "orders" has 4 partitions now'
    ]
    assert "orders 4 1" in both(orders, "list").lines
    assert both(orders, "add-partitions orders --by 2").lines == [
        'topic "orders" has 6 partitions now'
    ]


def test_records_are_trimmed_by_offset_by_time_and_all(orders: Pair) -> None:
    both(orders, "alter orders --set retention.ms=-1")
    write(orders, "orders", 3, 30)
    head = "TOPIC PARTITION FIRST"
    assert both(orders, "trim orders:1 --before-offset 2 --yes").lines == [head, "orders 1 2"]
    assert both(orders, "trim orders --before-datetime 1970-01-01T00:16:52 --yes").lines == [
        head,
        "orders 0 4",
        "orders 1 4",
        "orders 2 4",
    ]
    both(orders, "describe orders")
    trimmed = both(orders, "trim orders:0,2 --all --yes")
    assert trimmed.lines == [head, "orders 0 10", "orders 2 10"]
    beyond = both(orders, "trim orders --before-offset 5 --yes")
    assert (beyond.lines[1:], beyond.code) == (["orders 0 10", "orders 1 5", "orders 2 10"], 0)


@pytest.mark.parametrize(
    "words",
    [
        "create orders",
        "create a/b",
        "create x --config nothing=1",
        "create x --config retention.ms=long",
        "create x --config cleanup.policy=shred",
        "describe nothing a/b",
        "describe nothing --json",
        "alter nothing --set retention.ms=1",
        "alter orders --set retention.ms=long",
        "alter orders --set nothing=1",
        "alter orders --append retention.ms=1",
        "alter orders --append cleanup.policy=shred",
        "alter orders --set retention.ms=1 --unset retention.ms",
        "delete nothing --yes",
        "delete a/b --yes",
        "add-partitions nothing --to 2",
        "add-partitions nothing --by 2",
        "add-partitions orders --to 2",
        "add-partitions orders --to 3",
        "trim nothing --all --yes",
        "trim orders:0,7 --all --yes",
        "trim orders --before-offset 9 --yes",
        "delete orders",
        "trim orders --all",
    ],
)
def test_mistakes_are_told_the_same(orders: Pair, words: str) -> None:
    refused = both(orders, words)
    assert refused.code == 1
    assert refused.complaints
