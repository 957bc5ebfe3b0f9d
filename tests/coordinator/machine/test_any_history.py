"""What holds for every history: replay, hash seeds, dense offsets, no lost or repeated batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import (
    ChunkCommitted,
    ChunkSpan,
    CommitChunk,
    Entry,
    ItemResult,
    Outcome,
)
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Sums
from coordinator.tables.partitions import Partitions, Stamps
from protocol.errors import ErrorCode
from protocol.types import TopicId
from storage.formats.spans import Item, Marker, ObjectId, Span
from tests.coordinator.histories import WITHOUT_JOBS, history, snapshot_digest
from tests.coordinator.machine.story import begun
from tests.coordinator.snapshot.compare import differences

ROOT = Path(__file__).parents[3]
SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_through_the_codec_ends_in_the_same_state(seed: int):
    story = history(seed, steps=800)
    machine = Machine()
    for place, entry in story.log:
        machine.apply(place, decode_entry(encode_entry(entry)))
    assert differences(machine, story.machine) == []


@pytest.mark.promise("P13")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_short_way_of_a_span_ends_where_the_long_one_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents of two releases may differ in which they take."""
    story = history(seed, steps=800, kinds=WITHOUT_JOBS)
    short_ways, go_on = 0, Partitions._go_on

    def counted(partitions: Partitions, span: ChunkSpan, stamps: Stamps) -> ItemResult | None:
        nonlocal short_ways
        result = go_on(partitions, span, stamps)
        short_ways += result is not None
        return result

    def replayed() -> Machine:
        machine = Machine()
        for place, entry in story.log:
            machine.apply(place, entry)
        return machine

    monkeypatch.setattr(Partitions, "_go_on", counted)
    short = replayed()
    assert short_ways > 0
    monkeypatch.setattr(Partitions, "_go_on", lambda *_: None)
    long = replayed()
    assert short.digest() == long.digest()
    assert differences(short, long) == []


@pytest.mark.promise("P13")
def test_a_replay_under_another_hash_seed_has_the_same_digests_and_snapshot():
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "tests.coordinator.histories", "5"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "4242")
    ]
    assert outputs[0] == outputs[1]
    machine = history(5, steps=400).machine
    assert outputs[0].splitlines()[-2:] == [machine.digest().hex(), snapshot_digest(machine)]


@pytest.mark.parametrize("seed", SEEDS)
def test_spans_are_dense_and_chunks_count_them(seed: int):
    machine = history(seed, steps=400, kinds=WITHOUT_JOBS).machine
    spans: list[Span] = []
    marker_count = 0
    for topic in machine.topics:
        for index in range(topic.partition_count):
            partition = machine.partitions.get(topic.topic_id, index)
            assert partition is not None
            rows = partition.rows_from(0, partition.row_count)
            ends = [partition.log_start, *[row.next_offset for row in rows]]
            assert [row.base_offset for row in rows] == ends[:-1]
            assert ends[-1] == partition.end_offset
            spans += [row for row in rows if isinstance(row, Span)]
            marker_count += sum(isinstance(row, Marker) for row in rows)
    for span in spans:
        assert span.start + span.length <= machine.object_length(span.object_id)
    gone = [each.object_id for each in machine.objects.unreferenced()]
    assert len(set(gone)) == len(gone)
    assert not set(gone) & {span.object_id for span in spans}
    if next(machine.partitions.deleted(), None) is None:
        assert machine.partitions.row_count == len(spans) + marker_count
        assert len(machine.objects) == len({span.object_id for span in spans})


def test_the_sums_of_all_partitions_are_theirs_whatever_jobs_do():
    pages = 0
    for seed in SEEDS:
        table = history(seed, steps=400).machine.partitions
        deleted = [each.topic_id for each in table.deleted()]
        rows = [*table.written(), *[row for each in deleted for row in table.left(each)]]
        for name in Sums._fields:
            assert getattr(table, name) == sum(getattr(row, name) for row in rows)
        pages += table.page_count
    assert pages > 0


@pytest.mark.promise("P2")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_acknowledged_is_in_the_log_at_its_offset(seed: int):
    """Every accepted item lies at its offset, in its chunk; a duplicate where the first one is."""
    story = history(seed, steps=400, kinds=WITHOUT_JOBS)
    machine = Machine()
    for place, entry in story.log:
        outcomes = machine.apply(place, entry)
        for command, outcome in zip(entry.commands, outcomes, strict=True):
            if isinstance(command, CommitChunk) and isinstance(outcome, ChunkCommitted):
                check_results(machine, entry, command, outcome)


def check_results(
    machine: Machine, entry: Entry, command: CommitChunk, outcome: ChunkCommitted
) -> None:
    results = iter(outcome.results)
    for span in command.spans:
        at = span.start
        for item in span.items:
            at += item.skip
            result = next(results)
            check_result(machine, entry, command, span, item, at, result)
            at += item.length
    assert next(results, None) is None


def check_result(
    machine: Machine,
    entry: Entry,
    command: CommitChunk,
    span: ChunkSpan,
    item: Item,
    at: int,
    result: ItemResult,
) -> None:
    partition = machine.partitions.get(span.topic_id, span.partition)
    if result.error != ErrorCode.NONE:
        assert result.base_offset == -1
        return
    if partition is None:  # Deleted by a later command of the entry.
        return
    row = partition.row(partition.find(result.base_offset))
    assert isinstance(row, Span)
    assert row.base_offset <= result.base_offset
    assert result.base_offset + item.records <= row.next_offset
    if not result.duplicate:
        assert row.object_id == ObjectId(entry.incarnation, command.number)
        assert row.start <= at
        assert at + item.length <= row.start + row.length


# The machine against a model: one partition, a list of records.

producers = st.tuples(st.integers(-1, 2), st.integers(0, 1), st.integers(0, 6))
offers = st.tuples(producers, st.integers(1, 3))
chunks = st.lists(st.lists(offers, min_size=1, max_size=4), max_size=12)


@given(chunks)
def test_a_partition_is_the_list_of_the_batches_that_the_model_keeps(
    chunks: list[list[tuple[tuple[int, int, int], int]]],
):
    story, agent, topic_id = begun()
    records: list[tuple[int, int]] = []
    known: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}
    for number, chunk in enumerate(chunks):
        items = tuple(
            Item(0, 1, count, number, *(producer if producer[0] >= 0 else (-1, -1, -1)))
            for producer, count in chunk
        )
        outcome = story.do(agent, CommitChunk(number, 99, (one_span(topic_id, items),)))
        expected = [model(records, known, item, (number, at)) for at, item in enumerate(items)]
        assert found(outcome) == expected
    partition = story.partition(topic_id)
    stored: list[tuple[int, int]] = []
    for each in partition.rows_from(0, 99):
        assert isinstance(each, Span)
        number = each.object_id.number
        for at in range(each.start, each.start + each.length):
            stored += [(number, at)] * chunks[number][at][1]
    assert stored == records
    assert partition.end_offset == len(records)


def one_span(topic_id: TopicId, items: tuple[Item, ...]) -> ChunkSpan:
    return ChunkSpan(topic_id, 0, 0, items)


def found(outcome: Outcome) -> list[object]:
    assert isinstance(outcome, ChunkCommitted)
    return [
        result.base_offset if result.error == ErrorCode.NONE else result.error
        for result in outcome.results
    ]


def model(
    records: list[tuple[int, int]],
    known: dict[int, tuple[int, list[tuple[int, int, int]]]],
    item: Item,
    place: tuple[int, int],
) -> object:
    """The base offset of the item, or why it is refused; Kafka's rules in ten lines."""
    offset, count, producer = len(records), item.records, item.producer_id
    if producer >= 0:
        epoch, batches = known.get(producer, (item.producer_epoch, []))
        batches = batches[-5:]
        for first, size, base in batches:
            if (epoch, first, size) == (item.producer_epoch, item.first_sequence, count):
                return base
        if item.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        goes_on = batches and epoch == item.producer_epoch
        expected = sum(batches[-1][:2]) if goes_on else 0
        if producer in known and item.first_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        batches = [*(batches if goes_on else []), (item.first_sequence, count, offset)]
        known[producer] = (item.producer_epoch, batches)
    records.extend([place] * count)
    return offset
