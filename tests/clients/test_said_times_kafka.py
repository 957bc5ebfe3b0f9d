"""Batches whose header says another newest timestamp than their records have, given to Apache Kafka
and to us: the same answers by time, the same headers in the end, the same records left by retention.

What the header says before a batch is merged, here after a minute, is the producer's. So is in one
case what is found by time until then: `TOO_LITTLE`.
"""

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from protocol import apis
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.hot import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.records import Record, build_batch, read_header
from tests.clients import logs
from tests.clients.bounded import EAGER, Bounded, until
from tests.clients.raw import ask
from tests.parts.servers import FrazilDev, KafkaServer
from tests.storage.lies import FAR_MS, saying

pytestmark = pytest.mark.integration

NOW_MS = int(time.time() * 1000)
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 9, 11, 11
EARLIEST = -2
SPECIAL = (-1, -2, -3, -4, -5, -6)
STEPS_MS = (0, 2000, 1000)
"""The records' timestamps, after that of the first."""
DAY_MS = 86_400_000
AGES_MS = {"young": 10_000, "old": 30 * DAY_MS}
SAID = {
    "right": lambda base: base + 2000,
    "none": lambda _base: -1,
    "zero": lambda _base: 0,
    "below the base": lambda base: base - 40 * DAY_MS,
    "too little": lambda base: base + 500,
    "too much": lambda base: base + 2001,
    "far future": lambda base: base + FAR_MS,
}
TOO_LITTLE = "too little"
CODECS = (Codec.NONE, Codec.GZIP, Codec.ZSTD)
NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
KAFKA_QUICK = ("log.retention.check.interval.ms=200", "log.initial.task.delay.ms=100")


class Pair(NamedTuple):
    kafka: str
    ours: Bounded

    @property
    def addresses(self) -> tuple[str, str]:
        return self.kafka, self.ours.bootstrap


class Answers(NamedTuple):
    """Of one case: to all times, and the batch as a consumer gets it."""

    theirs: "dict[int, Answer]"
    ours_at_first: "dict[int, Answer]"
    ours_merged: "dict[int, Answer]"
    their_batch: bytes
    our_batch: bytes


Answer = tuple[int, int, int]
"""Error, offset, timestamp."""


class Case(NamedTuple):
    said: str
    codec: Codec
    age: str

    @property
    def topic(self) -> str:
        return f"{self.said}-{self.codec.name}-{self.age}".replace(" ", "-")

    def batch(self, now_ms: int = NOW_MS) -> bytes:
        base = now_ms - AGES_MS[self.age]
        rows = [Record(-1, base + step, b"k", b"v%d" % step) for step in STEPS_MS]
        return saying(build_batch(rows, codec=self.codec), SAID[self.said](base))


CASES = [Case(*each) for each in product(SAID, CODECS, AGES_MS)]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.topic)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("said-times")
    kafka = KafkaServer(folder / "kafka", *KAFKA_QUICK)
    kafka.start()
    try:
        settings = [word for setting in EAGER for word in ("--set", setting)]
        with FrazilDev(folder / "ours", *settings) as agent:
            yield Pair(kafka.bootstrap, Bounded(agent.bootstrap, agent.http_port))
            assert agent.stop() == 0
    finally:
        kafka.stop()


def produce(address: str, topic: str, batch: bytes) -> tuple[int, list[int]]:
    """The error, and which records it is about."""
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )

    def send() -> tuple[int, list[int]]:
        answer = ask(address, apis.PRODUCE, PRODUCE_VERSION, request, seconds=30)
        (row,) = answer.responses[0].partition_responses
        return row.error_code, [each.batch_index for each in row.record_errors]

    # Kafka does not know at once that it leads a new topic, or that there is one.
    return until(send, lambda told: told[0] not in NOT_YET)


def places(address: str, topic: str, wanted: tuple[int, ...]) -> dict[int, Answer]:
    """Error, offset and timestamp that each of the times is answered with."""
    found = {}
    for timestamp in wanted:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        answer = ask(address, apis.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
        (row,) = answer.topics[0].partitions
        found[timestamp] = (row.error_code, row.offset, row.timestamp)
    return found


def place(address: str, topic: str, timestamp: int) -> int:
    return places(address, topic, (timestamp,))[timestamp][1]


def fetched(address: str, topic: str) -> bytes:
    """The first batch, without what lies before its CRC."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=10**6,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    (row,) = ask(address, apis.FETCH, FETCH_VERSION, request).responses[0].partitions
    assert row.error_code == ErrorCode.NONE
    return bytes(row.records[17 : read_header(row.records).size])


def times_around(case: Case) -> tuple[int, ...]:
    base = NOW_MS - AGES_MS[case.age]
    around = [base + step + more for step in STEPS_MS for more in (-1, 0, 1)]
    return (*SPECIAL, 0, *sorted(around), NOW_MS + FAR_MS)


@pytest.fixture(scope="module")
def answers(pair: Pair) -> dict[Case, Answers]:
    """All batches are given to both, and merged when everything was asked for."""
    for case in CASES:
        for address in pair.addresses:
            logs.create(address, case.topic, retention_ms="-1")
            assert produce(address, case.topic, case.batch()) == (ErrorCode.NONE, [])
    ours = pair.ours.bootstrap
    theirs, at_first = (
        {case: places(address, case.topic, times_around(case)) for case in CASES}
        for address in pair.addresses
    )
    merge(pair.ours)
    return {
        case: Answers(
            theirs[case],
            at_first[case],
            places(ours, case.topic, times_around(case)),
            fetched(pair.kafka, case.topic),
            fetched(ours, case.topic),
        )
        for case in CASES
    }


def merge(ours: Bounded) -> None:
    """Every batch. Time passes for the jobs when something is written."""
    logs.create(ours.bootstrap, "clock")

    def left() -> int:
        produce(ours.bootstrap, "clock", build_batch([Record(-1, NOW_MS, b"k", b"v")]))
        ours.run("merge")
        return sum(ours.partition(case.topic)["chunk_bytes"] for case in CASES)

    until(left, lambda chunk_bytes: chunk_bytes == 0)


@cases
def test_times_are_those_of_the_records(answers: dict[Case, Answers], case: Case) -> None:
    found = answers[case]
    newest = NOW_MS - AGES_MS[case.age] + 2000
    assert found.theirs[-3] == (ErrorCode.NONE, 1, newest)
    assert found.theirs[newest + 1] == (ErrorCode.NONE, -1, -1)
    if case.said != TOO_LITTLE:
        assert found.ours_at_first == found.theirs
    assert found.ours_merged == found.theirs


@cases
def test_headers_are_right_when_batches_were_merged(
    answers: dict[Case, Answers], case: Case
) -> None:
    assert answers[case].our_batch == answers[case].their_batch


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("said", SAID)
def test_records_too_far_ahead_are_refused_whatever_their_header_says(
    pair: Pair, said: str, codec: Codec
) -> None:
    topic = f"ahead-{said}-{codec.name}".replace(" ", "-")
    batch = Case(said, codec, "young").batch(NOW_MS + 2 * FAR_MS)
    for address in pair.addresses:
        logs.create(address, topic)
        assert produce(address, topic, batch) == (ErrorCode.INVALID_TIMESTAMP, [0, 1, 2])


@pytest.mark.promise("P14")
def test_retention_leaves_the_same(pair: Pair, answers: dict[Case, Answers]) -> None:
    assert len(answers) == len(CASES)
    for case in CASES:
        for address in pair.addresses:
            keep_a_day(address, case.topic)
    # Two rounds behind each other: who sees the end of the second has seen all of the first.
    for number in range(2):
        topic = f"sentinel-{number}"
        logs.create(pair.kafka, topic, retention_ms=str(DAY_MS))
        produce(pair.kafka, topic, Case("right", Codec.NONE, "old").batch())
        until(lambda: place(pair.kafka, topic, EARLIEST), lambda offset: offset == 3)  # noqa: B023
    theirs = {case: place(pair.kafka, case.topic, EARLIEST) for case in CASES}
    assert theirs == {case: 3 if case.age == "old" else 0 for case in CASES}
    for case in CASES:
        if case.age == "old":
            pair.ours.run_until("retention", case.topic, lambda row: row["log_start"] == 3)
    ours = pair.ours.bootstrap
    assert {case: place(ours, case.topic, EARLIEST) for case in CASES} == theirs


def keep_a_day(address: str, topic: str) -> None:
    entry = ConfigEntry("retention.ms", str(DAY_MS), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
