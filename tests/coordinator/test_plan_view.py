"""The plan that the exporter gets is JSON, whole, and ends at the last stable offset."""

import json

import pytest

from coordinator.plan_view import topic_plan
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId
from tests.coordinator.story import Story, plain, span


def written() -> tuple[Story, TopicId, int]:
    story = Story()
    agent = story.open()
    topic_id = story.topic(agent, "events", 2)
    story.commit(agent, span(topic_id, plain(100, 10, 7), partition=1))
    story.commit(agent, span(topic_id, plain(60, 6, 9), partition=1, start=20))
    return story, topic_id, agent


def test_the_plan_holds_the_spans_of_every_partition():
    story, topic_id, agent = written()
    plan = topic_plan(story.machine, topic_id)
    assert json.loads(json.dumps(plan)) == {
        "topic": "events",
        "topic_id": topic_id.hex(),
        "position": story.machine.position,
        "partitions": [
            {"partition": 0, "log_start": 0, "end": 0, "spans": []},
            {
                "partition": 1,
                "log_start": 0,
                "end": 16,
                "spans": [
                    [f"chunks/{agent:016x}/00000000", 0, 100, 0, 10, 7],
                    [f"chunks/{agent:016x}/00000001", 20, 60, 10, 6, 9],
                ],
            },
        ],
    }


def test_a_plan_from_an_offset_begins_with_the_span_that_holds_it():
    story, topic_id, _ = written()
    (view,) = topic_plan(story.machine, topic_id, partitions={1: 12})["partitions"]
    assert [each[3] for each in view["spans"]] == [10]


def test_a_plan_from_the_end_is_empty():
    story, topic_id, _ = written()
    (view,) = topic_plan(story.machine, topic_id, partitions={1: 16})["partitions"]
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
