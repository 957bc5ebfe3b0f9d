"""Kafka Streams' habits: repartition topics that it deletes from, changelogs that are compacted."""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients import logs
from tests.clients.bounded import Bounded, until
from tests.clients.streams import WordCount

pytestmark = pytest.mark.integration

LINES = 300
WORDS = 40


def write_lines(bootstrap: str, topic: str, seed: int) -> Counter[str]:
    """Lines of words; how often each word came."""
    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": bootstrap})
    words: Counter[str] = Counter()
    for _ in range(LINES):
        line = [f"word{chance.randrange(WORDS)}" for _ in range(5)]
        producer.produce(topic, " ".join(line), partition=0)
        words.update(line)
    assert producer.flush(30) == 0
    return words


def test_counts_survive_the_loss_of_all_local_state_after_compaction(
    eager_embedded: Bounded, tmp_path: Path
) -> None:
    cluster, app = eager_embedded, "count"
    for topic in ("count-lines", "count-counts"):
        logs.create(cluster.bootstrap, topic)
    words: Counter[str] = Counter()
    for guarantee in ("at_least_once", "exactly_once_v2"):
        folder = tmp_path / guarantee
        with WordCount(
            cluster.bootstrap,
            folder,
            app=app,
            lines="count-lines",
            counts="count-counts",
            guarantee=guarantee,
        ):
            words += write_lines(cluster.bootstrap, "count-lines", len(words))
            until_counted(cluster, words)
        changelog = "count-counts-changelog"
        cluster.run_until("compact", changelog, lambda row: row["clean_to"] == row["end"])
        kept = logs.read_librdkafka(cluster.bootstrap, changelog)
        assert len(kept) == len(words), "one record for each word"
        shutil.rmtree(folder / "state")


def until_counted(cluster: Bounded, words: Counter[str]) -> None:
    """Wait until all words are counted, and what was counted is deleted: the repartition topic is
    never anything but short."""

    def told() -> dict[str, int]:
        rows = logs.compacted(logs.read_librdkafka(cluster.bootstrap, "count-counts"))
        return {row.key.decode(): int(row.value or b"0") for row in rows}

    until(told, lambda counted: counted == words)
    until(
        lambda: cluster.partition("count-words-repartition"),
        lambda row: row["log_start"] >= words.total(),
    )
