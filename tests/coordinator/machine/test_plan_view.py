"""The plan that the exporter gets is JSON, whole, and ends at the last stable offset."""

import json

import pytest

from coordinator.commands.entries import DONE
from coordinator.commands.loss_commands import DeclareLost
from coordinator.commands.transaction_commands import (
    EndTransaction,
    TransactionEnded,
)
from coordinator.machine.plan_view import topic_plan
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId
from storage.formats.page import digest_of_rows
from storage.formats.spans import Item
from tests.coordinator.machine.story import Story, begun, plain, span
from txn.transactions import OF_EPOCH


def written() -> tuple[Story, TopicId, int]:
    story, agent, topic_id = begun("events", 2)
    story.commit(agent, span(topic_id, plain(100, 10, 7), partition=1))
    story.commit(agent, span(topic_id, plain(60, 6, 9), partition=1, start=20))
    return story, topic_id, agent


def test_the_plan_holds_the_spans_of_every_partition():
    story, topic_id, agent = written()
    plan = topic_plan(story.machine, topic_id).view
    assert json.loads(json.dumps(plan)) == {
        "topic": "events",
        "topic_id": topic_id.hex(),
        "position": story.machine.position,
        "partitions": [
            {
                "partition": 0,
                "log_start": 0,
                "end": 0,
                "stable": 0,
                "spans": [],
                "markers": [],
                "aborted": [],
                "compacted": False,
                "eras": [],
                "lost": [],
            },
            {
                "partition": 1,
                "log_start": 0,
                "end": 16,
                "stable": 16,
                "spans": [
                    [f"chunks/{agent:016x}/00000000", 0, 100, 0, 10, 7],
                    [f"chunks/{agent:016x}/00000001", 20, 60, 10, 6, 9],
                ],
                "markers": [],
                "aborted": [],
                "compacted": False,
                "eras": [],
                "lost": [],
            },
        ],
    }


def test_a_plan_from_an_offset_begins_with_the_span_that_holds_it():
    story, topic_id, _ = written()
    (view,) = topic_plan(story.machine, topic_id, partitions={1: 12}).view["partitions"]
    assert [each[3] for each in view["spans"]] == [10]


def test_a_plan_from_the_end_is_empty():
    story, topic_id, _ = written()
    (view,) = topic_plan(story.machine, topic_id, partitions={1: 16}).view["partitions"]
    assert (view["end"], view["spans"]) == (16, [])


def test_a_topic_that_does_not_exist_has_no_plan():
    story, _, _ = written()
    with pytest.raises(KafkaError) as refused:
        topic_plan(story.machine, TopicId(bytes(16)))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_partition_that_does_not_exist_has_no_plan():
    story, topic_id, _ = written()
    with pytest.raises(KafkaError) as refused:
        topic_plan(story.machine, topic_id, partitions={2: 0})
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def with_transactions() -> tuple[Story, TopicId]:
    """0-2 aborted, 3 plain, 4-5 aborted by another, 6 and 7 markers, 8-9 open, 10 plain."""
    story, agent, topic_id = begun()
    producers = [story.producer(agent, name)[0] for name in ("t0", "t1")]
    first, second = producers

    def batch(producer_id: int, records: int, epoch: int = 0) -> Item:
        return Item(0, 100, records, 500, producer_id, epoch, 0, OF_EPOCH)

    story.commit(agent, span(topic_id, batch(first, 3), plain(100, 1), batch(second, 2)))
    for number in (1, 0):
        end = EndTransaction(f"t{number}", producers[number], 0, commit=False, proof=None)
        assert isinstance(story.do(agent, end), TransactionEnded)
    story.commit(agent, span(topic_id, batch(first, 2, epoch=1), plain(100, 1)))
    return story, topic_id


def test_markers_and_aborted_transactions_are_in_the_plan_by_offset():
    story, topic_id = with_transactions()
    (view,) = topic_plan(story.machine, topic_id).view["partitions"]
    assert (view["end"], view["markers"]) == (8, [6, 7])
    assert [each[3:5] for each in view["spans"]] == [[0, 6]]
    assert [each[1:] for each in view["aborted"]] == [[0, 7], [4, 6]]
    assert len({each[0] for each in view["aborted"]}) == 2


def test_nothing_behind_the_last_stable_offset_is_in_the_plan():
    story, topic_id = with_transactions()
    partition = story.partition(topic_id)
    assert (partition.last_stable, partition.end_offset) == (8, 11)
    (view,) = topic_plan(story.machine, topic_id, partitions={0: 8}).view["partitions"]
    assert (view["end"], view["spans"], view["markers"], view["aborted"]) == (8, [], [], [])


def test_a_span_that_reaches_over_the_last_stable_offset_is_in_the_plan_whole():
    story, topic_id = with_transactions()
    agent = next(iter(story.machine.incarnations)).incarnation
    item = Item(0, 100, 1, 500, *story.producer(agent, "t0"), 0, OF_EPOCH)
    story.commit(agent, span(topic_id, plain(100, 4), item, plain(100, 2)))
    (view,) = topic_plan(story.machine, topic_id, partitions={0: 12}).view["partitions"]
    assert (view["end"], view["markers"], view["aborted"]) == (16, [], [])
    assert [each[3:5] for each in view["spans"]] == [[12, 7]]


def test_a_plan_from_an_offset_tells_only_what_still_reaches_into_it():
    story, topic_id = with_transactions()
    (view,) = topic_plan(story.machine, topic_id, partitions={0: 7}).view["partitions"]
    assert (view["spans"], view["markers"]) == ([], [7])
    assert [each[1:] for each in view["aborted"]] == [[0, 7]]


def test_of_a_partition_that_has_lost_something_the_plan_says_that_records_may_be_gone():
    story, topic_id, agent = written()
    (lost, _) = story.partition(topic_id, 1).rows_from(0, 2)
    seen = digest_of_rows([lost])
    command = DeclareLost(topic_id, 1, 0, 10, 1, seen, b"", 0, 100, 16, 61)
    assert story.do(agent, command) == DONE
    untouched, holed = topic_plan(story.machine, topic_id).view["partitions"]
    assert (untouched["compacted"], holed["compacted"]) == (False, True)
    assert (untouched["lost"], holed["lost"]) == ([], [[0, 10, story.machine.time_ms]])
    assert holed["spans"][0] == [f"segments/{agent:016x}/00000000", 16, 61, 0, 10, 7]
    assert (holed["end"], len(holed["spans"])) == (16, 2)
